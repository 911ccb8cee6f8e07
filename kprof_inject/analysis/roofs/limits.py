"""The limit of a launch, the evidence that it is judged by without counters, and the thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.roofs.coalescing import Requests
from kprof_inject.analysis.roofs.memory import DramBound
from kprof_inject.analysis.roofs.rates import ALU, FP32, FP64, ISSUE, L2, L2_TO_SM, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.roofs.speed_of_light import Roof, SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, percent

DRAM = "DRAM"
IDLE = "SMs without work"
MEMORY_WAITS = "waits for memory"
UNCOALESCED = "uncoalesced access"
NOT_KNOWN = "not known"

# Nsight Compute's threshold for a well-utilized unit; below it, latency dominates (Kernel Profiling Guide, "GPU Speed
# of Light Throughput").
LIMITING = 0.6
# Waits for memory are the limit from here on: the rest of the time is then too short for a unit to be it.
MIN_WAIT_SHARE = 1 - LIMITING
# Threshold for upper bounds.
POSSIBLE = 0.5
# Overhead of records from which the verdict on a kernel does not trust durations.
NOTABLE_COST_PERCENT = 5.0
# Combined utilization from which two alternating units limit a launch.
MIN_TOGETHER = 0.75
# A grid that uses a smaller part of the SMs, or has work for fewer on average, is the first thing to change.
MIN_SMS = 0.6
# Smaller parts are not reported.
MIN_NOTABLE = 0.1
# A smaller part would be rounded to 0 %.
_MIN_SHOWN = 0.001
# Units within this margin count as equally busy.
NEAR = 0.1

UNIT_NAMES = {
    TENSOR: "the tensor cores",
    SPECIAL: "the special function units",
    FP32: "the fp32 units",
    FP64: "the fp64 units",
    ALU: "the ALU",
    ISSUE: "instruction issue",
    SHARED: "shared memory and L1",
    L2: "the L2",
    L2_TO_SM: "the L2",
    DRAM: "DRAM",
}


class CodeBounds(Struct, frozen=True):
    """Bounds of the units' parts by the machine code: ``parts`` are lower ones, ``most`` upper ones.

    ``unknown_share`` is the share of the instructions whose number of executions has no upper bound. ``most`` is None
    if no upper bound is known.
    """

    parts: Mapping[str, float]
    unknown_share: float
    most: Mapping[str, float] | None = None


class Limit(Struct, frozen=True):
    """The limit of a launch."""

    name: str
    """The limit in a word or two."""
    units: tuple[str, ...]
    """The units that limit the launch; empty if it waits, or if the limit is unknown."""
    text: str
    parts: Mapping[str, float]
    """Part of the launch's time that each unit needs."""
    is_known: bool = True
    evidence: Literal["computed", "measured"] = "computed"
    """Whether ``parts`` are lower bounds from TTGIR, or what the hardware counted."""

    @property
    def answer(self) -> str:
        """``text`` as shown after the word *limit*."""
        return self.text if self.is_known else f"{NOT_KNOWN}: {self.text}"

    @property
    def sentence(self) -> str:
        """``text`` as a sentence of its own."""
        return f"limited by {self.text}" if self.is_known else f"limit not known: {self.text}"


class JudgedLaunch(Struct, frozen=True):
    """Evidence on a launch without counters.

    ``parts`` has for each unit the lower bound of the part of the time in which it is busy.
    """

    summary: LaunchSummary
    light: SpeedOfLight
    whole: Roof
    parts: Mapping[str, float]
    device_sms: int | None
    slowdown: float
    """Lower bound of the ratio of the durations with and without records; 1 if the difference is small or unknown. Less
    than 1 if records make the launch faster, as they may where they change the order in which CTAs reach the L2."""
    slowdown_of_sms: float
    """The same of the time in which SMs have work."""
    code: CodeBounds | None
    """What the machine code shows."""
    requests: Sequence[Requests] = ()
    """Requests of loads and stores, where they are known."""

    def max_part_of(self, unit: str) -> float:
        """Return an upper bound of a unit's part by the machine code, which need not execute all instructions."""
        if self.code is None or self.code.most is None:
            return 1.0
        return min(self.slowdown_of_sms * self.code.most.get(unit, 0.0), 1.0)

    @property
    def busiest(self) -> list[str]:
        """The units, the busiest first."""
        return sorted(self.parts, key=lambda unit: -self.parts[unit])

    def dram_part(self, dram: DramBound, size_bytes: int) -> float:
        """Return the part of the launch's time in which DRAM would move these bytes."""
        return self.slowdown * 1e9 * size_bytes / dram.bytes_per_s / max(self.summary.duration_ns, 1)

    def name_of(self, roof: Roof) -> str:
        """Return the name of a roof's scope."""
        return self.summary.scopes[roof.index].distinct_name

    def limit(self, name: str, text: str, *units: str) -> Limit:
        """Return a limit by these units."""
        return Limit(name, units, text, self.parts)

    def not_known(self, text: str) -> Limit:
        """Return that the limit is not known, and why."""
        return Limit(NOT_KNOWN, (), text, self.parts, is_known=False)

    def unclear(self, text: str) -> Limit:
        """Explain that the limit is unknown, with what is known."""
        return self.not_known(f"{text}; of what is known, {self.nearest}")

    def without_records(self, limit: Limit) -> Limit:
        """Return the limit with a note if the parts refer to the time without records."""
        if self.slowdown == 1:
            return limit
        if self.slowdown < 1:
            if self.slowdown > 1 - NOTABLE_COST_PERCENT / 100:
                return limit
            gain = percent(1 / self.slowdown - 1)
            text = f"{limit.text}; without records the launch takes up to {gain} longer, which is taken into account"
            return replace(limit, text=text)
        cost = f"not counting the time that recording adds, at least {percent(self.slowdown - 1)}"
        return replace(limit, text=f"{limit.text}; {cost}")

    @property
    def nearest(self) -> str:
        """Description of the busiest units."""
        notable = [unit for unit in self.busiest if self.parts[unit] >= MIN_NOTABLE][:2]
        if not notable:
            part = self.parts[self.busiest[0]]
            return "no unit is busy" + (f" for more than {percent(part)} of the time" if part >= _MIN_SHOWN else "")
        names = " and ".join(f"{UNIT_NAMES[unit]} ({percent(self.parts[unit])})" for unit in notable)
        return f"the busiest {'units are' if len(notable) > 1 else 'unit is'} {names}"


def as_busy(parts: Mapping[str, float]) -> list[str]:
    """Return the busiest unit, and those that are nearly as busy."""
    most = max(parts.values())
    found = [unit for unit, part in parts.items() if part >= max(most - NEAR, POSSIBLE)]
    return sorted(found, key=lambda unit: -parts[unit])


def whole_roof(summary: LaunchSummary, light: SpeedOfLight) -> Roof | None:
    """Return the roof of the kernel's function; None if it was not recorded."""
    return next((roof for roof in light.roofs if summary.scopes[roof.index].kind == ScopeKind.FUNCTION), None)


def busy_loop(summary: LaunchSummary, light: SpeedOfLight) -> tuple[Roof, float] | None:
    """Return the longest loop that keeps a unit of the SM busy, with its share of the kernel's time.

    None if there is no such loop, or if it takes less than half of the time.
    """
    whole = whole_roof(summary, light)
    loops = [
        roof
        for roof in light.roofs
        if summary.scopes[roof.index].kind == ScopeKind.LOOP and roof.part >= LIMITING and roof.unit != DRAM
    ]
    if whole is None or not loops:
        return None
    loop = max(loops, key=lambda roof: roof.sm_cycles)
    share = loop.sm_cycles / whole.sm_cycles
    return (loop, share) if share >= POSSIBLE else None


def named(units: Sequence[str], parts: Mapping[str, float]) -> str:
    """Return units with the part of the first, such as ``tensor cores 75 %``."""
    return f"{' and '.join(units)} {100 * parts[units[0]]:.0f} %"


def units_in_turn(parts: Mapping[str, float]) -> tuple[str, str, str] | None:
    """Return two units that alternate, and that in words; None if none do.

    The instructions of one warp use them one after the other.
    """
    units = sorted((unit for unit in (TENSOR, SPECIAL, FP32) if unit in parts), key=lambda unit: -parts[unit])[:2]
    if len(units) < 2 or sum(parts[unit] for unit in units) < MIN_TOGETHER or parts[units[1]] < MIN_NOTABLE:
        return None
    first, second = units
    text = f"{UNIT_NAMES[first]} and {UNIT_NAMES[second]} in turn ({percent(parts[first])} and "
    return first, second, f"{text}{percent(parts[second])} of peak)"


def few_sms(summary: LaunchSummary, device_sms: int | None) -> str:
    """Return that the grid uses few of the device's SMs; empty if it has a CTA for each, or uses enough of them."""
    waves = summary.waves
    if waves is None or not device_sms or waves.ctas >= device_sms or waves.sms >= MIN_SMS * device_sms:
        return ""
    return f"the grid: {counted(waves.ctas, 'CTA')} on {waves.sms} of {device_sms} SMs"


def sms_without_work(summary: LaunchSummary, device_sms: int | None) -> str:
    """Describe the average number of SMs with a CTA, and the others; empty if enough have one."""
    idle = summary.idle
    if idle is None:
        return ""
    sms = max(device_sms or 0, idle.sms)
    used = idle.sms / sms
    if idle.work_share * used >= MIN_SMS:
        return ""
    others = {
        "never get one": 1 - used,
        "wait for their first": used * idle.before_share,
        "have none between two": used * idle.between_share,
        "are done": used * idle.after_share,
    }
    reasons = [f"{what} ({percent(share)})" for what, share in others.items() if share >= MIN_NOTABLE]
    average = idle.work_share * idle.sms
    return f"SMs without work: on average, {average:.1f} of {sms} SMs have a CTA; the others {' or '.join(reasons)}"


def memory_wait_limit(summary: LaunchSummary) -> Limit | None:
    """Return waits until memory changes as the limit; None if they take less than 40 % of the warps' time."""
    spins = [scope for scope in summary.scopes if scope.kind == ScopeKind.SPIN and scope.share]
    share = sum(scope.share or 0.0 for scope in spins)
    if share < MIN_WAIT_SHARE:
        return None
    longest = max(spins, key=lambda scope: scope.share or 0.0)
    names = longest.distinct_name if len(spins) == 1 else f"{longest.distinct_name} and others"
    text = f"waits for memory to change: {percent(share)} of the warps' time is in {names}"
    return Limit(MEMORY_WAITS, (), text, {})

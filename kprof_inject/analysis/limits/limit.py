"""The limit of a launch, and the evidence that it is judged by: counters, or lower bounds of the units' work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.footprints import SECTOR_BYTES
from kprof_inject.analysis.limits.coalescing import MIN_UNCOALESCED, Requests, is_spread, sectors_text, worst_of
from kprof_inject.analysis.limits.memory import DramBound
from kprof_inject.analysis.limits.rates import DRAM, L2, L2_TO_SM, METRICS, SHARED, UNIT_NAMES
from kprof_inject.analysis.limits.speed_of_light import MAX_POSSIBLE, Roof, SpeedOfLight
from kprof_inject.analysis.limits.stalls import FOR_MEMORY, ISSUED, Stalls, kernel_stalls, sampled
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.reader import machine_code_of
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import Pipeline, global_access, pipeline_of
from kprof_inject.quantities import percent
from kprof_inject.timeline.waves import IdleSms, Waves

IDLE = "SMs without work"
MEMORY_WAITS = "waits for memory"
UNCOALESCED = "uncoalesced access"
NOT_KNOWN = "not known"

# Nsight Compute's threshold for a well-utilized unit; below it, latency dominates (Kernel Profiling Guide, "GPU Speed
# of Light Throughput").
LIMITING = 0.6
# Waits for memory are the limit from here on: the rest of the time is then too short for a unit to be it.
MIN_WAIT_SHARE = 1 - LIMITING
POSSIBLE = 0.5  # threshold for upper bounds
NOTABLE_COST_PERCENT = 5.0  # overhead of records from which the verdict on a kernel does not trust durations
MIN_TOGETHER = 0.75  # combined utilization from which two alternating units limit a launch
# A grid that uses a smaller part of the SMs, or has work for fewer on average, is the first thing to change.
MIN_SMS = 0.6
MIN_NOTABLE = 0.1  # smaller parts are not reported
_MIN_SHOWN = 0.001  # A smaller part would be rounded to 0 %
NEAR = 0.1  # units within this margin count as equally busy

_LANES = 32
_MAX_ACCESS_BYTES = 16
_LOADS = frozenset(("LDG", "LDGSTS"))
# DRAM reads more than this times the bytes that warps load if the L2 loses parts of sectors before they are used.
_REREAD = 1.5
# Counters of the accesses of each kind to global memory.
_ACCESSES = {
    "load": (counters.LOAD_REQUESTS, counters.LOAD_SECTORS),
    "store": (counters.STORE_REQUESTS, counters.STORE_SECTORS),
}


class Measured(Struct, frozen=True):
    """The counters of a kernel, the stall reasons of its warps, and its machine code."""

    kernel: Kernel
    counted: CountersRecord
    stalls: Stalls | None
    code: MachineFunction | None

    @property
    def shares(self) -> dict[str, float]:
        """Utilization of each unit that was counted."""
        metrics = self.counted.metrics
        found = {unit: [metrics[name] for name in names if name in metrics] for unit, names in METRICS.items()}
        return {unit: max(values) / 100 for unit, values in found.items() if values}

    @property
    def active(self) -> float:
        """Mean part of the launch's time in which an SM has work; 0 if unknown."""
        cycles = self.metric(counters.SM_CYCLES)
        return min(self.metric(counters.SM_ACTIVE_CYCLES) / cycles, 1.0) if cycles else 0.0

    @property
    def sm_cycles(self) -> float:
        """Cycles of the launch, summed over all SMs; 0 if unknown."""
        return self.metric(counters.SM_CYCLES) * (self.kernel.sm_count or 0)

    @property
    def conflict_share(self) -> float:
        """Share of the wavefronts of shared memory and L1 that bank conflicts cause; 0 if it was not counted."""
        wavefronts = self.metric(counters.WAVEFRONTS)
        return self.metric(counters.SHARED_CONFLICTS) / wavefronts if wavefronts else 0.0

    @property
    def held_ctas(self) -> float:
        """Mean number of CTAs on an SM that has work; 0 if unknown."""
        return self.metric(counters.WARPS_ACTIVE) / self.kernel.num_warps

    @property
    def reads_once(self) -> bool:
        """True if DRAM reads little more than the bytes that warps load: coalescing would not spare it any."""
        loaded = self.metric(counters.LOAD_REQUESTS) * self._adjacent_sectors("load") * SECTOR_BYTES
        return self.metric(counters.DRAM_READ_BYTES) <= _REREAD * loaded

    def metric(self, name: str) -> float:
        """Return the value of a metric; 0 if it was not counted."""
        return self.counted.metrics.get(name, 0.0)

    def issued_share(self, pipelines: Collection[Pipeline], lines: tuple[int, int]) -> float:
        """Return the part of some pipelines' issued samples in a range of lines; 0 if there are none."""
        record, (first, last) = self.kernel.measurements, lines
        if record is None or record.samples is None or self.code is None:
            return 0.0
        inside = whole = 0
        for index, samples in sampled(record.samples, self.code):
            one = self.code.instructions[index]
            if pipeline_of(one) in pipelines:
                whole += samples.get(ISSUED, 0)
                inside += samples.get(ISSUED, 0) if first <= one.line <= last else 0
        return inside / whole if whole else 0.0

    def _adjacent_sectors(self, kind: str) -> float:
        """Return the number of sectors that a request of a warp touches if its addresses are adjacent."""
        accesses = map(global_access, self.code.instructions if self.code else ())
        widths = [access[1] for access in accesses if access and access[0] == kind]
        return max(widths, default=_MAX_ACCESS_BYTES) * _LANES / SECTOR_BYTES

    @property
    def uncoalesced_text(self) -> str:
        """Sentence on the uncoalesced kind of accesses that touches most sectors, if there is one."""
        found = []
        for kind, names in _ACCESSES.items():
            requests, sectors = map(self.metric, names)
            if requests and sectors / requests >= MIN_UNCOALESCED * self._adjacent_sectors(kind):
                found.append((sectors, sectors / requests, kind))
        if not found:
            return ""
        _, each, kind = max(found)
        text = f"each {kind} of a warp touches {sectors_text(each, self._adjacent_sectors(kind))}"
        if kind == "load" and self.stalls is not None:
            awaited = self.stalls.awaited(FOR_MEMORY).most_common()
            loads = (line for line, _ in awaited if self.stalls.operations.get(line) in _LOADS)
            if place := self.stalls.place_of(next(loads, 0)):
                return f"{text}; warps wait longest for the load of {place}"
        return text


def measured_of(kernel: Kernel) -> Measured | None:
    """Return the measurements of a kernel; None without counters."""
    counted = kernel.measurements.counters if kernel.measurements else None
    return Measured(kernel, counted, kernel_stalls(kernel), machine_code_of(kernel)) if counted else None


class CodeBounds(Struct, frozen=True):
    """Lower bounds of the units' parts by the machine code."""

    parts: Mapping[str, float]
    unknown_share: float  # share of the instructions, of all that warps might execute, whose executions are unknown
    scopes: Mapping[int, Mapping[str, float]] = {}  # parts of each scope, by its index in the scope table


class Limit(Struct, frozen=True):
    """The limit of a launch."""

    name: str  # the limit in a word or two
    units: tuple[str, ...]  # the units that limit the launch; empty if it waits, or if the limit is unknown
    text: str
    parts: Mapping[str, float]  # part of the launch's time that each unit needs
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


class Bounds(Struct, frozen=True):
    """The evidence on a launch without counters: TTGIR, the launch's arguments and the machine code."""

    summary: LaunchSummary
    light: SpeedOfLight
    whole: Roof
    slowdown: float
    """Lower bound of the ratio of the durations with and without records; 1 if the difference is small or unknown. Less
    than 1 if records make the launch faster, as they may by changing the order in which CTAs reach the L2."""
    slowdown_of_sms: float  # the same ratio of the time in which SMs have work
    code: CodeBounds | None
    requests: Sequence[Requests] = ()

    def dram_part(self, dram: DramBound, size_bytes: int) -> float:
        """Return the part of the launch's time that DRAM needs for these bytes."""
        return self.slowdown * 1e9 * size_bytes / dram.bytes_per_s / max(self.summary.duration_ns, 1)


class Judged(Struct, frozen=True):
    """A launch and the evidence on it: ``measured`` with counters, else ``bounds``.

    ``parts`` has the part of the launch's time in which each unit is busy: counted, or a lower bound (``at_least``).
    """

    parts: Mapping[str, float]
    waves: Waves | None
    idle: IdleSms | None
    device_sms: int | None
    waits: Limit | None = None
    measured: Measured | None = None
    bounds: Bounds | None = None

    @property
    def at_least(self) -> bool:
        """True if parts are lower bounds."""
        return self.measured is None

    @property
    def busiest(self) -> list[str]:
        """The units, the busiest first."""
        return sorted(self.parts, key=lambda unit: -self.parts[unit])

    @property
    def is_at_roof(self) -> bool:
        """True if a unit is busy for the whole launch, whatever SMs lack."""
        # Without counters, that is certain of DRAM alone: other parts are of the time in which SMs have work.
        return any(self.parts.get(unit, 0.0) >= LIMITING for unit in ((DRAM,) if self.at_least else self.parts))

    def limit(self, name: str, text: str, *units: str) -> Limit:
        """Return a limit by these units."""
        return Limit(name, units, text, self.parts, evidence="computed" if self.at_least else "measured")

    def not_known(self, text: str) -> Limit:
        """Return that the limit is not known, and why."""
        return replace(self.limit(NOT_KNOWN, text), is_known=False)

    def unclear(self, text: str) -> Limit:
        """Explain that the limit is unknown, with what is known."""
        return self.not_known(f"{text}; of what is known, {self.nearest}")

    @property
    def nearest(self) -> str:
        """Description of the busiest units."""
        first = self.busiest[0]
        if not self.at_least:
            return f"the busiest unit is {UNIT_NAMES[first]} ({percent(self.parts[first])} of peak)"
        notable = [unit for unit in self.busiest if self.parts[unit] >= MIN_NOTABLE][:2]
        if not notable:
            part = self.parts[first]
            return "no unit is busy" + (f" for more than {percent(part)} of the time" if part >= _MIN_SHOWN else "")
        names = " and ".join(f"{UNIT_NAMES[unit]} ({percent(self.parts[unit])})" for unit in notable)
        return f"the busiest {'units are' if len(notable) > 1 else 'unit is'} {names}"

    @property
    def waiting(self) -> str:
        """The waits of warps and their place, if that was sampled, and the busiest unit."""
        stalls = self.measured.stalls if self.measured else None
        if stalls is None or stalls.top is None:
            return self.nearest
        reason, share = stalls.top.reason, stalls.top.share
        place, needed = stalls.places_of(reason)
        where = f", most for {needed}" if needed else f", most at {place}" if place else ""
        return f"warps wait {percent(share)} of their time for {stalls.words(reason)} ({reason}){where}; {self.nearest}"

    def uncoalesced(self, *units: str) -> str:
        """Return the sectors that uncoalesced accesses touch, if they load one of these units; else empty."""
        if self.measured:
            return self.measured.uncoalesced_text if {SHARED, L2, DRAM}.intersection(units) else ""
        found = (worst for unit in units if (worst := self._uncoalesced_access(unit)))
        return next((one.text for one in found), "")

    def _uncoalesced_access(self, unit: str) -> Requests | None:
        """Return the uncoalesced access that loads a unit most, if that takes more time than bank conflicts."""
        bounds = self.bounds
        if bounds is None or unit not in (SHARED, L2_TO_SM):
            return None
        if unit == L2_TO_SM:
            return spread_load(bounds)
        part, extra = self.parts.get(SHARED, 0.0), sum(one.extra_wavefronts for one in bounds.requests)
        cycles, conflicts = bounds.whole.sm_cycles / bounds.slowdown_of_sms, bounds.whole.work.conflict_cycles
        needed = max(MIN_NOTABLE * part * cycles, conflicts - extra)
        return worst_of(bounds.requests) if part >= MIN_NOTABLE and extra >= needed else None


def dram_part(summary: LaunchSummary, light: SpeedOfLight) -> dict[str, float]:
    """Return DRAM's part; empty if it exceeds the whole time, as then an unknown part of the bytes hit the L2."""
    part = light.dram.min_part(summary.duration_ns) if light.dram else 0.0
    return {DRAM: min(part, 1.0)} if 0 < part <= MAX_POSSIBLE else {}


def spread_load(bounds: Bounds) -> Requests | None:
    """Return the load that touches most unneeded sectors, if all loads together touch many of them."""
    loads = [one for one in bounds.requests if one.kind == "load"]
    return worst_of(loads) if is_spread(loads) else None


def as_busy(parts: Mapping[str, float]) -> list[str]:
    """Return the busiest unit, and those that are nearly as busy."""
    most = max(parts.values())
    found = [unit for unit, part in parts.items() if part >= max(most - NEAR, POSSIBLE)]
    return sorted(found, key=lambda unit: -parts[unit])


def whole_roof(summary: LaunchSummary, light: SpeedOfLight) -> Roof | None:
    """Return the roof of the kernel's function, if it was recorded."""
    return next((roof for roof in light.roofs if summary.scopes[roof.index].kind == ScopeKind.FUNCTION), None)


def memory_wait_limit(summary: LaunchSummary) -> Limit | None:
    """Return waits until memory changes as the limit, if they take 40 % of the warps' time."""
    spins = [scope for scope in summary.scopes if scope.kind == ScopeKind.SPIN and scope.share]
    share = sum(scope.share or 0.0 for scope in spins)
    if share < MIN_WAIT_SHARE:
        return None
    longest = max(spins, key=lambda scope: scope.share or 0.0)
    names = longest.distinct_name if len(spins) == 1 else f"{longest.distinct_name} and others"
    text = f"waits for memory to change: {percent(share)} of the warps' time is in {names}"
    return Limit(MEMORY_WAITS, (), text, {})


def sms_without_work(idle: IdleSms | None, device_sms: int | None) -> str:
    """Describe the average number of SMs with a CTA, and the others; empty if enough have one."""
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

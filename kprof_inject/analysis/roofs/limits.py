"""The limit of a launch, in one sentence: the unit that is busiest, or another cause if none is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.roofs.coalescing import Requests, is_spread, worst_of
from kprof_inject.analysis.roofs.memory import DramBound
from kprof_inject.analysis.roofs.operation_work import Work
from kprof_inject.analysis.roofs.speed_of_light import MAX_POSSIBLE, Roof, SpeedOfLight
from kprof_inject.analysis.roofs.unit_rates import ALU, FP32, FP64, ISSUE, L2, L2_TO_SM, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, percent, short_time, size_text
from kprof_inject.timeline.trust import Overhead

DRAM = "DRAM"

# Nsight Compute's threshold for a well-utilized unit; below it, latency dominates (Kernel Profiling Guide, "GPU Speed
# of Light Throughput").
LIMITING = 0.6
# Threshold for upper bounds.
_POSSIBLE = 0.5
# The L2's part counts what SMs read. On an H100, it was up to 1.7 times as busy, with writes and what DRAM delivers.
_NOTABLE_L2 = 0.4
# Overhead of records from which the verdict on a kernel does not trust durations.
_NOTABLE_COST_PERCENT = 5.0
# Smaller exchanges cannot hide what limits a launch.
_NOTABLE_EXCHANGES = 0.3
# Combined utilization from which two alternating units limit a launch.
MIN_TOGETHER = 0.75
# Smaller parts are not reported.
MIN_NOTABLE = 0.1
# A smaller part would be rounded to 0 %.
_MIN_SHOWN = 0.001
# Units within this margin count as equally busy.
_NEAR = 0.1
# A grid that uses a smaller part of the SMs, or has work for fewer on average, is the first thing to change.
_MIN_SMS = 0.6


class CodeBounds(Struct, frozen=True):
    """Lower bounds of the units' parts by the machine code.

    ``unknown_share`` is the share of the instructions whose number of executions is unknown. ``may_conflict`` is True
    if accesses to shared memory or at unknown addresses may take longer than these bounds.
    """

    parts: Mapping[str, float]
    unknown_share: float
    may_conflict: bool = True


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
        return self.text if self.is_known else f"{_NOT_KNOWN}: {self.text}"

    @property
    def sentence(self) -> str:
        """``text`` as a sentence of its own."""
        return f"limited by {self.text}" if self.is_known else f"limit not known: {self.text}"

    def to_json(self) -> dict[str, Any]:
        """Return the limit as JSON values."""
        return {**json_values(self), "sentence": self.sentence}


def limit_of(
    summary: LaunchSummary,
    light: SpeedOfLight,
    device_sms: int | None,
    overhead: Overhead | None = None,
    code: CodeBounds | None = None,
    requests: Sequence[Requests] = (),
) -> Limit:
    """Determine what limits a launch.

    ``device_sms`` is the number of the device's SMs. ``overhead`` is the measured cost of the records, if any: where it
    is certain, the launch is judged by its time without them. ``code`` is what the machine code
    shows, in the same cycles as ``light``; None if it is unknown. ``requests`` are those of loads and stores.
    """
    whole = whole_roof(summary, light)
    if whole is None or (light.missing and light.has_unknown):
        why = str(light.missing) if light.missing else _why_no_roof(light)
        if idle := sms_without_work(summary, device_sms):
            return Limit(IDLE, (), f"{idle}; what limits those that have one is not known: {why}", {})
        return Limit(_NOT_KNOWN, (), why, {}, is_known=False)
    slowdown = _slowdown(overhead)
    if slowdown < 1:
        light = replace(light, roofs=tuple(roof.without_slowdown(slowdown) for roof in light.roofs))
    if slowdown != 1 and light.resident_cycles > whole.sm_cycles:
        # The overhead is relative to the time in which CTAs are on the SMs, which includes writing out their records.
        whole = whole.without_slowdown(whole.sm_cycles / light.resident_cycles)
    shared = _share_with_work(summary, device_sms)
    light = replace(light, roofs=tuple(_of_the_launch(roof, shared) for roof in light.roofs))
    whole = _of_the_launch(whole, shared)
    of_code = code.parts if code else {}
    bounds = {
        unit: max(whole.parts.get(unit, 0.0), of_code.get(unit, 0.0))
        for unit in dict.fromkeys([*whole.parts, *of_code])
    }
    parts = {unit: min(slowdown * part, 1.0) for unit, part in {**bounds, **dram_part(summary, light)}.items()}
    judged = _Judged(summary, light, whole, parts, device_sms, slowdown, code, requests)
    return judged.without_records(_limit(judged))


def _share_with_work(summary: LaunchSummary, device_sms: int | None) -> float:
    """Return the share of the launch's time in which the device's SMs have a CTA, on average."""
    idle = summary.idle
    return 1.0 if idle is None else idle.work_share * idle.sms / max(device_sms or 0, idle.sms)


def _of_the_launch(roof: Roof, share: float) -> Roof:
    """Return the roof with the L2's part of the launch's whole time, as it serves all SMs and rests if some do."""
    return replace(roof, parts={**roof.parts, L2_TO_SM: share * roof.parts.get(L2_TO_SM, 0.0)})


def _why_no_roof(light: SpeedOfLight) -> str:
    if light.unknown:
        return "how often its operations are executed is unknown, as that depends on loaded data"
    return "the kernel's function was not recorded; add --at func"


def whole_roof(summary: LaunchSummary, light: SpeedOfLight) -> Roof | None:
    """Return the roof of the kernel's function; None if it was not recorded."""
    return next((roof for roof in light.roofs if _kind_of(summary, roof) == ScopeKind.FUNCTION), None)


def _limit(judged: _Judged) -> Limit:
    found = _first(judged, _few_sms, _idle, _at_roof, _memory, _at_roof_in_a_loop, _two_units)
    if judged.whole.impossible:
        return _left_out(found, judged.whole) if found else _impossible(judged)
    return found or _first(judged, _exchanges, _scattered, _unknown_accesses, _l2) or _waits(judged)


def _first(judged: _Judged, *judges: Callable[[_Judged], Limit | None]) -> Limit | None:
    return next((limit for judge in judges if (limit := judge(judged))), None)


class _Judged(Struct, frozen=True):
    summary: LaunchSummary
    light: SpeedOfLight
    whole: Roof
    parts: Mapping[str, float]
    device_sms: int | None
    slowdown: float
    """Lower bound of the ratio of the durations with and without records; 1 if the difference is small or unknown. Less
    than 1 if records make the launch faster, as they may where they change the order in which CTAs reach the L2."""
    code: CodeBounds | None
    """What the machine code shows; None if it is unknown."""
    requests: Sequence[Requests] = ()
    """Requests of loads and stores, where they are known."""

    @property
    def may_conflict(self) -> bool:
        """True if accesses to memory may take longer than the machine code shows."""
        return self.code is None or self.code.may_conflict

    @property
    def busiest(self) -> list[str]:
        """The units, the busiest first."""
        return sorted(self.parts, key=lambda unit: -self.parts[unit])

    def dram_part(self, dram: DramBound, size_bytes: int) -> float:
        """Return the part of the launch's time in which DRAM would move these bytes."""
        return self.slowdown * 1e9 * size_bytes / dram.bytes_per_s / max(self.summary.duration_ns, 1)

    def name_of(self, roof: Roof) -> str:
        return self.summary.scopes[roof.index].distinct_name

    def limit(self, name: str, text: str, *units: str) -> Limit:
        return Limit(name, units, text, self.parts)

    def not_known(self, text: str) -> Limit:
        return Limit(_NOT_KNOWN, (), text, self.parts, is_known=False)

    def without_records(self, limit: Limit) -> Limit:
        """Return the limit with a note if the parts refer to the time without records."""
        if self.slowdown == 1:
            return limit
        if self.slowdown < 1:
            if self.slowdown > 1 - _NOTABLE_COST_PERCENT / 100:
                return limit
            gain = percent(1 / self.slowdown - 1)
            text = f"{limit.text}; without records the launch takes up to {gain} longer, which is taken into account"
            return replace(limit, text=text)
        cost = f"not counting the time that recording adds, at least {percent(self.slowdown - 1)}"
        return replace(limit, text=f"{limit.text}; {cost}")


def _slowdown(overhead: Overhead | None) -> float:
    """Return the slowdown by the records: the lower end of its interval, as parts are lower bounds."""
    if overhead is None:
        return 1.0
    is_faster = overhead.is_measurable and overhead.percent < 0
    is_slower = overhead.low_percent > _NOTABLE_COST_PERCENT
    return max(1 + overhead.low_percent / 100, 0.0) if is_faster or is_slower else 1.0


def dram_part(summary: LaunchSummary, light: SpeedOfLight) -> dict[str, float]:
    """Return DRAM's part; empty if it exceeds all of the time, as then an unknown part of the bytes hit the L2."""
    part = light.dram.min_part(summary.duration_ns) if light.dram else 0.0
    return {DRAM: min(part, 1.0)} if 0 < part <= MAX_POSSIBLE else {}


def _kind_of(summary: LaunchSummary, roof: Roof) -> str:
    return summary.scopes[roof.index].kind


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


def _at_roof(judged: _Judged) -> Limit | None:
    first = judged.busiest[0]
    # DRAM's part counts each byte once, and its peak cannot be reached.
    if judged.parts[first] < (_POSSIBLE if first == DRAM else LIMITING):
        return None
    if scattered := _scattered(judged):
        return scattered
    units = as_busy(judged.parts)
    loop = _busiest_loop(judged, units[0])
    more = f", {percent(loop.part)} in {judged.name_of(loop)}" if loop and loop.part > judged.parts[units[0]] else ""
    text = _with_parts(units, judged.parts, judged.whole.work, more)
    uncoalesced = next((one for unit in units if (one := _uncoalesced(judged, unit))), None)
    if uncoalesced and DRAM not in units:
        return judged.limit(UNCOALESCED, f"{text}, by uncoalesced access: {uncoalesced.text}", *units)
    if units[0] == DRAM and judged.light.dram:
        text += f": the launch has to move {size_text(judged.light.dram.least_bytes)}"
    return judged.limit(_named(units, judged.parts), text, *units)


def _uncoalesced(judged: _Judged, unit: str) -> Requests | None:
    """Return the access that loads a unit most by addresses that are not adjacent.

    None if that takes little of the unit's time, or less than conflicts of banks.
    """
    if unit == SHARED:
        whole, part = judged.whole, judged.parts.get(SHARED, 0.0)
        extra = sum(one.extra_wavefronts for one in judged.requests)
        needed = max(MIN_NOTABLE * part * whole.sm_cycles / judged.slowdown, whole.work.conflict_cycles - extra)
        return worst_of(judged.requests) if part >= MIN_NOTABLE and extra >= needed else None
    return _spread_load(judged) if unit == L2_TO_SM else None


def _spread_load(judged: _Judged) -> Requests | None:
    """Return the load that touches most sectors beyond those it needs, if all loads together touch many of them."""
    loads = [one for one in judged.requests if one.kind == "load"]
    return worst_of(loads) if is_spread(loads) else None


def _scattered(judged: _Judged) -> Limit | None:
    """Judge shared memory and L1 if accesses at unknown addresses may make them the limit."""
    dram = judged.light.dram
    if dram is None or {SHARED, DRAM}.intersection(as_busy(judged.parts)):
        return None
    part = judged.parts.get(SHARED, 0.0)
    most = part + judged.slowdown * dram.scattered / judged.whole.sm_cycles
    if most <= max(*judged.parts.values(), LIMITING):
        return None
    return judged.not_known(
        f"shared memory and L1 are busy for {percent(part)} to {percent(min(most, 1.0))} of the time, as addresses "
        f"depend on loaded data; of what is known, {_nearest(judged)}"
    )


def _named(units: Sequence[str], parts: Mapping[str, float]) -> str:
    """Return units with the part of the first, such as ``tensor cores 75 %``."""
    return f"{' and '.join(units)} {100 * parts[units[0]]:.0f} %"


def as_busy(parts: Mapping[str, float]) -> list[str]:
    """Return the busiest unit, and those that are nearly as busy."""
    most = max(parts.values())
    found = [unit for unit, part in parts.items() if part >= max(most - _NEAR, _POSSIBLE)]
    return sorted(found, key=lambda unit: -parts[unit])


def _with_parts(units: Sequence[str], parts: Mapping[str, float], work: Work, more: str = "") -> str:
    """Return units with their parts, such as ``the tensor cores (at least 64.1 % of peak)``.

    ``more`` is added to the first.
    """
    first, *others = (f"{percent(parts[unit])} of peak" for unit in units)
    shares = [f"at least {first}{more}", *others]
    return " and ".join(f"{_name(unit, work)} ({share})" for unit, share in zip(units, shares, strict=True))


def _name(unit: str, work: Work) -> str:
    if unit == FP32 and work.integer_multiplications > max(work.multiplications, work.additions):
        return "integer multiplication in the fp32 units"
    return UNIT_NAMES[unit]


def _memory(judged: _Judged) -> Limit | None:
    """Judge DRAM by its upper bound.

    Memory that is accessed again may or may not hit the L2, and the addresses of a gather are unknown.
    """
    dram = judged.light.dram
    if dram is None or dram.streamed_bytes is None:
        return None
    most = judged.dram_part(dram, dram.streamed_bytes)
    elsewhere = judged.dram_part(dram, dram.streamed_bytes - dram.unknown_bytes)
    least = judged.parts.get(DRAM, 0.0)
    other_parts = [part for unit, part in judged.parts.items() if unit != DRAM]
    if most < LIMITING or max(other_parts) > _POSSIBLE:
        return None
    if dram.fits_l2 and not dram.unknown:
        return _memory_in_l2(judged, judged.dram_part(dram, dram.least_bytes), judged.dram_part(dram, dram.once_bytes))
    if dram.unknown and most > 1:
        return judged.not_known(
            f"DRAM would take {percent(most)} of the time for all that was requested, so some of it hit the L2; how "
            f"much is unknown, as addresses depend on loaded data; of what is known, {_nearest(judged)}"
        )
    if dram.unknown and (elsewhere < LIMITING or dram.fits_l2):
        return judged.not_known(
            f"DRAM may be at {percent(least)} to {percent(most)} of peak: addresses depend on loaded data, so it is "
            f"unknown how much hit the L2; of what is known, {_nearest(judged)}"
        )
    text = f"DRAM or the L2, most likely (DRAM at {percent(least)} to {percent(min(most, 1.0))} of peak: data that is "
    text += "read again, or at unknown addresses, may hit the L2)"
    return judged.limit(_DRAM_OR_L2, text, DRAM, L2)


def _memory_in_l2(judged: _Judged, least: float, most: float) -> Limit | None:
    """Judge memory of which all may be in the L2 when the launch begins.

    The parts are DRAM's if nothing is: the smallest if the L2 keeps what is written, the largest if it keeps nothing of
    that. An L2 that was filled in this time is as busy as DRAM, or busier (H100).
    """
    if most < LIMITING:
        return None
    if least > MAX_POSSIBLE:
        return judged.not_known(
            f"DRAM would take {percent(least)} of the time, so some of the data was in the L2, whose part is unknown; "
            f"of what is known, {_nearest(judged)}"
        )
    text = f"DRAM or the L2, most likely (DRAM at up to {percent(min(most, 1.0))} of peak, unless the L2 had the data "
    text += "already)"
    if load := _spread_load(judged):
        text += f"; {load.text}"
    return judged.limit(_DRAM_OR_L2, text, DRAM, L2)


def _l2(judged: _Judged) -> Limit | None:
    """Judge the L2 and DRAM if they may be the busiest units: types do not show all that they have to do."""
    part, dram = judged.parts.get(L2_TO_SM, 0.0), judged.light.dram
    if part >= _NOTABLE_L2:
        return judged.not_known(
            f"the L2 is busy for at least {percent(part)} of the time, and longer with writes and with what DRAM "
            "delivers, which only counters show"
        )
    if dram is None or (most := judged.dram_part(dram, dram.once_bytes)) < LIMITING:
        return None
    return judged.not_known(
        f"DRAM would take {percent(most)} of the time if the L2 had nothing of what is accessed; of what is known, "
        f"{_nearest(judged)}"
    )


def _few_sms(judged: _Judged) -> Limit | None:
    waves = judged.summary.waves
    if waves is None or not judged.device_sms or waves.sms >= _MIN_SMS * judged.device_sms:
        return None
    if waves.ctas >= judged.device_sms:
        # The grid has a CTA for each SM, so it is not the reason.
        return None
    text = f"the grid: {counted(waves.ctas, 'CTA')} on {waves.sms} of {judged.device_sms} SMs; on these, "
    text += _nearest(judged)
    return judged.limit("grid", text)


def _idle(judged: _Judged) -> Limit | None:
    """Judge SMs without work, unless the others keep DRAM busy, which serves all of them."""
    idle = sms_without_work(judged.summary, judged.device_sms)
    if idle is None or judged.parts.get(DRAM, 0.0) >= LIMITING:
        return None
    return judged.limit(IDLE, f"{idle}; on those that have one, {_nearest(judged)}")


def sms_without_work(summary: LaunchSummary, device_sms: int | None) -> str | None:
    """Return how many SMs have a CTA on average, and what the others do; None if enough have one."""
    idle = summary.idle
    if idle is None:
        return None
    sms = max(device_sms or 0, idle.sms)
    used = idle.sms / sms
    if idle.work_share * used >= _MIN_SMS:
        return None
    others = {
        "never get one": 1 - used,
        "wait for their first": used * idle.before_share,
        "have none between two": used * idle.between_share,
        "are done": used * idle.after_share,
    }
    reasons = [f"{what} ({percent(share)})" for what, share in others.items() if share >= MIN_NOTABLE]
    average = idle.work_share * idle.sms
    return f"SMs without work: on average, {average:.1f} of {sms} SMs have a CTA; the others {' or '.join(reasons)}"


def _at_roof_in_a_loop(judged: _Judged) -> Limit | None:
    found = busy_loop(judged.summary, judged.light)
    if found is None:
        return None
    loop, share = found
    units = as_busy(loop.parts)
    text = f"{_with_parts(units, loop.parts, loop.work)} in {judged.name_of(loop)}, {percent(share)} of the kernel's "
    text += f"time; {percent(judged.parts[loop.unit])} over the whole kernel"
    return judged.limit(_named(units, loop.parts), text, *units)


def busy_loop(summary: LaunchSummary, light: SpeedOfLight) -> tuple[Roof, float] | None:
    """Return the longest loop that keeps a unit of the SM busy, with its share of the kernel's time.

    None if there is no such loop, or if it takes less than half of the time.
    """
    whole = whole_roof(summary, light)
    loops = [
        roof
        for roof in light.roofs
        if _kind_of(summary, roof) == ScopeKind.LOOP and roof.part >= LIMITING and roof.unit != DRAM
    ]
    if whole is None or not loops:
        return None
    loop = max(loops, key=lambda roof: roof.sm_cycles)
    share = loop.sm_cycles / whole.sm_cycles
    return (loop, share) if share >= _POSSIBLE else None


def _two_units(judged: _Judged) -> Limit | None:
    """Judge two units that alternate, as the instructions of one warp use them one after the other."""
    first, second = [unit for unit in judged.busiest if unit in (TENSOR, SPECIAL, FP32)][:2]
    together = judged.parts[first] + judged.parts[second]
    if together < MIN_TOGETHER or judged.parts[second] < MIN_NOTABLE:
        return None
    text = f"{UNIT_NAMES[first]} and {UNIT_NAMES[second]} in turn ({percent(judged.parts[first])} and "
    text += f"{percent(judged.parts[second])} of peak): without overlap they take {percent(together)} of the time"
    return judged.limit(f"{first} and {second} in turn", text, first, second)


def _impossible(judged: _Judged) -> Limit:
    """Return that the limit is unknown: a unit with impossible counts may be the limit, if no other one is."""
    return judged.not_known(
        f"the counts or the cycles are wrong, as by them {_would_be_busy(judged.whole)} of the time; of the other "
        f"units, {_nearest(judged)}"
    )


def _left_out(limit: Limit, whole: Roof) -> Limit:
    text = f"{limit.text}; ignores impossible counts, by which {_would_be_busy(whole)} of the time"
    return replace(limit, text=text)


def _would_be_busy(whole: Roof) -> str:
    return " and ".join(
        f"{UNIT_NAMES[unit]} would be busy for {percent(part)}" for unit, part in whole.impossible.items()
    )


def _exchanges(judged: _Judged) -> Limit | None:
    """Judge exchanges between threads: types do not show how many of their bytes go through shared memory.

    The machine code shows it, but not how long conflicts of banks take.
    """
    possible = judged.light.exchanges
    text = "threads exchange elements (reductions, scans, layout conversions, dots without tensor cores), "
    if judged.code is not None and judged.code.unknown_share <= MIN_NOTABLE:
        if (found := _conflicts(judged)) or not judged.may_conflict or possible < _NOTABLE_EXCHANGES:
            return found
        return judged.not_known(f"{text}and only counters show how long the banks conflict; {_nearest(judged)}")
    if possible < _NOTABLE_EXCHANGES or possible < max(judged.parts.values()):
        return None
    text += f"which may keep shared memory busy for {percent(min(possible, 1.0))} of the time, or longer where its "
    text += "banks conflict; of what is known, "
    return judged.not_known(text + _nearest(judged))


def _conflicts(judged: _Judged) -> Limit | None:
    """Judge shared memory and L1 if they are the busiest unit: instructions do not show how long conflicts take.

    Where there can be none, they are no busier than their bound.
    """
    part = judged.parts.get(SHARED, 0.0)
    if not judged.may_conflict or part < _NOTABLE_EXCHANGES or part < max(judged.parts.values()):
        return None
    return judged.not_known(
        f"shared memory and L1 are busy for at least {percent(part)} of the time, and longer where banks conflict or "
        "unknown addresses are apart, which only counters show"
    )


def _unknown_accesses(judged: _Judged) -> Limit | None:
    """Judge accesses to memory of unknown number, for which there is no upper bound of bytes."""
    dram = judged.light.dram
    if dram is None or dram.streamed_bytes is not None:
        return None
    return judged.not_known(
        "the number of some memory accesses is unknown, as it depends on loaded data or a called function (--at iter "
        f"counts the iterations of loops); of what is known, {_nearest(judged)}"
    )


_NOT_KNOWN = "not known"
_DRAM_OR_L2 = "DRAM or L2, most likely"
IDLE = "SMs without work"
UNCOALESCED = "uncoalesced access"


def _waits(judged: _Judged) -> Limit:
    """Return latency as the limit, or what the evidence does not show."""
    if judged.code is not None and judged.code.unknown_share > MIN_NOTABLE:
        return judged.not_known(
            f"how often {percent(judged.code.unknown_share)} of its instructions are executed is unknown; of what is "
            f"known, {_nearest(judged)}"
        )
    atomics = " (perhaps of its atomic operations)" if judged.light.atomics else ""
    text = f"latency{atomics}{_hidden(judged)}: {_nearest(judged)}"
    if uncoalesced := _uncoalesced(judged, SHARED):
        text += f"; {uncoalesced.text}"
    dram = judged.light.dram
    if dram and not dram.fits_l2:
        text += f"; moving its bytes would take {short_time(dram.least_ns)}"
    return judged.limit("latency", text)


def _hidden(judged: _Judged) -> str:
    """Return what may limit the launch without any evidence of it; empty if nothing may."""
    if judged.code is None:
        return ", or instructions that TTGIR does not show"
    return ", or conflicts of memory accesses, which only counters show" if judged.may_conflict else ""


def _nearest(judged: _Judged) -> str:
    notable = [unit for unit in judged.busiest if judged.parts[unit] >= MIN_NOTABLE][:2]
    if not notable:
        most = judged.parts[judged.busiest[0]]
        return f"no unit is busy for more than {percent(most)} of the time" if most >= _MIN_SHOWN else "no unit is busy"
    names = " and ".join(f"{UNIT_NAMES[unit]} ({percent(judged.parts[unit])})" for unit in notable)
    return f"the busiest {'units are' if len(notable) > 1 else 'unit is'} {names}"


def _loops(judged: _Judged) -> Iterator[Roof]:
    return (roof for roof in judged.light.roofs if _kind_of(judged.summary, roof) == ScopeKind.LOOP)


def _busiest_loop(judged: _Judged, unit: str) -> Roof | None:
    loops: Sequence[Roof] = [roof for roof in _loops(judged) if roof.unit == unit]
    return max(loops, key=lambda roof: roof.sm_cycles, default=None)

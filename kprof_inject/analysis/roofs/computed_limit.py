"""Limit of a launch without counters: the unit that is busiest by TTGIR and machine code, or another cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from kprof_inject.analysis.roofs.coalescing import Requests
from kprof_inject.analysis.roofs.limits import (
    DRAM,
    IDLE,
    LIMITING,
    MIN_NOTABLE,
    NOT_KNOWN,
    NOTABLE_COST_PERCENT,
    POSSIBLE,
    UNCOALESCED,
    UNIT_NAMES,
    CodeBounds,
    JudgedLaunch,
    Limit,
    as_busy,
    busy_loop,
    few_sms,
    memory_wait_limit,
    named,
    sms_without_work,
    units_in_turn,
    whole_roof,
)
from kprof_inject.analysis.roofs.memory_limits import (
    busy_l2,
    busy_memory,
    empty_l2,
    exchanges,
    looked_up_lines,
    may_be_busier,
    scattered_accesses,
    uncoalesced_access,
    unknown_accesses,
)
from kprof_inject.analysis.roofs.operation_work import Work
from kprof_inject.analysis.roofs.rates import FP32, ISSUE, L2, L2_TO_SM, SHARED
from kprof_inject.analysis.roofs.speed_of_light import MAX_POSSIBLE, Roof, SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import percent, short_time, size_text
from kprof_inject.timeline.trust import Overhead


def limit_of(
    summary: LaunchSummary,
    light: SpeedOfLight,
    device_sms: int | None,
    overhead: Overhead | None = None,
    code: CodeBounds | None = None,
    requests: Sequence[Requests] = (),
    clean_ns: float | None = None,
) -> Limit:
    """Determine what limits a launch.

    ``device_sms`` is the number of the device's SMs. ``overhead`` is the measured cost of the records, if any: where it
    is certain, the launch is judged by its time without them, which is ``clean_ns`` if it is known. ``code`` is what
    the machine code shows, in the same cycles as ``light``; None if it is unknown. ``requests`` are those of loads and
    stores.
    """
    whole = whole_roof(summary, light)
    has_unknown = light.unknown or (light.dram and light.dram.streamed_bytes is None)
    if whole is None or (light.missing and has_unknown):
        if waits := memory_wait_limit(summary):
            return waits
        why = "the kernel's function was not recorded; add --at func"
        if light.missing:
            why = str(light.missing)
        elif light.unknown:
            why = "how often its operations are executed is unknown, as that depends on loaded data"
        if idle := sms_without_work(summary, device_sms):
            return Limit(IDLE, (), f"{idle}; what limits those that have one is not known: {why}", {})
        return Limit(NOT_KNOWN, (), why, {}, is_known=False)
    slowdown = 1.0
    if overhead and (overhead.low_percent > NOTABLE_COST_PERCENT or (overhead.is_measurable and overhead.percent < 0)):
        # The lower end of the interval, as parts are lower bounds.
        slowdown = max(1 + overhead.low_percent / 100, 0.0)
    # The share of the launch's time in which the device's SMs have a CTA, on average.
    shared = 1.0
    if summary.idle is not None:
        shared = summary.idle.work_share * summary.idle.sms / max(device_sms or 0, summary.idle.sms)
    if slowdown > 1 and clean_ns:
        # Part of the cost is before the first CTA and after the last one.
        slowdown = max(min(slowdown, summary.duration_ns / clean_ns), 1.0)
    # SMs need not spend on work what the launch takes longer.
    slowdown_of_sms = max(shared * slowdown, 1.0) if slowdown > 1 else slowdown
    if slowdown < 1:
        light = replace(light, roofs=tuple(roof.without_slowdown(slowdown) for roof in light.roofs))
    if slowdown > 1 and light.resident_cycles > whole.sm_cycles:
        # The overhead is relative to the time in which CTAs are on the SMs, which includes writing out their records.
        whole = whole.without_slowdown(whole.sm_cycles / light.resident_cycles)
    light = replace(light, roofs=tuple(_of_the_launch(roof, shared) for roof in light.roofs))
    whole = _of_the_launch(whole, shared)
    of_code = code.parts if code else {}
    bounds = {
        unit: max(whole.parts.get(unit, 0.0), of_code.get(unit, 0.0))
        for unit in dict.fromkeys([*whole.parts, *of_code])
    }
    of_whole_time = {L2_TO_SM: bounds.pop(L2_TO_SM, 0.0), **dram_part(summary, light)}
    parts = {unit: min(slowdown_of_sms * part, 1.0) for unit, part in bounds.items()}
    parts |= {unit: min(slowdown * part, 1.0) for unit, part in of_whole_time.items()}
    judged = JudgedLaunch(summary, light, whole, parts, device_sms, slowdown, slowdown_of_sms, code, requests)
    return judged.without_records(_limit(judged))


def _of_the_launch(roof: Roof, share: float) -> Roof:
    """Return the roof with the L2's part of the launch's whole time, as it serves all SMs and rests if some do."""
    return replace(roof, parts={**roof.parts, L2_TO_SM: share * roof.parts.get(L2_TO_SM, 0.0)})


def _limit(judged: JudgedLaunch) -> Limit:
    found = _first(judged, _memory_waits, _few_sms, _idle, _at_roof, busy_memory, _at_roof_in_a_loop, _two_units)
    if judged.whole.impossible:
        parts = judged.whole.impossible.items()
        busy = " and ".join(f"{UNIT_NAMES[unit]} would be busy for {percent(part)}" for unit, part in parts)
        if found:
            return replace(found, text=f"{found.text}; ignores impossible counts, by which {busy} of the time")
        # A unit with impossible counts may be the limit, if no other one is.
        return judged.not_known(
            f"the counts or the cycles are wrong, as by them {busy} of the time; of the other units, {judged.nearest}"
        )
    unseen = _first(judged, looked_up_lines, exchanges, scattered_accesses, unknown_accesses, busy_l2, empty_l2)
    return found or unseen or _waits(judged)


def _memory_waits(judged: JudgedLaunch) -> Limit | None:
    """Judge waits for memory, unless those that do not wait keep a unit busy."""
    found = memory_wait_limit(judged.summary) if judged.parts[judged.busiest[0]] < LIMITING else None
    return found and replace(found, parts=judged.parts)


def _first(judged: JudgedLaunch, *judges: Callable[[JudgedLaunch], Limit | None]) -> Limit | None:
    return next((limit for judge in judges if (limit := judge(judged))), None)


def dram_part(summary: LaunchSummary, light: SpeedOfLight) -> dict[str, float]:
    """Return DRAM's part; empty if it exceeds all of the time, as then an unknown part of the bytes hit the L2."""
    part = light.dram.min_part(summary.duration_ns) if light.dram else 0.0
    return {DRAM: min(part, 1.0)} if 0 < part <= MAX_POSSIBLE else {}


def _at_roof(judged: JudgedLaunch) -> Limit | None:
    first = judged.busiest[0]
    # Without records, the launch may only take longer because the clock was lower.
    part = judged.parts[first] / min(judged.slowdown, 1.0)
    # DRAM's part counts each byte once, and its peak cannot be reached.
    if part < (POSSIBLE if first == DRAM else LIMITING):
        return None
    if scattered := scattered_accesses(judged):
        return scattered
    units = as_busy(judged.parts) or [first]
    scopes = judged.summary.scopes
    loops = (one for one in judged.light.roofs if scopes[one.index].kind == ScopeKind.LOOP and one.unit == units[0])
    loop = max(loops, key=lambda roof: roof.sm_cycles, default=None)
    more = f", {percent(loop.part)} in {judged.name_of(loop)}" if loop and loop.part > judged.parts[units[0]] else ""
    text = _with_parts(units, judged.parts, judged.whole.work, more)
    uncoalesced = next((one for unit in units if (one := uncoalesced_access(judged, unit))), None)
    if uncoalesced and DRAM not in units:
        return judged.limit(UNCOALESCED, f"{text}, by uncoalesced access: {uncoalesced.text}", *units)
    name = named(units, judged.parts)
    if DRAM in units and L2_TO_SM not in units:
        # The L2 passes on what DRAM delivers: on an H100, it was from 8 points less busy than DRAM to 16 points more.
        name, text, units = f"{name}, and L2", f"{text}, and the L2, which is about as busy", [*units, L2]
    if units[0] == DRAM and judged.light.dram:
        text += f": the launch has to move {size_text(judged.light.dram.least_bytes)}"
    if busier := may_be_busier(judged, judged.parts[first]):
        return judged.limit(f"{name}, or DRAM or L2", f"{text}{busier}", *units, DRAM, L2)
    return judged.limit(name, text, *units)


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


def _few_sms(judged: JudgedLaunch) -> Limit | None:
    grid = few_sms(judged.summary, judged.device_sms)
    return judged.limit("grid", f"{grid}; on these, {judged.nearest}") if grid else None


def _idle(judged: JudgedLaunch) -> Limit | None:
    """Judge SMs without work, unless the others keep DRAM busy, which serves all of them."""
    idle = sms_without_work(judged.summary, judged.device_sms)
    if not idle or judged.parts.get(DRAM, 0.0) >= LIMITING:
        return None
    return judged.limit(IDLE, f"{idle}; on those that have one, {judged.nearest}")


def _at_roof_in_a_loop(judged: JudgedLaunch) -> Limit | None:
    found = busy_loop(judged.summary, judged.light)
    if found is None:
        return None
    loop, share = found
    units = as_busy(loop.parts)
    text = f"{_with_parts(units, loop.parts, loop.work)} in {judged.name_of(loop)}, {percent(share)} of the kernel's "
    text += f"time; {percent(judged.parts[loop.unit])} over the whole kernel"
    return judged.limit(named(units, loop.parts), text, *units)


def _two_units(judged: JudgedLaunch) -> Limit | None:
    if (found := units_in_turn(judged.parts)) is None:
        return None
    first, second, text = found
    text += f": without overlap they take {percent(judged.parts[first] + judged.parts[second])} of the time"
    return judged.limit(f"{first} and {second} in turn", text, first, second)


def _waits(judged: JudgedLaunch) -> Limit:
    """Return latency as the limit, or what the evidence does not show."""
    if judged.code is not None and judged.code.unknown_share > MIN_NOTABLE:
        return judged.unclear(
            f"how often {percent(judged.code.unknown_share)} of its instructions are executed is unknown"
        )
    if branches := _branches(judged):
        return branches
    atomics = " (perhaps of its atomic operations)" if judged.light.atomics else ""
    hidden = ", or instructions that TTGIR does not show" if judged.code is None else ""
    name, text = "latency", f"latency{atomics}{hidden}: {judged.nearest}"
    units = as_busy(judged.parts) if judged.parts[judged.busiest[0]] >= POSSIBLE else []
    if units:
        # Lower bounds: the launch may be at a roof.
        name = f"latency, or {named(units, judged.parts)}"
    if uncoalesced := uncoalesced_access(judged, SHARED):
        text += f"; {uncoalesced.text}"
    dram = judged.light.dram
    if dram and not dram.fits_l2:
        text += f"; moving its bytes would take {short_time(dram.least_ns)}"
    return judged.limit(name, text, *units)


def _branches(judged: JudgedLaunch) -> Limit | None:
    """Judge instructions that only some ways from a branch execute: they may keep a unit busy."""
    if judged.code is None or judged.code.most is None:
        return None
    most = {unit: judged.max_part_of(unit) for unit in judged.code.most if unit != SHARED}
    unit = max(most, key=lambda one: most[one], default=ISSUE)
    if most.get(unit, 0.0) < LIMITING or judged.parts.get(unit, 0.0) >= most[unit]:
        return None
    return judged.unclear(
        f"{UNIT_NAMES[unit]} would be busy for {percent(judged.parts.get(unit, 0.0))} to {percent(most[unit])} of the "
        "time, depending on which branches warps take"
    )

"""Launches without counters: lower bounds of their units' parts, and limits by DRAM, the L2, shared memory and L1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kprof_inject.analysis.limits.coalescing import Requests, is_spread, worst_of
from kprof_inject.analysis.limits.limit import (
    LIMITING,
    MIN_NOTABLE,
    NEAR,
    POSSIBLE,
    UNCOALESCED,
    Bounds,
    CodeBounds,
    Judged,
    Limit,
    as_busy,
    dram_part,
    memory_wait_limit,
    spread_load,
)
from kprof_inject.analysis.limits.memory import DramBound
from kprof_inject.analysis.limits.rates import DRAM, L2, L2_TO_SM, SHARED
from kprof_inject.analysis.limits.speed_of_light import MAX_POSSIBLE, Roof, SpeedOfLight
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import percent

# The L2's part counts what SMs read. On an H100, it was 1.0 to 1.9 times as busy, with writes and what DRAM delivers:
# for 15 kernels with a part of 0.45 or more, Nsight Compute counted 1.33 times as much in the median. What SMs write,
# or change by atomic operations, is counted once more.
_NOTABLE_L2, _USUAL_L2 = 0.4, 1.33
# Lines of 128 bytes that the L2 looks up for an SM in a cycle: on an H100, Nsight Compute's ``lts__t_tag_requests``
# would reach its peak at 70 to 74 lines in a cycle of 132 SMs.
_LINES_OF_SM = 0.55
# Smaller exchanges cannot hide what limits a launch.
_NOTABLE_EXCHANGES = 0.3
DRAM_OR_L2 = "DRAM or L2, most likely"


def judged_by_bounds(
    summary: LaunchSummary,
    light: SpeedOfLight,
    whole: Roof,
    device_sms: int | None,
    slowdown: float,
    code: CodeBounds | None,
    requests: Sequence[Requests],
) -> Judged:
    """Return a launch without counters, with parts of the time without records."""
    idle, sms_share = summary.idle, 1.0
    if idle is not None:  # the share of the launch's time in which the device's SMs have a CTA, on average
        sms_share = idle.work_share * idle.sms / max(device_sms or 0, idle.sms)
    # SMs need not spend on work what the launch takes longer.
    slowdown_of_sms = max(sms_share * slowdown, 1.0) if slowdown > 1 else slowdown
    if slowdown < 1:
        light = replace(light, roofs=tuple(roof.without_slowdown(slowdown) for roof in light.roofs))
    if slowdown > 1 and light.resident_cycles > whole.sm_cycles:
        # The overhead is relative to the time in which CTAs are on the SMs, which includes writing out their records.
        whole = whole.without_slowdown(whole.sm_cycles / light.resident_cycles)
    roofs = tuple(_of_the_launch(roof, sms_share) for roof in light.roofs)
    light = replace(light, roofs=roofs, l2_writes=sms_share * light.l2_writes)
    whole = _of_the_launch(whole, sms_share)
    of_code = code.parts if code else {}
    units = dict.fromkeys([*whole.parts, *of_code])
    least = {unit: max(whole.parts.get(unit, 0.0), of_code.get(unit, 0.0)) for unit in units}
    of_whole_time = {L2_TO_SM: least.pop(L2_TO_SM, 0.0), **dram_part(summary, light)}
    parts = {unit: min(slowdown_of_sms * part, 1.0) for unit, part in least.items()}
    parts |= {unit: min(slowdown * part, 1.0) for unit, part in of_whole_time.items()}
    bounds = Bounds(summary, light, whole, slowdown, slowdown_of_sms, code, requests)
    return Judged(parts, summary.waves, idle, device_sms, memory_wait_limit(summary), bounds=bounds)


def _of_the_launch(roof: Roof, share: float) -> Roof:
    # The L2 serves all SMs, and rests if some do.
    return replace(roof, parts={**roof.parts, L2_TO_SM: share * roof.parts.get(L2_TO_SM, 0.0)})


Judge = Callable[[Judged], Limit | None]


def by_bounds(judge: Callable[[Judged, Bounds], Limit | None]) -> Judge:
    """Return a judge that returns None if there are counters."""
    return lambda launch: judge(launch, launch.bounds) if launch.bounds else None


def _by_dram(judge: Callable[[Judged, Bounds, DramBound], Limit | None]) -> Judge:
    return by_bounds(lambda judged, bounds: judge(judged, bounds, dram) if (dram := bounds.light.dram) else None)


@_by_dram
def busy_memory(judged: Judged, bounds: Bounds, dram: DramBound) -> Limit | None:
    """Judge DRAM by its upper bound: repeated accesses may hit the L2, and the addresses of a gather are unknown."""
    if dram.streamed_bytes is None:
        return None
    most = bounds.dram_part(dram, dram.streamed_bytes)
    elsewhere = bounds.dram_part(dram, dram.streamed_bytes - dram.unknown_bytes)
    least = judged.parts.get(DRAM, 0.0)
    others = max(part for unit, part in judged.parts.items() if unit != DRAM)
    # The upper bound of DRAM's part from which it may limit a launch whose other units have these parts.
    needed = max(LIMITING, others + NEAR) if others > POSSIBLE else LIMITING
    if dram.fits_l2 and not dram.unknown:
        return _memory_in_l2(judged, bounds, dram, needed)
    if most < needed:
        return None
    if dram.unknown and most > 1:
        text = f"DRAM would take {percent(most)} of the time for all that was requested, so some of it hit the L2; how "
        return judged.unclear(f"{text}much is unknown, as {dram.unknown_reason}")
    if dram.unknown and (elsewhere < LIMITING or dram.fits_l2):
        text = f"DRAM may be at {percent(least)} to {percent(most)} of peak: {dram.unknown_reason}, so it is "
        return judged.unclear(f"{text}unknown how much hit the L2")
    text = f"DRAM or the L2, most likely (DRAM at {percent(least)} to {percent(min(most, 1.0))} of peak: data that is "
    text += "read again, or at unknown addresses, may hit the L2)"
    return judged.limit(DRAM_OR_L2, text, DRAM, L2)


def _memory_in_l2(judged: Judged, bounds: Bounds, dram: DramBound, needed: float) -> Limit | None:
    # DRAM's part is smallest if the L2 keeps what is written, and largest if it keeps nothing of that. An L2 that was
    # filled in this time is as busy as DRAM, or busier (H100).
    least, most = bounds.dram_part(dram, dram.least_bytes), bounds.dram_part(dram, dram.once_bytes)
    if most < needed:
        return None
    reason = f"DRAM at up to {percent(min(most, 1.0))} of peak, unless the L2 had the data already"
    if least > MAX_POSSIBLE:
        reason = f"DRAM would take {percent(least)} of the time, so the L2 had some of the data already"
    text = f"DRAM or the L2, most likely ({reason})"
    if load := spread_load(bounds):
        text += f"; {load.text}"
    return judged.limit(DRAM_OR_L2, text, DRAM, L2)


def may_be_busier(bounds: Bounds, part: float) -> str:
    """Return a clause if DRAM or the L2 may be busier than a unit with this part."""
    dram = bounds.light.dram
    if dram is None or not dram.fits_l2 or (most := bounds.dram_part(dram, dram.once_bytes)) < part:
        return ""
    return f"; or DRAM or the L2: DRAM at up to {percent(min(most, 1.0))} of peak, unless the L2 had the data already"


@by_bounds
def _looked_up_lines(judged: Judged, bounds: Bounds) -> Limit | None:
    """Judge the L2 if uncoalesced accesses may keep it busy: it looks up each line that a request touches."""
    if not judged.device_sms or not is_spread(bounds.requests):
        return None
    kinds = ("store", "load")  # all stores reach the L2; loads may hit the L1
    least, loads = (sum(one.lines * one.requests for one in bounds.requests if one.kind == kind) for kind in kinds)
    each = bounds.slowdown_of_sms / bounds.whole.sm_cycles / _LINES_OF_SM
    most = each * (least + loads)
    if most < max(LIMITING, *judged.parts.values()) or (worst := worst_of(bounds.requests)) is None:
        return None
    lines = f"it looks up lines for {percent(min(each * least, 1.0))} to {percent(min(most, 1.0))} of the time"
    if each * least < LIMITING / 2:
        text = f"the L2 may be the limit, by uncoalesced access, unless loads hit the L1: {lines}; {worst.text}"
        return judged.unclear(text)
    text = f"the L2, most likely, by uncoalesced access: {lines}; {worst.text}"
    return judged.limit(f"{UNCOALESCED}, most likely", text, L2)


@by_bounds
def _busy_l2(judged: Judged, bounds: Bounds) -> Limit | None:
    """Judge the L2 if it may be the busiest unit: types do not show all that it has to do."""
    read, written = judged.parts.get(L2_TO_SM, 0.0), bounds.slowdown * bounds.light.l2_writes
    if read + written < _NOTABLE_L2:
        return None
    if _USUAL_L2 * read + written >= max(LIMITING, *judged.parts.values()):
        more = "writes and what DRAM delivers add to that"
        if _USUAL_L2 * read < LIMITING:
            more = f"what they write adds some {percent(written)}, and what DRAM delivers adds to that"
        text = f"the L2, most likely (at least {percent(read)} of peak for what SMs read; {more})"
        return judged.limit("L2, most likely", text, L2)
    if read < _NOTABLE_L2:
        return None
    return judged.not_known(
        f"the L2 is busy for at least {percent(read)} of the time, and longer with writes and with what DRAM "
        "delivers, which only counters show"
    )


@_by_dram
def _empty_l2(judged: Judged, bounds: Bounds, dram: DramBound) -> Limit | None:
    """Judge DRAM if it would be busy, had the L2 nothing of what is accessed when the launch begins."""
    if (most := bounds.dram_part(dram, dram.once_bytes)) < LIMITING:
        return None
    return judged.unclear(f"DRAM would take {percent(most)} of the time if the L2 had nothing of what is accessed")


@_by_dram
def scattered_accesses(judged: Judged, bounds: Bounds, dram: DramBound) -> Limit | None:
    """Judge shared memory and L1 if accesses at unknown addresses may make them the limit."""
    if {SHARED, DRAM}.intersection(as_busy(judged.parts)):
        return None
    part = judged.parts.get(SHARED, 0.0)
    most = part + bounds.slowdown_of_sms * dram.scattered / bounds.whole.sm_cycles
    if most <= max(*judged.parts.values(), LIMITING):
        return None
    busy = f"{percent(part)} to {percent(min(most, 1.0))} of the time"
    return judged.unclear(f"shared memory and L1 are busy for {busy}, as {dram.unknown_reason}")


@by_bounds
def _exchanges(judged: Judged, bounds: Bounds) -> Limit | None:
    """Judge exchanges between threads: types do not show how many of their bytes go through shared memory."""
    # The machine code shows it, but not how often banks conflict.
    is_counted = bounds.code is not None and bounds.code.unknown_share <= MIN_NOTABLE
    if is_counted and judged.parts[SHARED] < MIN_NOTABLE:
        return None
    possible = bounds.light.exchanges
    if possible < _NOTABLE_EXCHANGES or possible < max(judged.parts.values()):
        return None
    return judged.unclear(
        "threads exchange elements (reductions, scans, layout conversions, dots without tensor cores), which may keep "
        f"shared memory busy for {percent(min(possible, 1.0))} of the time, or longer where its banks conflict"
    )


@_by_dram
def _unknown_accesses(judged: Judged, _: Bounds, dram: DramBound) -> Limit | None:
    """Judge accesses to memory of unknown number, for which there is no upper bound of bytes."""
    if dram.streamed_bytes is not None:
        return None
    return judged.unclear(
        "the number of some memory accesses is unknown, as it depends on loaded data or a called function (--at iter "
        "counts the iterations of loops)"
    )


UNSEEN: tuple[Judge, ...] = (_looked_up_lines, _exchanges, scattered_accesses, _unknown_accesses, _busy_l2, _empty_l2)
"""Judges of work that types and machine code do not show, in their order."""

"""Conditions of a launch: SMs without a CTA, warps that wait for others, a short launch, and a low clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.findings.evidence import Evidence, launch_times
from kprof_inject.analysis.findings.finding import (
    MIN_SHARE,
    Finding,
    Results,
    all_ctas,
    cta_times,
    found,
    no_memory_waits,
    rule,
)
from kprof_inject.analysis.findings.loops import is_wait, time_of_a_warp_ns
from kprof_inject.analysis.limits.limit import LIMITING
from kprof_inject.analysis.limits.rates import FP32, TENSOR
from kprof_inject.analysis.summary import ScopeSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_records, missing_warps, unpaired_records
from kprof_inject.capture.edits import COLUMNS, COLUMNS_REVERSED, REVERSED
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, numbered, percent, ratio, short_time
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.partitions import shared_scopes
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import Ending, launch_duration_ns, queued_ns
from kprof_inject.ttgir.dialect import CALL
from kprof_inject.ttgir.ssa_values import definition_of, operand_names

# The last CTA to end must take 25 % longer than the median: if it only began late, it need not have more work. Warps of
# one CTA share an SM's units and differ by a few percent.
_NOTABLE = 1.25
_WAYS = {
    REVERSED: "those with the largest program ids (count down)",
    COLUMNS: "those with the smallest program_id(0), for all of axis 1 (swap the axes of the grid)",
    COLUMNS_REVERSED: "those with the largest program_id(0), for all of axis 1 (swap the axes of the grid, and count "
    "down)",
}
_MIN_OF_LONGEST_FIRST = 0.7  # an order that wins a smaller part of what the longest first would win is not worth naming
_MAX_CHAIN = 16
_MIN_LAUNCHING = 0.25  # of a longer launch, the kernel itself leaves more to win
_MIN_THROTTLED = 0.10  # the clock rate follows the load; any busy device runs up to 10 % below nominal
_POWER_HUNGRY = {TENSOR: 0.3, FP32: 0.5}  # units that draw much power from this utilization on
_MIN_WARPS = 3  # with two warps, a difference does not show which of them waits for the other
_MAX_RATIO = 100  # the shorter time is then mostly the cost of the records, so the ratio means nothing
# One thread runs these for its CTA or partition, and writes of scalars.
_OF_ONE_WARP = ("ttng.arrive_barrier", "ttng.async_tma_", "ttng.barrier_expect", "ttng.tc_gen5_")


@rule(no_memory_waits, all_ctas, uses_records=False, idle="SMs")
def low_fill(evidence: Evidence) -> Results:
    """Yield a grid that is too small for the device."""
    waves, device_sms = evidence.summary.waves, evidence.kernel.sm_count
    if device_sms is None:
        yield Unjudged("the capture does not say how many SMs the device has", "capture again with this version")
        return
    idle_sms = device_sms - waves.sms if waves and waves.ctas < device_sms else 0
    idle_share = idle_sms / device_sms
    if waves is None or idle_share < MIN_SHARE:
        return
    # With several CTAs, an SM also does more than it did with one.
    _, busiest = evidence.busiest_of_device
    most = max(idle_share, 1 - busiest) if busiest and waves.slots_per_sm > 1 else idle_share
    split = "split-K" if evidence.has_dots else "several CTAs for the work of one (a second kernel combines them)"
    text = f"the grid is too small for the device: {counted(waves.ctas, 'CTA')} on {waves.sms} of {device_sms} SMs; "
    text += f"{counted(idle_sms, 'SM')} ({percent(idle_share)}) {'is' if idle_sms == 1 else 'are'} idle"
    advice = f"launch more CTAs: smaller tiles, {split}, or several problems in one launch"
    figures = {"ctas": waves.ctas, "sms": waves.sms, "device_sms": device_sms}
    share, likely = (min(part, 1 - evidence.launching) for part in (most, idle_share))
    yield found(evidence, share, text, advice, figures, likely=likely)


@rule(cta_times, uses_records=False, idle="SMs")
def between_ctas(evidence: Evidence) -> Results:
    """Yield the time between CTAs on the same SM, without that in which records are copied: it is our overhead."""
    idle, waves, kernel = evidence.summary.idle, evidence.summary.waves, evidence.kernel
    if idle is None or waves is None or idle.gaps_won_share < MIN_SHARE:
        return
    if (kernel.with_records.ctas_per_sm or 0) < (kernel.clean.ctas_per_sm or 0):
        # Without records, another CTA may run in the gap.
        yield Unjudged("with records, fewer CTAs fit on an SM than without", "use a smaller --buffer-size")
        return
    text = f"SMs are idle between CTAs for {percent(idle.between_share)} of their time: "
    text += f"{counted(idle.gaps, 'gap')} of {short_time(idle.gap_ns)} on average; without gaps, the launch would take "
    text += f"{percent(idle.gaps_won_share)} less time"
    fewer = f"a persistent kernel: {waves.sms * waves.slots_per_sm} CTAs that each loop over tiles"
    if waves.slots_per_sm > 1:
        share = idle.gaps_won_share
        advice = f"launch fewer, larger CTAs, or {fewer}; check whether another kernel runs on the SMs in the gaps"
    else:
        # More CTAs also work while one waits: on an H200, a GEGLU with gaps of 19 % won 35 % by blocks of an eighth.
        share = max(idle.gaps_won_share, evidence.max_gain() if evidence.parts else 0.0)
        advice = "make room for more CTAs on an SM, which work in the gaps: smaller blocks with fewer warps, fewer "
        advice += f"registers, less shared memory; or launch {fewer}"
    figures = {"gaps": idle.gaps, "gap_ns": idle.gap_ns, "between_share": idle.between_share}
    yield found(evidence, share, text, advice, figures, likely=idle.gaps_won_share)


@rule(cta_times, uses_records=False, idle="SMs")
def tail(evidence: Evidence) -> Results:
    """Yield a last wave that leaves SMs idle."""
    waves, ending = evidence.summary.waves, evidence.summary.ending
    if waves is None or ending is None or ending.count_share < MIN_SHARE:
        return
    if waves.waves > 1:
        what = f"the last wave has only {counted(waves.last.ctas, 'CTA')}, on {waves.last.sms} of {waves.sms} SMs"
        even = f"the {waves.sms * waves.slots_per_sm} CTAs that run at once"
    else:
        fullest = f"{counted(ending.fullest_sms, 'SM')} {'runs' if ending.fullest_sms == 1 else 'run'}"
        what = f"{counted(waves.ctas, 'CTA')} do not divide evenly among {waves.sms} SMs: {fullest} "
        what += f"{ending.most_ctas}, the others finish earlier"
        even = f"the {waves.sms} SMs"
    text = f"{what}; spread evenly, the same work would take {percent(ending.count_share)} less time"
    advice = f"make the grid a multiple of {even}: other tile sizes, a persistent kernel, or split-K"
    figures = {"waves": waves.waves, "last_wave_ctas": waves.last.ctas, "last_wave_sms": waves.last.sms}
    yield found(evidence, ending.count_share, text, advice, figures)


@rule(cta_times, uses_records=False, idle="SMs")
def uneven_ctas(evidence: Evidence) -> Results:
    """Yield a long last CTA that leaves SMs idle, or other CTAs' slots of them."""
    timeline, summary, ending = evidence.timeline, evidence.summary, evidence.summary.ending
    # Times of CTAs and of their ends are accurate to one step of the timer.
    step_ns = timeline.clock.timer_step_ns
    if ending is None or ending.last_cta_ns - step_ns < _NOTABLE * ending.cta_ns:
        return
    idles = ending.uneven_share - step_ns / max(summary.duration_ns, 1) >= MIN_SHARE
    gains: dict[str, float] = {}
    if summary.waves and (idles or ending.longest_first_share >= MIN_SHARE):
        gains = gains_of_orders(timeline, summary.waves.slots_per_sm)
    # CTAs may differ by chance: if SMs do not idle, only an order of program ids wins.
    by_order = max(gains.values(), default=0.0)
    # Where memory limits the launch, CTAs take longer when others load more, whatever their program id.
    if not idles and (by_order < MIN_SHARE or evidence.busiest[1] >= LIMITING):
        return
    last = f"CTA {ending.last_cta} on SM {ending.last_sm}, the last to finish, takes"
    if ending.cta_ns <= step_ns:
        what = f"most CTAs exit immediately, and {last} {short_time(ending.last_cta_ns)}"
        advice = "do not launch CTAs without work; start the others first, or split them"
        share = max(ending.uneven_share, by_order)
    else:
        what = f"{last} {ratio(ending.last_cta_ns / ending.cta_ns)} as long as the median CTA "
        what += f"({short_time(ending.last_cta_ns)} against {short_time(ending.cta_ns)})"
        share, advice = _order_or_split(ending, gains)
        if alone := _by_last_cta(evidence):
            share, gains = ending.uneven_share, {}
            what += f", as only the last CTA to come runs what follows the atomic counter at {alone}"
            advice = "let all CTAs share that work: each adds its part by tl.atomic_add, or a second kernel does it"
    cost = f"SMs idle at the end for {percent(ending.uneven_share)} of the launch on average"
    if not idles:
        cost = f"the longest begin last; begun first, the launch would take {percent(by_order)} less time"
    # CTAs that shared their SM with fewer others at the end take longer if they begin first.
    likely = min(share, max(ending.uneven_share, share / min(summary.waves.slots_per_sm if summary.waves else 1, 2)))
    figures = {"last_cta": ending.last_cta, "last_cta_ns": ending.last_cta_ns, "median_cta_ns": ending.cta_ns, **gains}
    yield found(evidence, share, f"CTAs are uneven: {what}, and {cost}", advice, figures, likely=likely)


def gains_of_orders(timeline: Timeline, slots_per_sm: int) -> dict[str, float]:
    """Return the part by which a launch would be shorter, or longer, if its CTAs began in other orders, by name."""
    ctas, duration_ns = timeline.all_ctas, launch_duration_ns(timeline)
    columns, rows, _ = timeline.launch.grid
    ids = ctas["cta"].astype(np.int64)  # along x first, then y, then z
    orders = {REVERSED: np.argsort(-ids)}
    if columns > 1 and rows > 1:
        x, y, z = ids % columns, ids // columns % rows, ids // (columns * rows)
        orders |= {COLUMNS: np.lexsort((y, x, z)), COLUMNS_REVERSED: np.lexsort((-y, -x, z))}
    return {name: 1 - queued_ns(ctas[order], slots_per_sm) / duration_ns for name, order in orders.items()}


def _by_last_cta(evidence: Evidence) -> str:
    """Return the place of an atomic operation by which one CTA is chosen to run a loop; empty if there is none."""
    inside = (owner for loop in evidence.loops for owner in loop.ancestors())
    for branch in dict.fromkeys(one for one in inside if one.traits.regions == "branch"):
        pending = operand_names(branch)[:1]
        for _ in range(_MAX_CHAIN):
            made = definition_of(pending.pop(0), branch) if pending else None
            if made is None:
                break
            if made.traits.is_atomic:
                return evidence.place_of(made)
            pending += operand_names(made)
    return ""


def _order_or_split(ending: Ending, gains: Mapping[str, float]) -> tuple[float, str]:
    cta = f"CTA {ending.last_cta}"
    if ending.longest_first_share < MIN_SHARE:
        split = f"split the work of {cta}, which takes most of the launch whenever it begins"
        return ending.uneven_share, f"{split}; see why it has more than others"
    best = max(gains, key=lambda name: gains[name], default="")
    by_order = ending.longest_first_share if ending.uneven_share >= MIN_SHARE else gains[best]
    way = f": {_WAYS[best]}" if best and gains[best] >= _MIN_OF_LONGEST_FIRST * by_order else ""
    if by_order <= ending.uneven_share - MIN_SHARE:
        way += f" (and split them, for up to {percent(ending.uneven_share)})"
    return by_order, f"start the longest CTAs first{way}; see why {cta} has more work than others"


@rule(uses_records=False)
def short_launch(evidence: Evidence) -> Results:
    """Yield a launch of which an empty one takes a notable part, whatever the kernel does."""
    times_ns = launch_times(evidence.kernel.clean)
    if times_ns is None:
        return
    launch_ns, empty_ns = times_ns
    share = empty_ns / launch_ns
    if not _MIN_LAUNCHING <= share < 1:
        return
    text = f"the launch is short: an empty one takes {short_time(empty_ns)} of its {short_time(launch_ns)} "
    text += f"({percent(share)})"
    advice = "fuse it with the kernel before or after it, or do the work of several launches in one"
    figures, likely = {"launch_ns": launch_ns, "empty_ns": empty_ns}, share / 2  # the remaining kernel takes longer
    yield found(evidence, share, text, advice, figures, likely=likely)


def throttled(evidence: Evidence) -> Iterator[Finding]:
    """Yield a note if the clock was measured well below nominal, which is no rule: it advises nothing on the kernel."""
    summary = evidence.summary
    if summary.clock_source != ClockSource.FITTED or summary.nominal_mhz is None:
        return
    share = 1 - summary.clock_mhz / summary.nominal_mhz
    if share - summary.clock_error < _MIN_THROTTLED:
        return
    roofs = evidence.speed_of_light.roofs
    hungry = any(roof.parts.get(unit, 0) >= least for roof in roofs[:1] for unit, least in _POWER_HUNGRY.items())
    why = "likely limited by power" if hungry else "possibly limited by power, or still ramping up after a pause"
    text = f"the SMs ran at {summary.clock_mhz:.0f} of {summary.nominal_mhz:.0f} MHz, {percent(share)} below "
    text += f"their nominal clock: {why}"
    advice = "compare variants by cycles, not by time; check the power limit, or move fewer bytes, which saves power"
    figures = {"clock_mhz": summary.clock_mhz, "nominal_mhz": summary.nominal_mhz}
    yield found(evidence, share, text, advice, figures, likely=0.0, name="throttled")


@rule(idle="warps")
def imbalanced_warps(evidence: Evidence) -> Results:
    """Yield at most one finding, for the scope with the largest loss: all scopes around it show the imbalance too.

    Slow warps take longer in a scope, and also in the part of it that no inner scope covers: only in the latter, they
    may work while others wait elsewhere. If a barrier makes all warps take as long as the slowest, its own scope may
    show the imbalance, as the slowest warp waits the least. Warps are compared within a partition.
    """
    timeline, summary = evidence.timeline, evidence.summary
    if max(evidence.kernel.num_warps, len(timeline.warps)) < _MIN_WARPS:
        return
    if all(info.kind == ScopeKind.INSTANT for info in timeline.table.scopes):
        yield Unjudged("no scope was recorded", "add --at func --at loop")
        return
    if missing := missing_warps(timeline) if len(timeline.warps) < _MIN_WARPS else missing_records(timeline):
        yield missing
        return
    shared = shared_scopes(timeline.partitions)
    scopes = [
        (is_wait(info), scope)
        for index, (info, scope) in enumerate(zip(timeline.table.scopes, summary.scopes, strict=True))
        if info.kind != ScopeKind.INSTANT and index not in shared
    ]
    for waits in (False, True):
        some = (_finding(evidence, scope, waits) for is_waiting, scope in scopes if is_waiting is waits)
        if findings := [finding for finding in some if finding is not None]:
            yield max(findings, key=lambda finding: finding.share)
            return
    if incomplete := missing_warps(timeline) or unpaired_records(timeline):
        yield incomplete


def _finding(evidence: Evidence, scope: ScopeSummary, waits: bool) -> Finding | None:
    times_ns = -scope.warps.totals_ns if waits else scope.warps_self_ns
    above = _few_above(times_ns)
    if above is None:
        return None
    slow, others = scope.warps.ids[above], scope.warps.ids[~above]
    slow_ns, others_ns = float(times_ns[above].mean()), float(times_ns[~above].mean())
    if not waits:
        with_inner = _few_above(scope.warps.totals_ns)
        is_same = with_inner is not None and np.array_equal(above, with_inner)
        if not is_same or slow_ns < _NOTABLE * others_ns:
            return None
    alone = _work_of_one_warp(evidence, scope, waits)
    if alone is not None and not (alone and slow[0] == scope.warps.ids.min()):
        return None  # the warps' work is the same, so the difference is the hardware's
    whole_ns = time_of_a_warp_ns(evidence)
    share = min(float(times_ns.max() - times_ns.mean()) / whole_ns, 1.0)
    if share < MIN_SHARE:
        return None
    ctas = scope.cta_spread.groups if scope.cta_spread is not None else 1
    all_ran_it = ctas == evidence.summary.recorded_ctas
    in_each = "in each CTA" if all_ran_it else f"in each of {counted(ctas, 'CTA')} that ran it"
    few_ns, many_ns = abs(slow_ns) / ctas, abs(others_ns) / ctas
    few, many = numbered("warp", slow.tolist()), numbered("warp", others.tolist())
    name, source = scope.distinct_name, scope.source or "its source line is unknown"
    do, team = f"{few} {_verb('do', slow)}", ""
    if scope.partition is not None:
        team = f" of {'the ' if scope.partition.endswith('partition') else ''}{scope.partition}"
    if waits:
        text = f"{few} {_verb('arrive', slow)} last: {many} {_verb('wait', others)} for "
        text += f"{percent(-others_ns / whole_ns)} of their time in {name}, {few} for "
        text += f"{percent(-slow_ns / whole_ns)} ({short_time(many_ns)} against {short_time(few_ns)} {in_each})"
        look = f"record what comes before {name} ({source}) to see what {do} that the others do not"
    else:
        is_far = many_ns <= few_ns / _MAX_RATIO
        times = f"more than {_MAX_RATIO} x as long" if is_far else f"{ratio(few_ns / many_ns)} as long"
        text = f"{few} {_verb('take', slow)} {times} in {name} as the other {len(others)} warps"
        text += f"{team or ' of a CTA'} ({short_time(few_ns)} against {short_time(many_ns)} {in_each})"
        look = f"look at what {do} in {name} that the others do not ({source})"
    advice = f"{look}, and spread it over all warps{team}"
    if alone:
        text += f"; one warp runs {alone} for all"
        advice = "do that less often, with larger blocks, or in a partition of its own (warp_specialize)"
    figures: dict[str, float | str] = {"slow_warp_ids": ", ".join(map(str, slow.tolist()))}
    figures |= {"slow_warps": len(slow), "mean_ns": few_ns, "other_mean_ns": many_ns}
    return found(evidence, share, text, advice, figures, scope=scope.index)


def _work_of_one_warp(evidence: Evidence, scope: ScopeSummary, waits: bool) -> str | None:
    """Return an operation of the scope, or before a wait, that one warp runs for all.

    Empty if all warps do the same; None if they may differ, by masks or in foreign or unknown code.
    """
    if evidence.executed is None:
        return None
    lines = None if waits else evidence.timeline.table.scopes[scope.index].lines
    alone = ""
    for one in evidence.operations:
        if lines is not None and not lines[0] <= one.line <= lines[1]:
            continue
        access = one.access
        is_whole = access is None or access.is_whole or (one.times is not None and one.whole_times == one.times)
        if one.operation.traits.is_foreign or one.operation.name == CALL or not is_whole:
            return None
        is_scalar_write = access is not None and access.form.writes and not access.shape
        if not alone and (is_scalar_write or one.operation.name.startswith(_OF_ONE_WARP)):
            alone = evidence.words_of(one.operation)
    return alone


def _few_above(values: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Return where values are nearer to the maximum than to the minimum; None unless these are a minority."""
    if len(values) < _MIN_WARPS:
        return None
    above = 2 * values > int(values.min()) + int(values.max())
    return above if 0 < 2 * int(above.sum()) < len(values) else None


def _verb(verb: str, warps: NDArray[np.int64]) -> str:
    return verb if len(warps) > 1 else {"do": "does"}.get(verb, f"{verb}s")

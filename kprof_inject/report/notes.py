"""Notes below a launch's table: roofs, work in flight, spreads, iterations, SMs, missing records, and slopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import PurePath

from kprof_inject.analysis.async_work.flights import Flights
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.speed_of_light import SpeedOfLight
from kprof_inject.analysis.limits.stalls import Stalls
from kprof_inject.analysis.summary import LaunchSummary, RecordFaults, ScopeSummary
from kprof_inject.capture.model import Launch
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.errors import printable
from kprof_inject.quantities import counted, percent, ratio, short_time, size_text
from kprof_inject.report.experiments import doubts_on_slopes, slope_text
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.spread import IterationSeries
from kprof_inject.timeline.waves import Ending, Waves

MIN_ROOF_SHARE = 0.01  # a unit that needs less of a scope's cycles does not limit it


def roof_notes(speed_of_light: SpeedOfLight, scopes: Sequence[ScopeSummary]) -> Iterator[str]:
    """Yield a line on the minimum share of each scope's cycles that its busiest unit needs, and impossible roofs."""
    by_unit: dict[str, list[str]] = {}
    for roof in speed_of_light.roofs:
        if roof.part >= MIN_ROOF_SHARE:
            by_unit.setdefault(roof.unit, []).append(f"{scopes[roof.index].distinct_name} {percent(roof.part)}")
        if roof.impossible:
            needs = " and ".join(f"{percent(part)} of the {unit}" for unit, part in roof.impossible.items())
            yield (
                f"impossible roof: {scopes[roof.index].distinct_name} would need {needs}; left out, because its work "
                "is miscounted, or done outside of the scope"
            )
    if by_unit:
        parts = "; ".join(f"at the full rate of the {unit}: {', '.join(scopes)}" for unit, scopes in by_unit.items())
        if count := speed_of_light.unknown:
            parts += f"; without {counted(count, 'operation')} under conditions or in loops with an unknown trip count"
        yield f"speed of light: minimum share of each scope's cycles {parts}"


def _flight_notes(flights: Flights, scopes: Sequence[ScopeSummary]) -> Iterator[str]:
    for flight in flights.flights:
        where = f" ({flight.source.rpartition('/')[2]})" if flight.source else ""
        line = f"in flight: {flight.work} by {scopes[flight.index].title}{where}: {counted(flight.groups, 'group')}, "
        line += f"{flight.depth} at once; {percent(flight.blocked_share)} blocked their wait"
        if flight.latency_ns is not None:
            line += f", {short_time(flight.latency_ns)} from issue to completion"
        yield line
    if flights.most_bytes_per_sm:
        line = f"bytes in flight per SM: {size_text(round(flights.mean_bytes_per_sm))} on average, "
        line += f"{size_text(flights.most_bytes_per_sm)} at most"
        if flights.needed_bytes is not None:
            line += f"; {size_text(round(flights.needed_bytes))} would reach the loop's roof at this latency"
        yield line
    for operation, reason in flights.unpaired.items():
        yield f"in flight: unknown for {operation}: {reason}"


_NOTABLE = 1.25  # CTAs of any kernel differ by up to a quarter of the median


def spread_notes(scopes: Sequence[ScopeSummary], warp: str = "warp", cta: str = "CTA") -> Iterator[str]:
    """Yield a line for each scope in which warps, CTAs or SMs stand out, and one for all even ones."""
    even: list[float] = []
    rest = f"all {warp}s, {cta}s and SMs"
    for scope in scopes:
        parts = []
        for noun, spread in ((warp, scope.warp_spread), (cta, scope.cta_spread), ("SM", scope.sm_spread)):
            if spread is None or spread.groups <= 1 or not spread.median_ns:
                continue
            least, greatest = spread.least_ns / spread.median_ns, spread.greatest_ns / spread.median_ns
            faster = spread.median_ns / spread.least_ns if spread.least_ns else float("inf")
            if max(greatest, faster) < _NOTABLE:
                even += [greatest - 1, 1 - least]
            else:
                parts.append(
                    f"{noun}s {ratio(least)} ({noun} {spread.least_id}) to "
                    f"{ratio(greatest)} ({noun} {spread.greatest_id}) the median"
                )
        balance = scope.cta_balance
        if balance and balance.median_imbalance >= _NOTABLE:
            parts.append(f"the slowest {warp} of a {cta} {ratio(balance.median_imbalance)} the mean of its {warp}s")
        if parts:
            yield f"spread of {scope.distinct_name}: {'; '.join(parts)}"
            rest = "everything else"
    if even:
        yield f"spread: {rest} within {percent(max(even))} of their scope's median"


# Notes by the clock's source.
_CLOCK_NOTES = {
    ClockSource.FITTED: "clock: {mhz:.0f} MHz ± {percent:.2f} %, timer readings within {residual_ns:.0f} ns (rms); "
    "totals and shares are over {over}",
    ClockSource.ASSUMED: "clock: {mhz:.0f} MHz is assumed ({assumption}), because the launch is too short to measure "
    "it, or no record encloses the whole kernel. Durations may be off by {doubt}; totals and shares are over all warps",
    ClockSource.NOMINAL: "clock: {mhz:.0f} MHz is assumed ({assumption}), because no timer was read. All times may "
    "be off by {doubt}, and each SM's first record counts as the launch's start; totals and shares are over {over}",
    ClockSource.TIMER: "clock: the globaltimer, read by every record, so times need no fit and are as exact as its "
    "steps. A {cta} counts from its first record to its last; totals and shares are over {over}",
}
# Texts by the source of the number of slots.
_ROOM = {"occupancy": "with room for {slots} on each", "observed": "at most {slots} at once on each"}


def all_notes(report: LaunchAnalysis, flights: Flights | None) -> Iterator[str]:
    """Yield all notes below a launch's table; ``flights`` is its asynchronous work."""
    if in_place := report.launch.kernel.metadata.get("ir_override"):
        yield f"TTGIR: the program's own, {printable(PurePath(str(in_place)).name)}"
    yield from launch_notes(report.summary)
    yield from grid_notes(report.launch)
    yield from roof_notes(report.speed_of_light, report.summary.scopes)
    yield from _measurement_notes(report)
    if report.stalls:
        yield from _stall_notes(report.stalls, report.summary.scopes)
    yield from _moved_notes(report)
    if flights:
        yield from _flight_notes(flights, report.summary.scopes)
    if report.slopes:
        if known := [f"{place.name} {slope_text(place)}" for place in report.slopes.ranked if place.response]:
            yield f"slopes, by delays: {', '.join(known)}"
        yield from doubts_on_slopes(report.slopes)


def grid_notes(launch: Launch) -> Iterator[str]:
    """Yield the share of its kernel's CTAs that have the launch's grid, if the program uses several grids."""
    ctas = {one.grid: one.launches * prod(one.grid) for one in launch.kernel.grids}
    mine = next((one.launches for one in launch.kernel.grids if one.grid == launch.grid), None)
    if len(ctas) > 1 and mine is not None:
        launches = counted(sum(one.launches for one in launch.kernel.grids), "launch")
        part = percent(ctas[launch.grid] / sum(ctas.values()))
        yield f"grids: {len(ctas)} in {launches} of the kernel; {mine} have this one, with {part} of all their CTAs"


def _measurement_notes(report: LaunchAnalysis) -> Iterator[str]:
    record = report.launch.kernel.measurements
    if record is None:
        return
    if record.counters is not None:
        contents = l2_in_words(record.l2)
        yield (
            f"measured without records: {counted(len(record.counters.metrics), 'metric')} in "
            f"{counted(record.counters.passes, 'pass')} over the launch{f', {contents}' if contents else ''}"
        )
    for what, reason in (("counters", record.not_counted), ("stall reasons", record.not_sampled)):
        if reason:
            yield f"no {what}, because {reason}"
    if record.samples is not None:
        stalls = report.stalls
        unknown = f", {percent(stalls.unknown / stalls.samples)} at unknown lines" if stalls and stalls.samples else ""
        yield (
            f"sampled every {record.samples.period_cycles} cycles in {counted(record.samples.launches, 'launch')}: "
            f"{stalls.samples if stalls else 0} samples, {record.samples.dropped} dropped{unknown}"
        )
    yield from report.disagreements


# Scopes with fewer of the samples are not described.
_MIN_SAMPLED = 0.05
_MAX_REASONS = 3


def _stall_notes(stalls: Stalls, scopes: Sequence[ScopeSummary]) -> Iterator[str]:
    for scope in scopes:
        samples, found = sum(stalls.scopes.get(scope.index, {}).values()), stalls.waiting_in(scope.index)
        if not found or samples < _MIN_SAMPLED * stalls.samples:
            continue
        whole = sum(share.value for _, share in found)
        reasons = []
        for reason, share in found[:_MAX_REASONS]:
            place, awaited = stalls.places_of(reason, scope.index)
            where = f" for {awaited}" if awaited else f" at {place}" if place else ""
            reasons.append(f"{percent(share.value)} {stalls.label(reason, scope.index)}{where}")
        yield f"{scope.distinct_name}: warps wait {percent(whole)} of their time: {', '.join(reasons)}"


_MAX_MOVED = 12


def _moved_notes(report: LaunchAnalysis) -> Iterator[str]:
    # What the compiler moved out of a scope and into it: the scope's duration leaves it out, or has it.
    names = {
        scope.record: summary.distinct_name
        for scope, summary in zip(report.timeline.table.scopes, report.summary.scopes, strict=True)
    }
    moves = report.launch.kernel.moves
    sentences = [
        f"moved across a record: {moved.sentence_on(name)} of the TTGIR"
        for record, name in names.items()
        for moved in moves.get(record) or ()
    ]
    yield from sentences[:_MAX_MOVED]
    if len(sentences) > _MAX_MOVED:
        yield f"moved across a record: {len(sentences) - _MAX_MOVED} more; see --json"


def launch_notes(summary: LaunchSummary) -> Iterator[str]:
    """Yield the notes on the clock, the records, the iterations, the spreads and the SMs, where there are any."""
    yield _clock(summary)
    yield _record_cost(summary)
    yield from _sample(summary)
    yield from _iterations(summary)
    yield from spread_notes(summary.scopes, summary.warp_name, summary.cta_name)
    if summary.waves:
        yield from _waves(summary.waves, summary.ending)
    elif summary.ctas:
        yield f"waves: unknown, like tail and idle SMs, because no timer was read when each {summary.cta_name} began"
    yield from _missing(summary)


def _sample(summary: LaunchSummary) -> Iterator[str]:
    errors = [(scope, scope.sampling) for scope in summary.scopes if scope.sampling is not None]
    if errors:
        share = percent(max(_half(one.share) for _, one in errors))
        median = percent(max((_half(one.p50_ns) / scope.p50_ns for scope, one in errors if scope.p50_ns), default=0.0))
        yield (
            f"sample: {summary.recorded_ctas} of {counted(summary.ctas, summary.cta_name)} recorded. Those of all may "
            f"have shares that differ by {share}, and medians by {median} (19 of 20)"
        )


def _half(interval: tuple[float, float | None] | None) -> float:
    low, high = interval or (0.0, 0.0)
    return 0.0 if high is None else (high - low) / 2


def _clock(summary: LaunchSummary) -> str:
    known = summary.nominal_mhz is not None
    return _CLOCK_NOTES[summary.clock_source].format(
        mhz=summary.clock_mhz,
        percent=100 * summary.clock_error,
        residual_ns=summary.residual_ns,
        cta=summary.cta_name,
        assumption="the device's nominal rate" if known else "the device's nominal rate is unknown",
        over="all warps of their partition" if summary.partitions else f"all {summary.warp_name}s",
        doubt=f"{100 * summary.clock_error:.0f} %" if known else "any factor",
    )


def _record_cost(summary: LaunchSummary) -> str:
    cost = summary.record_cost
    if cost is None:
        return "record cost: unknown and not subtracted: durations include the records' own time"
    taken_ns = summary.subtracted_ns
    text = f"record cost: {cost.cycles:.0f} ± {cost.error_cycles:.0f} cycles each; {short_time(taken_ns)} subtracted"
    if summary.warp_time_ns:
        text += f", {percent(taken_ns / summary.warp_time_ns)} of the warps' time"
    if cut := sum(scope.cut for scope in summary.scopes):
        most = max(summary.scopes, key=lambda scope: scope.cut)
        shorter = f"{cut} scopes were shorter than the cost of their records"
        if cut == 1:
            shorter = "1 scope was shorter than the cost of its records"
        text += f". {shorter}, mostly {most.distinct_name}: {most.cut} of {most.count}"
    return text


def _iterations(summary: LaunchSummary) -> Iterator[str]:
    for scope in summary.scopes:
        if scope.iterations:
            yield f"iterations of {scope.distinct_name}: {_series(scope.iterations)}"
        elif scope.kind == ScopeKind.ITERATION and scope.count:
            yield f"iterations of {scope.distinct_name}: not numbered, because records of their loops are missing"
    for scope in summary.scopes:
        if scope.between_iterations_ns is not None and scope.total_ns:
            yield (
                f"between iterations of {scope.distinct_name}: {short_time(scope.between_iterations_ns)}, "
                f"{percent(scope.between_iterations_ns / scope.total_ns)} of the loop (its self time)"
            )
    for wait in summary.memory_waits:
        name = summary.scopes[wait.index].distinct_name
        times = f"{short_time(wait.median_ns)} ({short_time(wait.min_ns)} to {short_time(wait.max_ns)})"
        yield f"{name}: a {summary.cta_name} waits {times} for memory to change"


def _series(series: IterationSeries) -> str:
    is_even = series.fewest == series.most
    parts = [f"{series.most}" if is_even else f"{series.fewest} to {series.most}, median {series.median:g}"]
    for name, time_ns, over_steady in (
        ("first", series.first_ns, series.first_over_steady),
        ("steady", series.steady_ns, None),
        ("last", series.last_ns, series.last_over_steady),
    ):
        if time_ns is not None:
            times = "" if over_steady is None else f" ({ratio(over_steady)} steady)"
            parts.append(f"{name} {short_time(time_ns)}{times}")
    return ", ".join(parts)


def _waves(waves: Waves, ending: Ending | None) -> Iterator[str]:
    last = waves.last
    numbered = f" (numbered up to {waves.highest_sm})" if waves.highest_sm >= waves.sms else ""
    text = (
        f"waves: {waves.fill:.2f}; {counted(waves.ctas, 'CTA')} ran on {counted(waves.sms, 'SM')}{numbered}, "
        f"{_ROOM[waves.slots_source].format(slots=waves.slots_per_sm)}"
    )
    if waves.waves > 1:
        text += (
            f". The last wave is {counted(last.ctas, 'CTA')} on {counted(last.sms, 'SM')} and takes "
            f"{short_time(last.duration_ns)}"
        )
    yield text
    if ending and waves.tail.duration_ns:
        by_count, uneven = percent(ending.count_share), percent(ending.uneven_share)
        why = f": {by_count} because other SMs run more CTAs, {uneven} because CTAs take longer"
        yield (
            f"tail: SMs run out of work in the last {short_time(waves.tail.duration_ns)} and idle for "
            f"{percent(ending.idle_share)} of the launch on average{'' if percent(0) in (by_count, uneven) else why}"
        )
    if waves.idle_sm_share is None or waves.idle_slot_share is None:
        return
    yield (
        f"idle: these SMs run no CTA for {percent(waves.idle_sm_share)} of the whole launch on average; "
        f"{percent(waves.idle_slot_share)} of their CTA slots stay empty"
    )


def _missing(summary: LaunchSummary) -> Iterator[str]:
    if summary.records_lost:
        lost, written = summary.records_lost, summary.records_written
        yield (
            f"lost: {lost} of {written} records ({100 * lost / written:.0f} %){_whose(summary.lost, summary)}: the "
            "ring keeps the newest, and totals and shares cover only these. --fit runs again with rings that keep them "
            "all"
        )
    if unpaired := sum(scope.without_partner for scope in summary.scopes):
        yield f"unpaired: {counted(unpaired, 'record')} whose start or end is missing, left out of the table above"
        if summary.open_starts:
            yield f"  starts without an end: {summary.open_starts.records}{_whose(summary.open_starts, summary)}"
        if summary.stray_ends:
            yield f"  ends without a start: {summary.stray_ends.records}{_whose(summary.stray_ends, summary)}"
    if summary.records_damaged:
        yield (
            f"damaged: {summary.records_damaged} of {summary.records_written} entries left out"
            f"{_whose(summary.damaged, summary)}: they are not records of this kernel"
        )
    if summary.ctas_never_ran:
        yield f"never ran: {counted(summary.ctas_never_ran, 'CTA')} of the grid wrote nothing"
    if summary.ctas_damaged:
        yield f"damaged: {counted(summary.ctas_damaged, 'CTA')} left out, with contradictory headers"
    if summary.ctas_without_sm:
        yield (
            f"SM: unknown for {summary.ctas_without_sm} of {counted(summary.ctas, summary.cta_name)}, because the "
            "buffer does not contain it"
        )


def _whose(faults: RecordFaults | None, summary: LaunchSummary) -> str:
    if faults is None:
        return ""
    warp, cta = summary.warp_name, summary.cta_name
    return (
        f", in {counted(faults.warps, warp)} of {counted(faults.ctas, cta)}, most in {warp} "
        f"{faults.worst_warp} of {cta} {faults.worst_cta} ({faults.worst_records} of {faults.worst_written})"
    )


_L2 = {"left": "", "emptied": "the L2 emptied", "inputs": "its inputs in the L2"}


def l2_in_words(l2: str) -> str:
    """Return what the L2 held when launches began, in words that follow a result; empty if nothing was done to it."""
    return f"with {_L2[l2]} before each launch, which comes closest to its time in the program" if _L2[l2] else ""

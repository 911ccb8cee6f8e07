"""Evidence on a terminal: units and stall reasons, and the edits of ``try`` and slopes of ``causal``, best first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from rich.console import Console

from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.analysis.limits.stalls import LineStalls, Share, Stalls, place_text, waiting
from kprof_inject.analysis.limits.unit_evidence import UnitEvidence
from kprof_inject.capture.edits import AppliedEdits, EditsRecord, TriedEdits
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import before_and_after, counted, listed, percent, short_time
from kprof_inject.report.experiments import (
    SLOPE_MEANING,
    TOO_SHORT,
    doubts_on_slopes,
    gain_text,
    headline,
    ranked,
    results_text,
    slack_text,
    slope_text,
)
from kprof_inject.report.terminal.tables import Column, bars_for, print_fitted, print_plain, say, share_text

_MAX_UNITS = 6
_MAX_LINES = 12
_MAX_REASONS = 2
_MIN_SHARE = 0.005  # a smaller share would be shown as 0 %


def units_text(units: Sequence[UnitEvidence]) -> str:
    """Return the busiest units with their utilization; empty if only TTGIR is known."""
    if all(one.code is None and one.measured is None for one in units):
        return ""
    busiest = sorted(units, key=lambda one: -one.best)[:_MAX_UNITS]
    shown = ", ".join(
        f"{one.unit} {'' if one.measured is not None else '>= '}{100 * one.best:.0f} %"
        for one in busiest
        if one.best >= _MIN_SHARE
    )
    is_measured = any(one.measured is not None for one in busiest)
    evidence = "measured" if is_measured else "by the machine code: lower bounds"
    return f"{shown} of peak ({evidence})" if shown else ""


def print_units(known: Sequence[UnitEvidence], console: Console) -> None:
    """Print a bar for each unit: solid up to the lower bound, shaded up to what was measured."""
    units = [one for one in known if one.best >= _MIN_SHARE]
    if not units:
        return
    bars = bars_for(console)
    columns = [
        Column("unit", [one.unit for one in units], name=True),
        Column("computed", [share_text(one.computed) for one in units]),
        Column("machine code", [share_text(one.code) for one in units]),
        Column("measured", [share_text(one.measured) for one in units]),
    ]
    drawn = [bars.drawn(max(one.best, one.lower_bound), min(one.lower_bound, one.best)) for one in units]
    title = f"{bars.inner} lower bound {bars.outer} measured"
    print_plain([[*columns, Column(title, drawn, left=True)], columns], console)


def stalled_on(stalls: Stalls, index: int) -> str:
    """Return what the warps wait for longest in a scope, such as ``long_scoreboard 41.2 %``; empty if unknown."""
    found = stalls.waiting_in(index)
    if not found or found[0][1].value < _MIN_SHARE:
        return ""
    reason, share = found[0]
    return f"{stalls.label(reason, index)} {percent(share.value)}"


def print_stalls(stalls: Stalls, console: Console) -> None:
    """Print the lines at which warps spend most time, with what they wait for there."""
    lines = [line for line in stalls.lines if line.samples >= _MIN_SHARE * stalls.samples][:_MAX_LINES]
    if not lines:
        return
    shares = [Share.of(line.samples, stalls.samples) for line in lines]
    columns = [
        Column("source", [place_text(line.source) or "-" for line in lines], name=True),
        Column("TTGIR", [str(line.line) for line in lines]),
        Column("samples", [f"{percent(share.value)} ± {100 * share.error:.1f}" for share in shares]),
        Column("stalled on", [", ".join(_reasons(line, stalls)) for line in lines], left=True),
    ]
    print_plain([columns], console)


def _reasons(line: LineStalls, stalls: Stalls) -> Iterator[str]:
    for reason, count in waiting(line.reasons)[:_MAX_REASONS]:
        awaited = line.awaited.get(reason)
        needed = stalls.result_of(max(awaited, key=lambda other: awaited[other])) if awaited else ""
        what = f" (for {needed})" if needed else ""
        yield f"{reason} {percent(count / stalls.samples)}{what}"


_STYLES = {"faster": "green", "slower": "dim", "no difference": "dim", "same code": "dim", "refused": "yellow"}
_MAX_SAME = 6


def print_edits(tried: Sequence[tuple[EditsRecord, AppliedEdits | None]], console: Console) -> None:
    """Print the news, a table, and what to do for each kernel."""
    for record, applied in tried:
        say(headline(record), console)
        shown = [one for one in ranked(record) if one.outcome not in ("same code", "not measured")]
        if shown:
            print_fitted(_edit_layouts(record, shown), console)
        for line in (*_notes(record), *_to_apply(applied)):
            say(line, console)


def _edit_layouts(record: EditsRecord, tried: Sequence[TriedEdits]) -> list[list[Column]]:
    styles = [_STYLES.get(one.outcome, "") for one in tried]
    names = Column("edit", [one.text for one in tried], styles, name=True)
    why = Column("because of", [one.reason for one in tried], left=True)
    predicted = Column("predicted", ["-" if one.predicted is None else f"≤ {percent(one.predicted)}" for one in tried])
    gains = [one.final_gain for one in tried]
    outcomes = [gain_text(gain) if gain else one.outcome for one, gain in zip(tried, gains, strict=True)]
    won = Column("won", outcomes, styles)
    results = Column("results", [results_text(one) for one in tried], left=True)
    fields = {"registers": "registers", "spills": "spills", "shared": "shared_bytes", "CTAs/SM": "ctas_per_sm"}
    build = [Column(title, [_resource(one, record, field) for one in tried]) for title, field in fields.items()]
    return [
        [names, why, predicted, won, results, *build],
        [names, why, predicted, won, results],
        [names, predicted, won, results],
        [names, won],
    ]


def _resource(one: TriedEdits, record: EditsRecord, name: str) -> str:
    before, value = getattr(record.clean, name, None), getattr(one.resources, name, None)
    if value is None:
        return "-"
    return str(value) if before is None else before_and_after(str(before), str(value))


def _notes(record: EditsRecord) -> Iterator[str]:
    same = [one.text for one in record.tried if one.outcome == "same code"]
    if same:
        yield f"same machine code as another build, so not timed: {listed(same, _MAX_SAME)}"
    late = [one for one in record.tried if one.outcome == "not measured"]
    for reason in dict.fromkeys(one.refusal for one in late):
        names = "; ".join(one.text for one in late if one.refusal == reason)
        yield f"not measured, because {reason or TOO_SHORT}: {names}"
    if record.ended == "time":
        yield "the time was over: --seconds gives more"
    if not record.is_repeatable:
        yield "the unchanged kernel's own results vary from launch to launch; results are compared within that"
    if not record.changes_memory:
        yield "memory had the results before the launch, so results that an edit leaves out are not noticed"
    if record.tried:
        took = f"measuring took {record.gpu_seconds:.1f} s, compiling {record.compile_seconds:.1f} s"
        is_confirmed = record.winner is not None and record.winner.confirmed is not None
        confirmed = "; a second process confirmed the best" if is_confirmed else ""
        yield f"{took}; gains are medians, ± half of their 95 % intervals{confirmed}"


def _to_apply(applied: AppliedEdits | None) -> Iterator[str]:
    if applied is None:
        return
    if passed := {**applied.constants, **applied.options}:
        words = ", ".join(f"{name}={value!r}" for name, value in passed.items())
        yield f"to use it, launch {applied.kernel}[grid](..., {words}), or configure its autotuner:"
    if applied.source:
        yield f"to use it, write {applied.source}"
    if applied.triton_config:
        yield f"  {applied.triton_config}"
    if applied.command:
        yield f"without a change of the source: {applied.command}"
    elif applied.environment:
        variables = " ".join(f"{name}={value}" for name, value in applied.environment.items())
        yield f"together with these variables: {variables}"


_BAR_WIDTH = 10  # of slopes from 1 on
_MAX_BAR_ERROR = 0.5  # with a wider interval a bar would be misleading
_ENDED = {
    "precise": "all slopes are precise enough",
    "often": "each delay was timed often enough",
    "time": "time ran out: raise --seconds",
}


def print_slopes(slopes: Sequence[KernelSlopes], console: Console) -> None:
    """Print a headline, a table and the doubts for each kernel, and what a slope means."""
    for kernel in slopes:
        experiment = kernel.experiment
        clock = f" at {kernel.clock_hz / 1e6:.0f} MHz" if kernel.clock_hz else ""
        ctas = counted(prod(experiment.grid), "CTA")
        chain = f", {kernel.chain:.0f} back to back" if kernel.chain and kernel.chain > 1 else ""
        error = f", slopes within ± {kernel.error:.2f}" if kernel.error is not None else ""
        say(
            f"{experiment.name}: {short_time(kernel.clean_ns)}{clock}, {ctas}{chain}; replayed {experiment.timed} "
            f"times with a delay in {experiment.seconds:.1f} s{error}; stopped because {_ENDED[experiment.ended]}",
            console,
        )
        if ranked := kernel.ranked:
            print_fitted(_slope_layouts(ranked), console)
        for line in doubts_on_slopes(kernel):
            say(line, console)
    say(SLOPE_MEANING, console)


def _slope_layouts(places: Sequence[PlaceSlope]) -> list[list[Column]]:
    names = Column("place", [place.name for place in places], name=True)
    sources = Column("source", [without_folders(place.scope.source) for place in places], left=True)
    slopes = Column("slope", [slope_text(place) for place in places])
    bars = Column("", [_bar(place) for place in places], left=True)
    slack = Column("slack", [slack_text(place) for place in places], left=True)
    lines = Column("TTGIR", [_lines(place) for place in places], left=True)
    times = Column("per CTA", ["-" if place.by_cta is None else f"{place.by_cta:.0f} x" for place in places])
    shares = Column("time", [share_text(place.time_share) for place in places])
    return [
        [names, sources, lines, times, slopes, bars, slack, shares],
        [names, sources, slopes, bars, slack, shares],
        [names, slopes, bars, slack],
        [names, slopes],
    ]


def _bar(place: PlaceSlope) -> str:
    if place.response is None or place.response.slope.error > _MAX_BAR_ERROR:
        return ""
    return "█" * round(_BAR_WIDTH * min(max(place.response.slope.value, 0.0), 1.0))


def _lines(place: PlaceSlope) -> str:
    lines = place.scope.lines
    return "" if lines is None else str(lines[0]) if lines[0] == lines[1] else f"{lines[0]}-{lines[1]}"

"""Utilization of each unit, and stall reasons, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from kprof_inject.analysis.evidence.stalls import LineStalls, Share, Stalls, place_text, waiting
from kprof_inject.analysis.evidence.units import UnitEvidence
from kprof_inject.quantities import percent
from kprof_inject.report.terminal.tables import Column, bars_for, print_plain, share_text

_MAX_UNITS = 6
_MAX_LINES = 12
_MAX_REASONS = 2
# A smaller share would be shown as 0 %.
_MIN_SHARE = 0.005


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
    """Yield the line's first reasons with their shares of all samples, and what they wait for."""
    for reason, count in waiting(line.reasons)[:_MAX_REASONS]:
        awaited = line.awaited.get(reason)
        needed = stalls.result_of(max(awaited, key=lambda other: awaited[other])) if awaited else ""
        what = f" (for {needed})" if needed else ""
        yield f"{reason} {percent(count / stalls.samples)}{what}"

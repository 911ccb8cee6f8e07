"""What stands under a launch's table of its limits: the roofs of its scopes, and what was in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.analysis.async_work.flight_metrics import Flights
from kprof_inject.analysis.roofs.speed_of_light import SpeedOfLight
from kprof_inject.analysis.summary import ScopeSummary
from kprof_inject.quantities import counted, percent, short_time, size_text

LEAST_ROOF = 0.01
"""What takes less of a scope limits nothing."""


def roof_notes(speed_of_light: SpeedOfLight, scopes: Sequence[ScopeSummary]) -> Iterator[str]:
    """What part of each scope would be left if nothing but its busiest unit took time. ``scopes`` are the launch's."""
    by_unit: dict[str, list[str]] = {}
    for roof in speed_of_light.roofs:
        if roof.part >= LEAST_ROOF:
            by_unit.setdefault(roof.unit, []).append(f"{scopes[roof.index].distinct_name} {percent(roof.part)}")
    yield from _impossible_roofs(speed_of_light, scopes)
    if not by_unit:
        return
    parts = [f"at the full rate of the {unit}: {', '.join(scopes)}" for unit, scopes in by_unit.items()]
    left_out = ""
    if count := speed_of_light.unknown:
        left_out = f"; without {counted(count, 'operation')} under conditions or in loops with an unknown trip count"
    yield f"speed of light: the minimum share of its cycles that each scope needs {'; '.join(parts)}{left_out}"


def _impossible_roofs(speed_of_light: SpeedOfLight, scopes: Sequence[ScopeSummary]) -> Iterator[str]:
    for roof in speed_of_light.roofs:
        if roof.impossible:
            told = " and ".join(f"{percent(part)} of the {unit}" for unit, part in roof.impossible.items())
            yield (
                f"impossible roof: {scopes[roof.index].distinct_name} would need {told}; it is left out, because its "
                "work was counted wrongly, or is done outside of the scope"
            )


def flight_notes(flights: Flights, scopes: Sequence[ScopeSummary]) -> Iterator[str]:
    """A line for each kind of work that goes on while warps do."""
    for flight in flights.flights:
        where = f" ({flight.source.rpartition('/')[2]})" if flight.source else ""
        line = f"in flight: {flight.work} by {scopes[flight.index].title}{where}: {counted(flight.groups, 'group')}, "
        line += f"{flight.depth} at once; {percent(flight.blocked_share)} blocked their wait"
        if flight.latency_ns is not None:
            line += f", and took {short_time(flight.latency_ns)} from issue to completion"
        yield line
    if flights.most_bytes_per_sm:
        line = f"bytes in flight: {size_text(round(flights.mean_bytes_per_sm))} on each SM on average, "
        line += f"{size_text(flights.most_bytes_per_sm)} at most"
        if flights.needed_bytes is not None:
            line += f"; {size_text(round(flights.needed_bytes))} would fill the loop's roof at this latency"
        yield line
    for operation, reason in flights.unpaired.items():
        yield f"in flight: unknown for {operation}: {reason}"

"""What is said of a trace's axes: whose times can be compared, and how well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.report.quantities import time_text
from kprof_inject.timeline.clocks.axis import PlacedLaunch

_MOST_NAMES = 4


def axis_lines(launches: Sequence[PlacedLaunch]) -> Iterator[str]:
    """Nothing of launches of one process and device; else one line, and where devices could not be brought onto one
    axis, one more for each axis."""
    if not any(launch.place_name for launch in launches):
        return
    axes: dict[int, list[PlacedLaunch]] = {}
    for launch in launches:
        axes.setdefault(launch.clock.axis.number, []).append(launch)
    if len(axes) == 1:
        yield f"{_crowd(launches)} on one axis, {_error(launches[0])}"
        yield from _doubts(launches)
        return
    yield (
        f"{_crowd(launches)} on {len(axes)} axes. Each starts at a zero of its own: "
        "where launches of different axes stand to each other is not known"
    )
    for members in axes.values():
        names = list(dict.fromkeys(launch.place_name for launch in members))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        clock = members[0].clock
        what = clock.alignment if clock.relation is None else _error(members[0])
        yield f"axis {clock.axis.number}: {'; '.join(names[:_MOST_NAMES])}{more}: {what}"
        yield from _doubts(members)


def _crowd(launches: Sequence[PlacedLaunch]) -> str:
    places = {launch.timeline.launch.place for launch in launches}
    processes = {(place.host, place.rank, place.pid) for place in places}
    if len(processes) == 1:
        return f"{len(places)} devices"
    ranks = {place.rank for place in places}
    noun = "ranks" if None not in ranks and len(ranks) == len(processes) else "processes"
    devices = f" with {len(places)} devices" if len(places) > len(processes) else ""
    return f"{len(processes)} {noun}{devices}"


def _error(launch: PlacedLaunch) -> str:
    axis = launch.clock.axis
    return (
        f"within ± {time_text(axis.error_ns)}" if axis.devices > 1 else "the globaltimer of the device that they share"
    )


def _doubts(launches: Sequence[PlacedLaunch]) -> Iterator[str]:
    """What the error of an axis does not say, or why it is so large."""
    # Their clock is an assumption, and they may have waited on the device for longer than any error here.
    shown = [launch.timeline for launch in launches if launch.timeline.scope_count]
    if untimed := sum(timeline.clock.source == "nominal" for timeline in shown):
        yield f"{untimed} launch(es) without timer readings stand where the host called them; no error holds for them"
    contradicted = (
        launch.place_name for launch in launches if launch.clock.relation and launch.clock.relation.contradicted
    )
    for name in dict.fromkeys(contradicted):
        yield f"{name}: its readings of the host's clock contradict each other; the error was widened until they agree"

"""Waits of ranks for each other in the launches of a report, and sentences on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, short_time
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.rank_waits import LastRank, last_ranks, rank_waits
from kprof_inject.timeline.timeline import Timeline


def last_ranks_in(reports: Sequence[LaunchAnalysis]) -> list[LastRank]:
    """Return who comes last where ranks wait for each other; empty for launches of a single rank.

    Of kernels that wait, all launches are decoded.
    """
    if len({report.launch.place for report in reports}) < 2:
        return []
    waiting = [
        report.timeline
        for report in reports
        if any(scope.kind == ScopeKind.SPIN for scope in report.launch.kernel.scopes.scopes)
    ]
    return last_ranks(rank_waits(place_launches(waiting)))


def last_ranks_of(timelines: Iterable[Timeline]) -> list[LastRank]:
    """Return who comes last in launches of one or more captures, each of which has an axis of its own.

    Places are named by their rank alone where each rank has one device, which need not be the same in all captures.
    """
    captures: dict[Path | None, list[Timeline]] = {}
    for timeline in timelines:
        captures.setdefault(timeline.launch.capture_folder, []).append(timeline)
    return last_ranks(wait for own in captures.values() for wait in rank_waits(_named_by_rank(place_launches(own))))


def _named_by_rank(launches: Sequence[PlacedLaunch]) -> list[PlacedLaunch]:
    places = {placed.timeline.launch.place for placed in launches}
    ranks = {place.rank for place in places}
    if None in ranks or len(ranks) < len(places):
        return list(launches)
    return [replace(placed, place_name=f"rank {placed.timeline.launch.place.rank}") for placed in launches]


def rank_notes(ranks: Sequence[LastRank]) -> Iterator[str]:
    """Yield a line on who waits for whom in each scope of a kernel."""
    for rank in ranks:
        times = zip(rank.places, rank.waited_ns, strict=True)
        waited = ", ".join(f"{place} {short_time(ns)}" for place, ns in times)
        unknown = f"; what {counted(rank.unknown, 'wait')} were for is unknown" if rank.unknown else ""
        yield f"{rank.kernel}, {rank.scope}: {_who(rank)}. A CTA waits (median): {waited}{unknown}"


def _who(rank: LastRank) -> str:
    error = f"± {short_time(rank.error_ns)}"
    if rank.last is None:
        return f"no rank comes last by more than the clocks' error ({error})"
    where = f"{rank.launches_last} of {counted(rank.launches, 'launch')}"
    where += f" and {rank.last_in} of {counted(rank.visits, 'wait')}"
    begins = f"{short_time(abs(rank.begins_after_ns))} {'later' if rank.begins_after_ns >= 0 else 'earlier'}"
    after = (
        f"by {short_time(rank.after_ns)} (median, {error}), most with CTA {rank.cta} ({short_time(rank.cta_after_ns)})"
    )
    return f"{rank.last} comes last in {where}, {after}. Its kernel begins {begins}"

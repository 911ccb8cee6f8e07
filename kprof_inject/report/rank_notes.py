"""Sentences on waits of ranks for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, short_time
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.rank_waits import RankWait, rank_waits
from kprof_inject.timeline.timeline import Timeline


def has_spins(kernel: Kernel) -> bool:
    """Return whether records show when a kernel waits for memory to change."""
    return any(scope.kind == ScopeKind.SPIN for scope in kernel.scopes.scopes)


def rank_notes(timelines: Sequence[Timeline]) -> Iterator[str]:
    """Yield who waits for whom, a line for each scope of a kernel; nothing for launches of a single rank."""
    if len({timeline.launch.place for timeline in timelines}) < 2:
        return
    scopes: dict[tuple[str, str, tuple[str, ...]], list[RankWait]] = {}
    for wait in rank_waits(place_launches(timelines)):
        scopes.setdefault((wait.kernel, wait.scope, tuple(sorted(wait.places))), []).append(wait)
    for (kernel, scope, places), waits in scopes.items():
        waited = f"A CTA waits (median): {_waited(places, waits)}{_unknown(waits)}"
        yield f"{kernel}, {scope}: {_who_is_last(waits)}. {waited}"


def _who_is_last(waits: Sequence[RankWait]) -> str:
    error = f"± {short_time(max(wait.error_ns for wait in waits))}"
    counts = Counter(wait.last for wait in waits if wait.last_in)
    if not counts:
        most = short_time(max(wait.most_ns for wait in waits))
        return f"no rank comes last by more than the clocks' error ({most}, {error})"
    last, launches = counts.most_common(1)[0]
    mine = [wait for wait in waits if wait.last_in and wait.last == last]
    after = short_time(median(wait.after_ns for wait in mine))
    cta, _ = Counter(wait.cta for wait in mine).most_common(1)[0]
    most = short_time(median(wait.most_ns for wait in mine if wait.cta == cta))
    begins_ns = median(wait.begins_after_ns for wait in mine)
    begun = f"{short_time(abs(begins_ns))} {'later' if begins_ns >= 0 else 'earlier'}"
    where = f"{sum(wait.last_in for wait in mine)} of {counted(sum(wait.visits for wait in waits), 'wait')}"
    where = f"{launches} of {counted(len(waits), 'launch')} and {where}"
    return (
        f"{last} comes last in {where}, by {after} (median, {error}), most with CTA {cta} ({most}). Its kernel begins "
        f"{begun}"
    )


def _waited(places: Sequence[str], waits: Sequence[RankWait]) -> str:
    waited = {
        place: median(wait.waited_ns[wait.places.index(place)] for wait in waits) for place in dict.fromkeys(places)
    }
    return ", ".join(f"{place} {short_time(ns)}" for place, ns in waited.items())


def _unknown(waits: Sequence[RankWait]) -> str:
    unknown = sum(wait.unknown for wait in waits)
    return f"; what {counted(unknown, 'wait')} were for is unknown" if unknown else ""

"""Waits of ranks for each other: which one comes last where all of them wait, by how much, and in which CTA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.scopes import distinct_names
from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.memory_waits import MAX_LATE_NS, visits_of

# Of the time until the last rank came.
_MIN_WAITED = 0.5


class RankWait(Struct, frozen=True):
    """Waits of the CTAs of several ranks in one ``scope``, of a launch of each that ran at the same time.

    ``index`` is the scope's, in the table of the first place.

    All ranks met in ``visits`` waits (by CTA and round); ``unknown`` of them ended before the last rank came or long
    after, so they were for something else. The ``last`` place came more than the clocks' error ``error_ns`` after all
    others in ``last_in`` waits, by ``after_ns`` (median) and at most by ``max_ns``, with CTA ``cta``. Its kernel began
    ``begins_after_ns`` after the last of the others; negative if before. ``waited_ns`` are the places' median waits.
    """

    kernel: str
    index: int
    scope: str
    places: tuple[str, ...]
    visits: int
    unknown: int
    last: str
    last_in: int
    after_ns: float
    max_ns: int
    cta: int
    begins_after_ns: int
    waited_ns: tuple[float, ...]
    error_ns: int


def rank_waits(launches: Sequence[PlacedLaunch]) -> Iterator[RankWait]:
    """Yield the waits of ranks for each other, of launches of one kernel that ran at the same time, on one axis."""
    kernels: dict[tuple[str, int], list[PlacedLaunch]] = {}
    for placed in launches:
        kernels.setdefault((placed.timeline.launch.kernel.name, placed.clock.axis.number), []).append(placed)
    for members in kernels.values():
        for together in _at_the_same_time(members):
            if len(together) > 1:
                yield from _waits_of(together)


class LastRank(Struct, frozen=True):
    """Who comes last in one ``scope`` of a kernel, over all launches in which ranks wait for each other there.

    ``last`` comes last in ``last_in`` of the ``visits`` waits, in ``launches_last`` of ``launches``; None if none does
    by more than the clocks' error ``error_ns``. There, it comes ``after_ns`` after all others (median); the CTA that
    is latest most often is ``cta``, by ``cta_after_ns``. Its kernel begins ``begins_after_ns`` after the others'.
    ``waited_ns`` are the places' median waits, ``unknown`` the number of waits for something else.
    """

    kernel: str
    scope: str
    places: tuple[str, ...]
    launches: int
    visits: int
    unknown: int
    waited_ns: tuple[float, ...]
    error_ns: int
    last: str | None = None
    launches_last: int = 0
    last_in: int = 0
    after_ns: float = 0.0
    cta: int = -1
    cta_after_ns: float = 0.0
    begins_after_ns: float = 0.0


def last_ranks(waits: Iterable[RankWait]) -> list[LastRank]:
    """Return who comes last in each scope of each kernel, in the order of the scopes."""
    scopes: dict[tuple[str, str, tuple[str, ...]], list[RankWait]] = {}
    for wait in sorted(waits, key=lambda one: (one.kernel, one.index)):
        scopes.setdefault((wait.kernel, wait.scope, tuple(sorted(wait.places))), []).append(wait)
    return [_last_rank(kernel, scope, places, own) for (kernel, scope, places), own in scopes.items()]


def _last_rank(kernel: str, scope: str, places: tuple[str, ...], waits: Sequence[RankWait]) -> LastRank:
    found = LastRank(
        kernel=kernel,
        scope=scope,
        places=places,
        launches=len(waits),
        visits=sum(wait.visits for wait in waits),
        unknown=sum(wait.unknown for wait in waits),
        waited_ns=tuple(median(wait.waited_ns[wait.places.index(place)] for wait in waits) for place in places),
        error_ns=max(wait.error_ns for wait in waits),
    )
    counts = Counter(wait.last for wait in waits if wait.last_in)
    if not counts:
        return found
    last, launches_last = counts.most_common(1)[0]
    mine = [wait for wait in waits if wait.last_in and wait.last == last]
    cta, _ = Counter(wait.cta for wait in mine).most_common(1)[0]
    return replace(
        found,
        last=last,
        launches_last=launches_last,
        last_in=sum(wait.last_in for wait in mine),
        after_ns=median(wait.after_ns for wait in mine),
        cta=cta,
        cta_after_ns=median(wait.max_ns for wait in mine if wait.cta == cta),
        begins_after_ns=median(wait.begins_after_ns for wait in mine),
    )


def _at_the_same_time(launches: Sequence[PlacedLaunch]) -> Iterator[list[PlacedLaunch]]:
    """Yield groups of launches that all overlap, one of each place, by their begin."""
    spans = [(span, placed) for placed in launches if (span := placed.span_ns())]
    group: list[PlacedLaunch] = []
    first_end_ns = 0
    for (begin_ns, end_ns), placed in sorted(spans, key=lambda one: one[0]):
        if group and (begin_ns >= first_end_ns or placed.place_name in {one.place_name for one in group}):
            yield group
            group = []
        first_end_ns = min(first_end_ns, end_ns) if group else end_ns
        group.append(placed)
    if group:
        yield group


def _waits_of(members: Sequence[PlacedLaunch]) -> Iterator[RankWait]:
    visits = [_visits_of(member) for member in members]
    names = [distinct_names(member.timeline.table.scopes) for member in members]
    for index, first in visits[0].items():
        name = names[0][index]
        others = [
            next((found for other, found in one.items() if own[other] == name), None)
            for one, own in zip(visits[1:], names[1:], strict=True)
        ]
        known = [first, *(found for found in others if found is not None)]
        if len(known) == len(members) and (wait := _wait(members, index, name, known)):
            yield wait


def _visits_of(member: PlacedLaunch) -> dict[int, NDArray[np.void]]:
    """Return the waits of a launch's CTAs in each scope that waits, by the axis's time."""
    if member.timeline.clock.source == ClockSource.NOMINAL:
        return {}
    found = visits_of(member.timeline)
    for visits in found.values():
        for field in ("arrives_ns", "leaves_ns"):
            visits[field] = member.clock.on_axis(visits[field])
    return found


def _wait(
    members: Sequence[PlacedLaunch], index: int, scope: str, visits: Sequence[NDArray[np.void]]
) -> RankWait | None:
    """Return who came last, of the waits that all ranks have; None if they have none in common."""
    keys = [(found["cta"].astype(np.int64) << 32) | found["round"] for found in visits]
    common = keys[0]
    for one in keys[1:]:
        common = np.intersect1d(common, one)
    if not common.size:
        return None
    rows = [
        found[np.argsort(key)][np.searchsorted(np.sort(key), common)] for found, key in zip(visits, keys, strict=True)
    ]
    arrives_ns, leaves_ns = (np.stack([row[field] for row in rows]) for field in ("arrives_ns", "leaves_ns"))
    error_ns, numbers = members[0].clock.axis.error_ns, np.arange(common.size)
    order = np.argsort(arrives_ns, axis=0)
    last, next_to_last = order[-1], order[-2]
    came_ns, next_came_ns, next_left_ns = (
        arrives_ns[last, numbers],
        arrives_ns[next_to_last, numbers],
        leaves_ns[next_to_last, numbers],
    )
    after_ns = came_ns - next_came_ns
    is_known = _is_for_the_last(after_ns, next_left_ns - came_ns, next_left_ns - next_came_ns, error_ns)
    if not is_known.any():
        return None
    # Of the CTAs that arrive together, any may be last; what counts is what the others wait.
    excess_ns = np.where(is_known, np.maximum(after_ns - error_ns, 0), 0)
    rank = int(np.bincount(last, weights=excess_ns, minlength=len(members)).argmax())
    mine = np.flatnonzero((last == rank) & (excess_ns > 0))
    shown = mine if mine.size else np.flatnonzero(is_known)
    latest = shown[after_ns[shown].argmax()]
    begins_ns = np.array([span[0] if (span := member.span_ns()) else 0 for member in members])
    return RankWait(
        kernel=members[0].timeline.launch.kernel.name,
        index=index,
        scope=scope,
        places=tuple(member.place_name for member in members),
        visits=int(common.size),
        unknown=int((~is_known).sum()),
        last=members[rank].place_name,
        last_in=len(mine),
        after_ns=float(np.median(after_ns[mine])) if mine.size else 0.0,
        max_ns=int(after_ns[latest]),
        cta=int(rows[rank]["cta"][latest]) if mine.size else -1,
        begins_after_ns=int(begins_ns[rank] - np.delete(begins_ns, rank).max()),
        waited_ns=tuple(np.median(leaves_ns - arrives_ns, axis=1).tolist()),
        error_ns=error_ns,
    )


def _is_for_the_last(
    after_ns: NDArray[np.int64], left_ns: NDArray[np.int64], waited_ns: NDArray[np.int64], error_ns: int
) -> NDArray[np.bool_]:
    """Return whether the last rank but one waited for the last, which came ``after_ns`` after it, wait by wait.

    It leaves within a trip over NVLink after the last has come, or a little before (``left_ns``): that one sets its
    flag, and then begins to wait, too. If it has left after a short part of the time, it waited for something else.
    """
    is_at_once = np.abs(left_ns) <= error_ns + MAX_LATE_NS
    is_known: NDArray[np.bool_] = is_at_once & ((waited_ns >= _MIN_WAITED * after_ns) | (after_ns <= error_ns))
    return is_known

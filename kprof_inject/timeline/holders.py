"""CTAs that hold others up: their changes of flags end waits, and come later than those of other CTAs.

The critical path of launches leads through such waits: from the CTA that ends last back to the CTA for which it waited,
and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import distinct_names
from kprof_inject.timeline.task_runs import TasksOfLaunch
from kprof_inject.timeline.wait_ends import Ending, WaitEnds

MAX_HOLDERS = 3
_MAX_STEPS = 10_000
_NONE = -1


class Work(Struct, frozen=True):
    """A CTA's time without waits for others, ``begin_ns`` to ``end_ns`` on the axis.

    It was mostly in ``scope``, without the scopes in it; empty if it was in none. ``launch`` is the index of the
    launch.
    """

    launch: int
    cta: int
    begin_ns: int
    end_ns: int
    scope: str

    @property
    def duration_ns(self) -> int:
        """Length of the work."""
        return self.end_ns - self.begin_ns


class Holder(Struct, frozen=True):
    """CTA ``cta`` of ``place``, whose ``change`` of a flag ended ``waits`` of ``ctas`` CTAs in ``launches`` launches.

    They waited ``held_ns`` in total, at most ``longest_ns``. The change came ``late_ns`` after the median CTA's
    (median), after work mostly in scope ``work``, ``work_ns`` long (median). It was in these ``tasks``, if any are
    tagged.
    """

    place: str
    cta: int
    change: str
    waits: int
    ctas: int
    launches: int
    held_ns: int
    longest_ns: int
    late_ns: float
    work: str
    work_ns: float
    tasks: tuple[int, ...] = ()


class FlagWaits(Struct, frozen=True):
    """The waits in one ``scope`` of a kernel: how they ended, and those who held them up, the worst first.

    Of ``waits``, others ended ``ended`` while the CTA waited; the flag of ``before`` was set when it came; of
    ``tagged`` ones only the rank is known, by the user's tag. What ended the ``unknown`` ones is not known: of these,
    ``not_recorded`` have no recorded change that explains the end, and the rest two that came too close to each other,
    or no address.
    """

    kernel: str
    scope: str
    waits: int
    ended: int
    before: int
    tagged: int
    unknown: int
    not_recorded: int
    holders: tuple[Holder, ...]


def flag_waits(ends: Sequence[WaitEnds]) -> list[FlagWaits]:
    """Return the waits in each scope of each kernel, in the order of the scopes."""
    return [waits for one in ends for waits in _WorkBefore(one).by_scope()]


def critical_path(ends: WaitEnds, launches: Iterable[int]) -> list[Work]:
    """Return the critical path of launches (indices) that ran at the same time, from its begin to the last end.

    Empty if no wait for another CTA is on it.
    """
    found = _WorkBefore(ends)
    last = max(
        ((int(cta["post_final_ns"]), launch, int(cta["cta"])) for launch in launches for cta in found.ctas_of(launch)),
        default=None,
    )
    if last is None:
        return []
    at_ns, launch, cta = last
    at_ns = ends.visits.launches[launch].clock.ns_on_axis(at_ns)
    path: list[Work] = []
    for _ in range(_MAX_STEPS):
        work, wait = found.work_until(launch, cta, at_ns)
        path.append(work)
        if wait == _NONE:
            break
        change = ends.visits.changes[ends.changes[wait]]
        launch, cta, at_ns = int(change["launch"]), int(change["cta"]), min(int(change["ends_ns"]), work.begin_ns)
    return path[::-1] if len(path) > 1 else []


class _WorkBefore:
    """The work of CTAs between their waits for others."""

    def __init__(self, ends: WaitEnds) -> None:
        self._ends = ends
        self._launches = ends.visits.launches
        self._names = [distinct_names(placed.timeline.table.scopes) for placed in self._launches]
        waits = ends.visits.waits
        self._arrows = ends.arrows()
        # A change before the CTA came did not hold it up.
        came_ns = ends.visits.changes["ends_ns"][ends.changes[self._arrows]]
        held = self._arrows[came_ns > waits["arrives_ns"][self._arrows]]
        self._held: dict[tuple[int, int], list[int]] = {}
        for at in held.tolist():
            self._held.setdefault((int(waits["launch"][at]), int(waits["cta"][at])), []).append(at)
        self._rows: dict[int, NDArray[np.void]] = {}
        self._tasks = TasksOfLaunch(ends.visits)

    def ctas_of(self, launch: int) -> NDArray[np.void]:
        return self._launches[launch].timeline.ctas

    def work_until(self, launch: int, cta: int, end_ns: int) -> tuple[Work, int]:
        """Return a CTA's work up to a time, since the last wait for another CTA, and that wait; -1 if there is none."""
        waits = self._ends.visits.waits
        before = [at for at in self._held.get((launch, cta), ()) if waits["leaves_ns"][at] <= end_ns]
        wait = before[-1] if before else _NONE
        begin_ns = int(waits["leaves_ns"][wait]) if before else self._begin_ns(launch, cta)
        return Work(launch, cta, min(begin_ns, end_ns), end_ns, self._mostly_in(launch, cta, begin_ns, end_ns)), wait

    def _begin_ns(self, launch: int, cta: int) -> int:
        ctas = self.ctas_of(launch)
        return self._launches[launch].clock.ns_on_axis(int(ctas["init_ns"][ctas["cta"] == cta][0]))

    def _mostly_in(self, launch: int, cta: int, begin_ns: int, end_ns: int) -> str:
        """Return the scope in which a CTA's first warp spent most of a time, without the scopes inside."""
        rows = self._scopes(launch)
        first, last = np.searchsorted(rows["cta"], (cta, cta + 1))
        own = rows[first:last]
        own = own[own["warp"] == own["warp"].min()] if own.size else own
        clock = self._launches[launch].clock
        starts = np.maximum(clock.on_axis(own["start_ns"]), begin_ns)
        inside = np.maximum(np.minimum(clock.on_axis(own["end_ns"]), end_ns) - starts, 0)
        own, inside = own[inside > 0], inside[inside > 0]
        totals: dict[int, int] = {}
        scopes = self._launches[launch].timeline.table.scopes
        for scope, spent in zip(own["scope"].tolist(), inside.tolist(), strict=True):
            totals[scope] = totals.get(scope, 0) + spent
            if (parent := scopes[scope].parent) >= 0:
                totals[parent] = totals.get(parent, 0) - spent
        return self._names[launch][max(totals, key=totals.__getitem__)] if totals else ""

    def _scopes(self, launch: int) -> NDArray[np.void]:
        if launch not in self._rows:
            rows = self._launches[launch].timeline.scopes
            self._rows[launch] = rows[np.argsort(rows["cta"], kind="stable")]
        return self._rows[launch]

    def by_scope(self) -> Iterator[FlagWaits]:
        visits = self._ends.visits
        groups: dict[tuple[str, int, str], list[int]] = {}
        for at, (launch, scope) in enumerate(visits.waits[["launch", "scope"]].tolist()):
            kernel = self._launches[launch].timeline.launch.kernel.name
            groups.setdefault((kernel, scope, self._names[launch][scope]), []).append(at)
        is_arrow = np.zeros(len(visits.waits), dtype=bool)
        is_arrow[self._arrows] = True
        for (kernel, _, name), members in sorted(groups.items()):
            own = np.array(members)
            endings = self._ends.endings[own]
            ended = int(is_arrow[own].sum())
            known = np.isin(endings, (Ending.CHANGED, Ending.CHANGED_BEFORE))
            yield FlagWaits(
                kernel=kernel,
                scope=name,
                waits=len(own),
                ended=ended,
                before=int(known.sum()) - ended,
                tagged=int((endings == Ending.TAGGED).sum()),
                unknown=int((~known & (endings != Ending.TAGGED)).sum()),
                not_recorded=int((endings == Ending.NOT_RECORDED).sum()),
                holders=tuple(self._holders(own[is_arrow[own]])),
            )

    def _holders(self, waits_at: NDArray[np.int64]) -> Iterator[Holder]:
        """Yield those whose changes ended these waits, with the longest waits in total first."""
        visits = self._ends.visits
        waits, change_at = visits.waits[waits_at], self._ends.changes[waits_at]
        changes = visits.changes[change_at]
        held_ns = np.maximum(waits["leaves_ns"] - waits["arrives_ns"], 0)
        groups: dict[tuple[str, int, str], list[int]] = {}
        for number, change in enumerate(changes):
            launch = int(change["launch"])
            key = self._launches[launch].place_name, int(change["cta"]), self._names[launch][int(change["scope"])]
            groups.setdefault(key, []).append(number)
        totals = {key: int(held_ns[numbers].sum()) for key, numbers in groups.items()}
        for key in sorted(groups, key=lambda one: -totals[one])[:MAX_HOLDERS]:
            own = np.array(groups[key])
            works = [self._work_before(change) for change in np.unique(change_at[own]).tolist()]
            scopes = [work.scope for work in works]
            mostly = max(scopes, key=scopes.count)
            yield Holder(
                *key,
                waits=len(own),
                ctas=len(np.unique(waits[own][["launch", "cta"]])) // max(len(np.unique(waits["launch"][own])), 1),
                launches=len(np.unique(changes["launch"][own])),
                held_ns=totals[key],
                longest_ns=int(held_ns[own].max()),
                late_ns=median(self._late_ns(change) for change in np.unique(change_at[own]).tolist()),
                work=mostly,
                work_ns=median(work.duration_ns for work in works if work.scope == mostly),
                tasks=tuple(dict.fromkeys(self._tasks_of(changes[own]))),
            )

    def _tasks_of(self, changes: NDArray[np.void]) -> Iterator[int]:
        for change in changes:
            task = self._tasks.task_at(int(change["launch"]), int(change["cta"]), int(change["begins_ns"]))
            if task is not None:
                yield task

    def _work_before(self, change: int) -> Work:
        one = self._ends.visits.changes[change]
        return self.work_until(int(one["launch"]), int(one["cta"]), int(one["begins_ns"]))[0]

    def _late_ns(self, change: int) -> float:
        """Return how long after the median CTA's a change came, of the launch's same scope and round."""
        changes = self._ends.visits.changes
        one = changes[change]
        alike = (changes["launch"] == one["launch"]) & (changes["scope"] == one["scope"])
        alike &= changes["round"] == one["round"]
        return float(one["begins_ns"] - np.median(changes["begins_ns"][alike]))

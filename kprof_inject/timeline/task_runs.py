"""Tasks of persistent kernels: the runs of scopes with a tag named ``task``, by its value."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.flag_visits import FlagVisits
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.wait_ends import WaitEnds

TASK = "task"
"""Name of the tag that says which task a scope runs."""
_RUN = np.dtype([("cta", "i4"), ("sm", "i4"), ("task", "i8"), ("start_ns", "i8"), ("end_ns", "i8")])
_NONE = -1


class TaskStatistics(Struct, frozen=True):
    """Runs of task ``task`` in one ``scope`` of a launch, by CTA.

    They take ``total_ns`` in all, ``p50_ns`` each (median), of which they wait for flags for ``waits_ns`` in all. They
    run on ``sms`` SMs; the one that has most of them has ``uneven`` times the mean. Of the waits, ``depends_on`` has
    the tasks of this scope whose changes ended them, each with the number of waits and their time in nanoseconds, the
    longest first.
    """

    scope: int
    task: int
    runs: int
    total_ns: int
    p50_ns: float
    waits_ns: int
    sms: int
    uneven: float
    depends_on: tuple[tuple[int, int, int], ...]


def task_places(table: ScopeTable) -> dict[int, int]:
    """Return the scopes that have a task, each with the place of that tag."""
    return {
        index: place
        for index, scope in enumerate(table.scopes)
        for place, tag in enumerate(scope.tags)
        if tag.name == TASK
    }


def task_runs(timeline: Timeline, scope: int) -> NDArray[np.void]:
    """Return the runs of a scope with a task, of each CTA's first warp, by CTA and start, on the device's timer."""
    place = task_places(timeline.table)[scope]
    found = [np.empty(0, dtype=_RUN)]
    for block in timeline.blocks():
        rows = block[block["scope"] == scope]
        if not rows.size:
            continue
        begins = np.flatnonzero(np.diff(rows["cta"], prepend=_NONE))
        first_warp = np.repeat(rows["warp"][begins], np.diff(np.append(begins, len(rows))))
        rows = rows[(rows["warp"] == first_warp) & (rows["tags"][:, place] != NO_TAG)]
        runs = np.empty(len(rows), dtype=_RUN)
        for field in ("cta", "sm", "start_ns", "end_ns"):
            runs[field] = rows[field]
        runs["task"] = rows["tags"][:, place]
        found.append(runs)
    return np.concatenate(found)


def run_at(runs: NDArray[np.void], cta: int, at_ns: int) -> int:
    """Return the index of the run of a CTA at a time, -1 if there is none; ``runs`` are by CTA and start."""
    first, last = np.searchsorted(runs["cta"], (cta, cta + 1))
    at = int(first + np.searchsorted(runs["start_ns"][first:last], at_ns, "right")) - 1
    return at if at >= first and at_ns <= runs["end_ns"][at] else _NONE


class TasksOfLaunch:
    """Runs of tasks in some launches, to find the task of a CTA at a time."""

    def __init__(self, visits: FlagVisits) -> None:
        """Prepare for the launches; each is read when it is first asked for."""
        self._launches = visits.launches
        self._runs: dict[int, list[tuple[int, NDArray[np.void]]]] = {}

    def runs(self, launch: int) -> list[tuple[int, NDArray[np.void]]]:
        """Return the scopes of a launch that have a task, each with its runs by the axis's time."""
        if launch not in self._runs:
            placed = self._launches[launch]
            self._runs[launch] = []
            for scope in task_places(placed.timeline.table):
                runs = task_runs(placed.timeline, scope)
                for field in ("start_ns", "end_ns"):
                    runs[field] = placed.clock.on_axis(runs[field])
                self._runs[launch].append((scope, runs))
        return self._runs[launch]

    def task_at(self, launch: int, cta: int, at_ns: int) -> int | None:
        """Return the task that a CTA ran at a time of the axis, None if it ran none: that of the innermost scope."""
        for _, runs in reversed(self.runs(launch)):
            if (at := run_at(runs, cta, at_ns)) >= 0:
                return int(runs["task"][at])
        return None


def task_statistics(ends: WaitEnds, launch: int) -> list[TaskStatistics]:
    """Return the statistics of each task of a launch (an index), by scope and the time that the task takes."""
    tasks = TasksOfLaunch(ends.visits)
    return [found for scope, runs in tasks.runs(launch) for found in _of_scope(ends, launch, tasks, scope, runs)]


def _of_scope(
    ends: WaitEnds, launch: int, tasks: TasksOfLaunch, scope: int, runs: NDArray[np.void]
) -> Iterator[TaskStatistics]:
    waited_ns, dependences = _waits_in(ends, launch, tasks, runs)
    durations_ns = runs["end_ns"] - runs["start_ns"]
    values, which = np.unique(runs["task"], return_inverse=True)
    totals_ns = np.bincount(which, durations_ns, len(values))
    for at in np.argsort(-totals_ns, kind="stable").tolist():
        own = np.flatnonzero(which == at)
        _, sm = np.unique(runs["sm"][own], return_inverse=True)
        by_sm = np.bincount(sm, durations_ns[own])
        task = int(values[at])
        yield TaskStatistics(
            scope=scope,
            task=task,
            runs=len(own),
            total_ns=int(totals_ns[at]),
            p50_ns=float(np.median(durations_ns[own])),
            waits_ns=int(waited_ns[own].sum()),
            sms=len(by_sm),
            uneven=float(by_sm.max() / max(by_sm.mean(), 1)),
            depends_on=tuple(dependences.get(task, ())),
        )


def _waits_in(
    ends: WaitEnds, launch: int, tasks: TasksOfLaunch, runs: NDArray[np.void]
) -> tuple[NDArray[np.int64], dict[int, list[tuple[int, int, int]]]]:
    """Return how long each run waits for flags, and for each task those that ended its waits."""
    waits, changes = ends.visits.waits, ends.visits.changes
    waited_ns = np.zeros(len(runs), dtype=np.int64)
    found: dict[tuple[int, int], list[int]] = {}
    is_arrow = np.zeros(len(waits), dtype=bool)
    is_arrow[ends.arrows()] = True
    for at in np.flatnonzero(waits["launch"] == launch).tolist():
        wait = waits[at]
        run = run_at(runs, int(wait["cta"]), int(wait["arrives_ns"]))
        if run == _NONE:
            continue
        wait_ns = max(int(wait["leaves_ns"] - wait["arrives_ns"]), 0)
        waited_ns[run] += wait_ns
        if is_arrow[at]:
            change = changes[ends.changes[at]]
            by = tasks.task_at(int(change["launch"]), int(change["cta"]), int(change["begins_ns"]))
            if by is not None:
                found.setdefault((int(runs["task"][run]), by), []).append(wait_ns)
    dependences: dict[int, list[tuple[int, int, int]]] = {}
    for (task, by), times_ns in sorted(found.items(), key=lambda one: -sum(one[1])):
        dependences.setdefault(task, []).append((by, len(times_ns), sum(times_ns)))
    return waited_ns, dependences

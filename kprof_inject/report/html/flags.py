"""Flags on the page: what ended each wait of a launch, for arrows on its timeline, and the table of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.scopes import distinct_names
from kprof_inject.errors import printable
from kprof_inject.report.flag_notes import wait_ends_in
from kprof_inject.report.html.page_schema import FlagArrows, TaskRow, TaskTable
from kprof_inject.report.html.pictures import packed
from kprof_inject.report.html.scope_columns import rows_on_page
from kprof_inject.timeline.task_runs import TaskStatistics, task_statistics
from kprof_inject.timeline.wait_ends import WaitEnds

_MAX_ROWS = 64
_MAX_OTHERS = 3
# For a scope that is not on the page, and for the launch itself.
_NOT_HERE = _OWN_LAUNCH = -1


class PageFlags:
    """The waits for flags in the launches of a page, with what ended them."""

    def __init__(self, reports: Sequence[LaunchAnalysis]) -> None:
        """Match the waits of all launches with the changes that ended them: other launches may end those of one."""
        self._found = {
            id(placed.timeline.launch): (ends, number)
            for ends in wait_ends_in(reports)
            for number, placed in enumerate(ends.visits.launches)
        }

    def arrows(self, report: LaunchAnalysis, shown: NDArray[np.bool_] | None) -> FlagArrows | None:
        """Return what ended the waits of a launch in the CTAs ``shown`` (see ``Shown.ctas``).

        None if no other CTA ended one, as far as it is known.
        """
        ends, number = self._found.get(id(report.launch), (None, 0))
        return _arrows(ends, number, shown) if ends else None

    def tasks(self, report: LaunchAnalysis) -> tuple[TaskTable, ...]:
        """Return the tasks of a launch, a table for each scope that has some."""
        ends, number = self._found.get(id(report.launch), (None, 0))
        return tuple(_tables(task_statistics(ends, number))) if ends else ()


def _arrows(ends: WaitEnds, number: int, shown: NDArray[np.bool_] | None) -> FlagArrows | None:
    launches = ends.visits.launches
    timeline = launches[number].timeline
    at = ends.arrows()
    waits, changes = ends.visits.waits[at], ends.visits.changes[ends.changes[at]]
    of_launch = waits["launch"] == number
    waits, changes = waits[of_launch], changes[of_launch]
    wait = rows_on_page(timeline, waits["row"], shown)
    order = np.argsort(wait)
    order = order[wait[order] >= 0]
    if not order.size:
        return None
    wait, changes = wait[order], changes[order]
    is_own = changes["launch"] == number
    change = np.full(len(changes), _NOT_HERE)
    change[is_own] = rows_on_page(timeline, changes["row"][is_own], shown)
    launch = np.full(len(changes), _OWN_LAUNCH)
    others, launch[~is_own] = np.unique(changes["launch"][~is_own], return_inverse=True)
    names = [distinct_names(placed.timeline.table.scopes) for placed in launches]
    scopes, scope = np.unique([names[of][index] for of, index in changes[["launch", "scope"]]], return_inverse=True)
    return FlagArrows(
        launches=[printable(launches[other].title) for other in others.tolist()],
        scopes=[printable(name) for name in scopes.tolist()],
        wait=packed(wait, "i4"),
        change=packed(change, "i4"),
        launch=packed(launch, "i4"),
        cta=packed(changes["cta"], "i4"),
        scope=packed(scope, "i4"),
    )


def _tables(tasks: Sequence[TaskStatistics]) -> Iterator[TaskTable]:
    for scope, found in groupby(tasks, key=lambda task: task.scope):
        own = list(found)
        total_ns = sum(task.total_ns for task in own) or 1
        rows = tuple(_row(task, total_ns) for task in own[:_MAX_ROWS])
        yield TaskTable(scope, rows, len(own) - len(rows))


def _row(task: TaskStatistics, total_ns: int) -> TaskRow:
    others = tuple((by, waited_ns) for by, _, waited_ns in task.depends_on)
    return TaskRow(
        task=task.task,
        runs=task.runs,
        total_ns=task.total_ns,
        share=task.total_ns / total_ns,
        p50_ns=task.p50_ns,
        waits_share=task.waits_ns / task.total_ns if task.total_ns else None,
        sms=task.sms,
        uneven=task.uneven,
        waits_for=others[:_MAX_OTHERS],
        more=max(len(others) - _MAX_OTHERS, 0),
    )

"""Flags on the page: the table of a launch's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.report.flag_notes import wait_ends_in
from kprof_inject.report.html.page_schema import TaskRow, TaskTable
from kprof_inject.timeline.task_runs import TaskStatistics, task_statistics

_MAX_ROWS = 64
_MAX_OTHERS = 3


class PageFlags:
    """The waits for flags in the launches of a page, with what ended them."""

    def __init__(self, reports: Sequence[LaunchAnalysis]) -> None:
        """Match the waits of all launches with the changes that ended them: other launches may end those of one."""
        self._found = {
            id(placed.timeline.launch): (ends, number)
            for ends in wait_ends_in(reports)
            for number, placed in enumerate(ends.visits.launches)
        }

    def tasks(self, report: LaunchAnalysis) -> tuple[TaskTable, ...]:
        """Return the tasks of a launch, a table for each scope that has some."""
        ends, number = self._found.get(id(report.launch), (None, 0))
        return tuple(_tables(task_statistics(ends, number))) if ends else ()


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

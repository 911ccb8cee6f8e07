"""The table of a launch's tasks: how long they take and wait, on which SMs, and for which other tasks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from kprof_inject.quantities import counted, percent, ratio, short_time
from kprof_inject.report.terminal.tables import Column, print_plain, say
from kprof_inject.timeline.task_runs import TASK, TaskStatistics

_MAX_ROWS = 12
_MAX_OTHERS = 3


def print_tasks(tasks: Sequence[TaskStatistics], scope_names: Sequence[str], console: Console) -> None:
    """Print a table for each scope with tasks, of which ``scope_names`` are by the scope's index."""
    for scope, found in groupby(tasks, key=lambda task: task.scope):
        own = list(found)
        shown = own[:_MAX_ROWS]
        say("", console)
        print_plain([_columns(scope_names[scope], own, shown)], console)
        if len(own) > len(shown):
            say(f"{counted(len(own) - len(shown), f'shorter {TASK}')} hidden", console)


def _columns(scope: str, tasks: Sequence[TaskStatistics], shown: Sequence[TaskStatistics]) -> list[Column]:
    total_ns = sum(task.total_ns for task in tasks) or 1
    return [
        Column(f"{scope} by {TASK}", [str(task.task) for task in shown], name=True),
        Column("runs", [str(task.runs) for task in shown]),
        Column("total", [short_time(task.total_ns) for task in shown]),
        Column("share", [percent(task.total_ns / total_ns) for task in shown]),
        Column("p50", [short_time(task.p50_ns) for task in shown]),
        Column("waits", [percent(task.waits_ns / task.total_ns) if task.total_ns else "-" for task in shown]),
        Column("SMs", [str(task.sms) for task in shown]),
        Column("busiest SM", [f"{ratio(task.uneven)} mean" for task in shown]),
        Column("waits for", [_others(task) for task in shown], name=True),
    ]


def _others(task: TaskStatistics) -> str:
    """Return the tasks whose flags ended this one's waits, each with the time."""
    shown = [f"{by} ({short_time(waited_ns)})" for by, _, waited_ns in task.depends_on[:_MAX_OTHERS]]
    more = len(task.depends_on) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more > 0 else [])])

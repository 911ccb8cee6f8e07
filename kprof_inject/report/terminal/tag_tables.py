"""What a terminal shows of the tags of a launch's scopes: a row for each value, that which takes most first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import counted, ratio, short_time
from kprof_inject.report.terminal.tables import Column, print_plain, say
from kprof_inject.timeline.tag_statistics import TagStatistics

_MOST_ROWS = 8


def print_tags(summary: LaunchSummary, console: Console) -> None:
    """A table for each tag of each scope; nothing without any."""
    for scope in summary.scopes:
        for tag in scope.tags:
            if tag.values:
                print_plain([_columns(scope.scope, tag)], console)
            if left_out := ", ".join(_left_out(tag)):
                say(f"{scope.scope} by {tag.name}: {left_out}", console)


def _columns(scope: str, tag: TagStatistics) -> list[Column]:
    rows = tag.values[:_MOST_ROWS]
    return [
        Column(f"{scope} by {tag.name}", [str(row.value) for row in rows], name=True),
        Column("count", [str(row.count) for row in rows]),
        Column("total", [short_time(row.total_ns) for row in rows]),
        Column("p50", [short_time(row.p50_ns) for row in rows]),
        Column("to the others", ["-" if row.times_others is None else ratio(row.times_others) for row in rows]),
    ]


def _left_out(tag: TagStatistics) -> Iterator[str]:
    if tag.distinct > _MOST_ROWS:
        yield f"{counted(tag.distinct - _MOST_ROWS, 'more value')}, which take less"
    if tag.unknown:
        yield f"{counted(tag.unknown, 'value')} unknown"

"""Tags of a launch's scopes on a terminal: a row for each value, the largest total first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import counted, ratio, short_time
from kprof_inject.report.terminal.tables import Column, Room, print_plain, say
from kprof_inject.timeline.scope_statistics import TagStatistics

_MAX_ROWS, _MIN_ROWS = 8, 2
_MAX_TABLES = 2
# The titles, the minimum number of rows, and the line on those left out.
_MIN_LINES = 1 + _MIN_ROWS + 1


def min_tag_lines(summary: LaunchSummary) -> int:
    """Return how many lines ``print_tags`` needs to show one table and the number of the others."""
    return min(len(_tagged(summary)), 1) * (_MIN_LINES + 1)


def print_tags(summary: LaunchSummary, console: Console, room: Room | None = None) -> Room:
    """Print a table for each of the first tags, and return what is left of the ``room``."""
    room = room or Room()
    tagged, shown = _tagged(summary), 0
    for scope, tag in tagged[:_MAX_TABLES]:
        if not room.holds(_MIN_LINES):
            break
        room = _print_tag(scope, tag, console, room)
        shown += 1
    if hidden := tagged[shown:]:
        scope, tag = hidden[0]
        say(f"{counted(len(hidden), 'tag')} more, such as {scope} by {tag.name}: {room.rest}", console)
        room = room.below(1)
    return room


def print_more_tags(summary: LaunchSummary, console: Console) -> None:
    """Print the tables that ``print_tags`` leaves out."""
    for scope, tag in _tagged(summary)[_MAX_TABLES:]:
        _print_tag(scope, tag, console, Room())


def _tagged(summary: LaunchSummary) -> list[tuple[str, TagStatistics]]:
    return [(scope.distinct_name, tag) for scope in summary.scopes for tag in scope.tags]


def _print_tag(scope: str, tag: TagStatistics, console: Console, room: Room) -> Room:
    count = room.rows(min(len(tag.values), _MAX_ROWS), min(len(tag.values), _MIN_ROWS), lambda rows: rows + 2)
    if count:
        print_plain([_columns(scope, tag, count)], console)
        room = room.below(1 + count)
    if left_out := ", ".join(_left_out(tag, count)):
        say(f"{scope} by {tag.name}: {left_out}", console)
        room = room.below(1)
    return room


def _columns(scope: str, tag: TagStatistics, count: int) -> list[Column]:
    rows = tag.values[:count]
    return [
        Column(f"{scope} by {tag.name}", [str(row.value) for row in rows], name=True),
        Column("count", [str(row.count) for row in rows]),
        Column("total", [short_time(row.total_ns) for row in rows]),
        Column("p50", [short_time(row.p50_ns) for row in rows]),
        Column("to the others", ["-" if row.times_others is None else ratio(row.times_others) for row in rows]),
    ]


def _left_out(tag: TagStatistics, shown: int) -> Iterator[str]:
    if tag.distinct > shown:
        yield f"{counted(tag.distinct - shown, 'more value')}, which take less"
    if tag.unknown:
        yield f"{counted(tag.unknown, 'value')} unknown"

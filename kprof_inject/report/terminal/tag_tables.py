"""What a terminal shows of the tags of a launch's scopes: a row for each value, that which takes most first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import counted, ratio, short_time
from kprof_inject.report.terminal.tables import Column, Room, print_plain, say
from kprof_inject.timeline.tag_statistics import TagStatistics

_MAX_ROWS, _LEAST_ROWS = 8, 2
_MOST_TABLES = 2
# Titles, the fewest rows, and what is left out.
_LEAST_LINES = 1 + _LEAST_ROWS + 1


def least_tag_lines(summary: LaunchSummary) -> int:
    """How many lines to leave for ``print_tags``, so that a tag is seen: one table, and that there are more."""
    return min(len(_tagged(summary)), 1) * (_LEAST_LINES + 1)


def print_tags(summary: LaunchSummary, console: Console, room: Room | None = None) -> Room:
    """A table for each tag of each scope, of the first of them; nothing without any. Returns what is left of the
    ``room``."""
    room = room or Room()
    tagged, shown = _tagged(summary), 0
    for scope, tag in tagged[:_MOST_TABLES]:
        if not room.holds(_LEAST_LINES):
            break
        room = _print_tag(scope, tag, console, room)
        shown += 1
    if others := tagged[shown:]:
        say(f"{counted(len(others), 'tag')} more, such as {others[0][0]} by {others[0][1].name}: {room.rest}", console)
        room = room.below(1)
    return room


def print_more_tags(summary: LaunchSummary, console: Console) -> None:
    """Those that ``print_tags`` leaves out."""
    for scope, tag in _tagged(summary)[_MOST_TABLES:]:
        _print_tag(scope, tag, console, Room())


def _tagged(summary: LaunchSummary) -> list[tuple[str, TagStatistics]]:
    return [(scope.distinct_name, tag) for scope in summary.scopes for tag in scope.tags]


def _print_tag(scope: str, tag: TagStatistics, console: Console, room: Room) -> Room:
    count = room.rows(min(len(tag.values), _MAX_ROWS), min(len(tag.values), _LEAST_ROWS), lambda rows: rows + 2)
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

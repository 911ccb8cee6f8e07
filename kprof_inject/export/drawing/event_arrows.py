"""Arrows from where events start to where they end, perhaps in another warp.

Each end of an arrow is an instant on the track of its warp, where it disturbs no scope. An end that belongs to several
arrows has the arguments of the longest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.export.drawing.row_arrows import ArrowEnds, arrows_of_rows
from kprof_inject.export.drawing.scene import Arg, Arrows, EventKind, Events, Mask, Numbers, Picked
from kprof_inject.timeline.columns import EVENT_COLUMNS, SCOPE_COLUMNS
from kprof_inject.timeline.timeline import Timeline

_NAME = "event"
ORDERS_OF_RECORD = 4
"""Distance of two records' order numbers: an instant takes two, as a slice with its start and end would."""

_NO_EVENTS = np.empty(0, EVENT_COLUMNS)


def with_events(timeline: Timeline) -> Iterator[tuple[NDArray[np.void], NDArray[np.void]]]:
    """Yield the blocks of scopes, each with the events of the same CTAs.

    Both come in the order of CTA rows, and only one of two blocks may be there.
    """
    if not timeline.table.events:
        yield from ((block, _NO_EVENTS) for block in timeline.blocks() if block.size)
        return
    row = _Rows(timeline)
    events = timeline.events()
    waiting = next(events, None)
    for block in timeline.blocks():
        first, last = row.span(block)
        while waiting is not None and row.span(waiting)[1] < first:
            yield block[:0], waiting
            waiting = next(events, None)
        if waiting is not None and row.span(waiting)[0] <= last:
            yield block, waiting
            waiting = next(events, None)
        else:
            yield block, _NO_EVENTS
    while waiting is not None:
        yield np.empty(0, timeline.columns), waiting
        waiting = next(events, None)


class _Rows:
    """The row of each CTA in the launch's buffer, by which blocks are ordered."""

    def __init__(self, timeline: Timeline) -> None:
        ctas = timeline.ctas_that_ran["cta"]
        self._order = np.argsort(ctas, kind="stable")
        self._ctas = ctas[self._order]

    def of(self, block: NDArray[np.void]) -> Numbers:
        found: Numbers = self._order[np.searchsorted(self._ctas, block["cta"])]
        return found

    def span(self, block: NDArray[np.void]) -> tuple[int, int]:
        """Return the first and the last row of a block."""
        first, last = self.of(block[[0, -1]]).tolist()
        return first, last


class EventPoints(Struct, frozen=True):
    """Starts and ends of a block's events, one row each, in the order of CTA row, warp and record.

    ``rows`` are ``SCOPE_COLUMNS`` of which only the place, the scope and the start are set. ``start`` and ``end`` are
    the rows of each event's two ends, and ``longest`` is for each row the longest of its events.
    """

    rows: NDArray[np.void]
    is_end: Mask
    events: NDArray[np.void]
    start: Numbers
    end: Numbers
    longest: Numbers

    @classmethod
    def of(cls, events: NDArray[np.void]) -> EventPoints:
        """Find the points of a block of events (``EVENT_COLUMNS``); several events may share one."""
        count = len(events)
        both = np.zeros(2 * count, dtype=SCOPE_COLUMNS)
        for half, side in ((slice(0, count), "start"), (slice(count, None), "end")):
            for name in ("cta", "sm", "scope"):
                both[name][half] = events[name]
            both["warp"][half] = events[f"{side}_warp"]
            both["start_record"][half] = events[f"{side}_record"]
            both["start_cycles"][half] = events[f"{side}_cycles"]
            both["start_ns"][half] = both["end_ns"][half] = events[f"{side}_ns"]
        # CTAs keep the order of the block.
        _, first, cta = np.unique(both["cta"], return_index=True, return_inverse=True)
        order = np.lexsort((both["start_record"], both["warp"], first[cta]))
        ordered = both[order]
        is_new = np.append(True, (ordered[1:] != ordered[:-1]))[: len(ordered)]
        point = np.empty(2 * count, dtype=np.int64)
        point[order] = np.cumsum(is_new) - 1
        duration = np.tile(events["end_ns"] - events["start_ns"], 2)
        by_duration = np.argsort(duration, kind="stable")
        longest = np.empty(int(is_new.sum()), dtype=np.int64)
        # The last assignment to a repeated index wins.
        longest[point[by_duration]] = by_duration % max(count, 1)
        return cls(ordered[is_new], order[is_new] >= count, events, point[:count], point[count:], longest)

    def args(self) -> Iterator[Arg]:
        """Yield the arguments: the warp at the other end of the arrow, and the duration as recorded."""
        longest = self.events[self.longest]
        yield Arg("start_cycles", self.rows["start_cycles"].astype(np.int64))
        yield Arg("to_warp", longest["end_warp"].astype(np.int64), ~self.is_end)
        yield Arg("from_warp", longest["start_warp"].astype(np.int64), self.is_end)
        yield Arg("duration_cycles", longest["end_cycles"] - longest["start_cycles"])
        yield Arg("duration_ns", longest["end_ns"] - longest["start_ns"])

    def arrows(self, first_id: int, start_ns: Numbers) -> tuple[Arrows, ...]:
        """Return both ends of the arrows, with IDs from ``first_id`` on; ``start_ns`` are the points on the axis."""
        ids = first_id + np.arange(len(self.events))
        ends = [
            ArrowEnds(_NAME, arrive, rows, ids, start_ns[rows])
            for arrive, rows in ((False, self.start), (True, self.end))
        ]
        return tuple(arrows_of_rows(ends, 0, len(self.rows)))


def end_kind(kind: EventKind) -> EventKind:
    """Return the kind of the ends of the events whose starts are of ``kind``."""
    return replace(kind, name=f"{kind.name} ends")


def joined(scopes: Events, points: Events, key_of_group: Numbers, key: Numbers) -> Events:
    """Return the events of both on the same threads.

    ``key_of_group`` has a number for each group of ``scopes``, and ``key`` one for each of the ``points``: the same for
    the same warp, ascending.
    """
    keys = np.concatenate((key_of_group[scopes.group], key))
    _, group = np.unique(keys, return_inverse=True)
    start_order = np.concatenate((scopes.start_order, points.start_order))
    order = np.lexsort((start_order, group))
    of_scopes, of_points = len(scopes), len(points)
    columns: dict[str, Numbers] = {
        name: np.concatenate((getattr(scopes, name), getattr(points, name)))[order]
        for name in ("tids", "start_ns", "end_ns", "end_order")
    }
    return Events(
        pid=scopes.pid,
        kinds=[*scopes.kinds, *points.kinds],
        kind=np.concatenate((scopes.kind, points.kind + len(scopes.kinds)))[order],
        group=group[order],
        start_order=start_order[order],
        args=(
            *(_spread(arg, 0, of_points, order) for arg in scopes.args),
            *(_spread(arg, of_scopes, 0, order) for arg in points.args),
        ),
        arrows=tuple(
            replace(one, ids=_padded(one.ids, *around)[order], at_ns=_padded(one.at_ns, *around)[order])
            for arrows, around in ((scopes.arrows, (0, of_points)), (points.arrows, (of_scopes, 0)))
            for one in arrows
        ),
        **columns,
    )


def _padded(values: NDArray[Any], before: int, after: int) -> NDArray[Any]:
    return np.pad(values, (before, after))


def _spread(arg: Arg, before: int, after: int, order: Numbers) -> Arg:
    """Return an argument of rows among others that do not show it."""
    if isinstance(arg.values, Picked):
        values: Any = Picked(arg.values.texts, _padded(arg.values.index, before, after)[order])
        count = len(arg.values.index)
    else:
        values = _padded(arg.values, before, after)[order]
        count = len(arg.values)
    shown = np.ones(count, dtype=bool) if arg.shown is None else arg.shown
    return Arg(arg.name, values, _padded(shown, before, after)[order])


def key_of(timeline: Timeline, rows: NDArray[np.void]) -> Numbers:
    """Return a number for the warp of each row, which ascends with CTA row and warp."""
    return _Rows(timeline).of(rows) << _WARP_BITS | rows["warp"].astype(np.int64)


_WARP_BITS = 16

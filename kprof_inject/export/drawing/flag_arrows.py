"""Arrows from what changed a flag to the waits that this ended, across CTAs and launches.

An arrow points to a slice at the end of the wait, from the change to the end: viewers take the slice that begins later
for the end of an arrow, and a wait may begin long before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.scopes import distinct_names
from kprof_inject.export.drawing.row_arrows import ArrowEnds
from kprof_inject.export.drawing.scene import Arg, Arrows, EventKind, Events, Mask, Numbers, Picked
from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.wait_ends import WaitEnds, wait_ends

_NAME = "ends the wait"
_CHANGED = EventKind("flag changed", "wait")
# Above the IDs of the arrows that point to launches, and below those of the users' hooks.
_FIRST_ID = 1 << 31


class EndedWaits(Struct, frozen=True):
    """Waits of a launch, by the rows of their scopes, that arrows with these ``ids`` end, from ``start_ns`` on.

    The rows ascend. ``args`` have for each what ended it. Their slices end ``early_ns`` before the waits.
    """

    rows: Numbers
    ids: Numbers
    start_ns: Numbers
    args: Mapping[str, Numbers | Picked]
    early_ns: int = 0


class FlagArrows(Struct, frozen=True):
    """Arrows that leave the scopes of a launch, and the waits in it that arrows end."""

    leaving: tuple[ArrowEnds, ...] = ()
    ended: EndedWaits | None = None

    @property
    def orders_of_record(self) -> int:
        """Distance of two records' order numbers: a slice's start and end fit between if there are arrows."""
        return 1 if self.ended is None else 4

    def drawn_in(self, events: Events, first_row: int) -> Events:
        """Return the events of scopes, the first of which is ``first_row`` of the launch, with the ends of waits."""
        if self.ended is None:
            return events
        rows = self.ended.rows
        here = np.flatnonzero((rows >= first_row) & (rows < first_row + len(events)))
        return _with_ends(events, self.ended, here, rows[here] - first_row) if here.size else events


NO_FLAGS = FlagArrows()


def flag_arrows(
    placed: Sequence[PlacedLaunch], drawn: Sequence[PlacedLaunch] | None = None, early_ns: int = 0
) -> dict[int, FlagArrows]:
    """Return the arrows of each launch, by its index; launches without any are not there.

    ``drawn`` are the same launches with the clocks by which they are drawn, if these are not those of ``placed``, which
    tell what ended a wait. If times are rounded, slices that end ``early_ns`` before their waits do not outlast them.
    """
    index = {id(launch): number for number, launch in enumerate(placed)}
    found: dict[int, FlagArrows] = {}
    first_id = _FIRST_ID
    for ends in wait_ends(placed):
        numbers = [index[id(launch)] for launch in ends.visits.launches]
        shown = ends if drawn is None else ends.by_clocks_of([drawn[number] for number in numbers])
        for launch, arrows in _arrows(shown, first_id, early_ns):
            found[numbers[launch]] = arrows
        first_id += len(ends.endings)
    return found


def _arrows(ends: WaitEnds, first_id: int, early_ns: int) -> Iterator[tuple[int, FlagArrows]]:
    at = ends.arrows()
    waits, changes = ends.visits.waits[at], ends.visits.changes[ends.changes[at]]
    # The errors of two GPUs' clocks may place a change after the end of the wait: no viewer draws such an arrow.
    latest_ns = waits["ends_ns"] - early_ns - 1
    is_drawn = changes["begins_ns"] < latest_ns
    ids = first_id + np.arange(len(at))
    start_ns = np.minimum(np.maximum(waits["begins_ns"], changes["ends_ns"]), latest_ns)
    for launch in range(len(ends.visits.launches)):
        leaving = np.flatnonzero(is_drawn & (changes["launch"] == launch))
        ended = np.flatnonzero(is_drawn & (waits["launch"] == launch))
        ended = ended[np.argsort(waits["row"][ended])]
        if not leaving.size and not ended.size:
            continue
        leaves = ArrowEnds(_NAME, False, changes["row"][leaving], ids[leaving], changes["begins_ns"][leaving])
        changed_by = changes[ended]
        args: dict[str, Numbers | Picked] = {
            "by_launch": _titles(ends.visits.launches, changed_by["launch"].astype(np.int64)),
            "by_cta": changed_by["cta"].astype(np.int64),
            "by_scope": _scopes(ends.visits.launches, changed_by["launch"], changed_by["scope"]),
        }
        ends_of_waits = EndedWaits(waits["row"][ended], ids[ended], start_ns[ended], args, early_ns)
        yield launch, FlagArrows((leaves,), ends_of_waits if ended.size else None)


def _titles(launches: Sequence[PlacedLaunch], index: Numbers) -> Picked:
    return Picked([placed.title for placed in launches], index)


def _scopes(launches: Sequence[PlacedLaunch], launch: Numbers, scope: Numbers) -> Picked:
    names = [distinct_names(placed.timeline.table.scopes) for placed in launches]
    first = np.cumsum([0, *map(len, names)])[:-1]
    return Picked([name for own in names for name in own], first[launch] + scope)


def _with_ends(events: Events, ended: EndedWaits, here: Numbers, rows: Numbers) -> Events:
    """Insert a slice right after each of these rows, at the end of its own."""
    places = rows + 1 + np.arange(len(rows))
    start_ns = np.maximum(ended.start_ns[here], events.start_ns[rows])
    columns = {
        "tids": events.tids[rows],
        "kind": np.full(len(rows), len(events.kinds)),
        "start_ns": start_ns,
        "end_ns": np.maximum(events.end_ns[rows] - ended.early_ns, start_ns),
        "group": events.group[rows],
        "start_order": events.end_order[rows] - 2,
        "end_order": events.end_order[rows] - 1,
    }
    inserted = {name: np.insert(getattr(events, name), rows + 1, values) for name, values in columns.items()}
    count = len(events) + len(rows)

    def spread(values: Numbers) -> Numbers:
        whole = np.zeros(count, dtype=np.int64)
        whole[places] = values
        return whole

    is_end = spread(np.ones(len(rows), dtype=np.int64)).astype(bool)
    args = [*(_moved(arg, rows + 1, is_end) for arg in events.args)]
    for name, values in ended.args.items():
        if isinstance(values, Picked):
            args.append(Arg(name, Picked(values.texts, spread(values.index[here])), is_end))
        else:
            args.append(Arg(name, spread(values[here]), is_end))
    moved = [
        replace(one, ids=np.insert(one.ids, rows + 1, 0), at_ns=np.insert(one.at_ns, rows + 1, 0))
        for one in events.arrows
    ]
    arrows = (*moved, Arrows(spread(ended.ids[here]), arrive=True, at_ns=spread(start_ns), name=_NAME))
    return replace(events, kinds=[*events.kinds, _CHANGED], args=tuple(args), arrows=arrows, **inserted)


def _moved(arg: Arg, at: Numbers, is_end: Mask) -> Arg:
    """Return an argument with rows inserted that do not show it."""
    shown = ~is_end
    if arg.shown is not None:
        shown[~is_end] = arg.shown
    if isinstance(arg.values, Picked):
        return Arg(arg.name, Picked(arg.values.texts, np.insert(arg.values.index, at, 0)), shown)
    values: Any = np.insert(arg.values, at, 0)
    return Arg(arg.name, values, shown)

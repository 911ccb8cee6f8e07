"""Slices, instants and counters' samples as packets of ``TrackEvent``
(https://github.com/google/perfetto/blob/main/protos/perfetto/trace/track_event/track_event.proto)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kprof_inject.export.drawing.scene import Arg, Arrows, Events, Kind, Mask, Numbers
from kprof_inject.export.packets.fields import field, fixed64_key, message_fields, varint_fields, varint_key
from kprof_inject.export.packets.interning import Interned, Table
from kprof_inject.export.packets.order import chunks, places
from kprof_inject.export.packets.packets import event_packets
from kprof_inject.export.packets.rows import Rows, merged, one_behind_the_other, side_by_side
from kprof_inject.export.packets.varints import ByteColumn, constant, fixed64, strings, varints

# Fields of ``TrackEvent``, and the values of its type.
_CATEGORY, _ARG, _TYPE, _NAME, _TRACK, _COUNTER_VALUE, _FLOW = 3, 4, 9, 10, 11, 30, 47
_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4

# Fields of ``DebugAnnotation``.
_ARG_NAME, _ARG_INT, _ARG_DOUBLE, _ARG_TEXT = 1, 4, 5, 17


def slices_and_instants(events: Events, interned: Interned) -> Iterator[bytes]:
    """Their packets, in chunks. The strings that they need are in ``interned`` before the first is asked for."""
    writer = _Writer(
        strings([_same_for_all(kind, interned) for kind in events.kinds]),
        [_arg_key(arg.name, interned) for arg in events.args],
        np.array([not kind.is_instant for kind in events.kinds], dtype=bool),
    )
    return (writer.packets(_rows(events, rows)) for rows in chunks(events))


def samples(uuids: Numbers, at_ns: Numbers, values: Numbers) -> bytes:
    """The packets of counters' samples, one for each row."""
    event = [*varint_fields(_TRACK, uuids), *varint_fields(_COUNTER_VALUE, values)]
    return one_behind_the_other(side_by_side(event_packets(at_ns, event, field(_TYPE, _COUNTER)), len(uuids)))


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes events of these kinds: what the starts of each begin with, the same of each argument, which kinds last."""

    same_for_all: ByteColumn
    arg_keys: list[bytes]
    lasts: Mask

    def packets(self, events: Events) -> bytes:
        """A packet for each start and each end, in their order."""
        lasts = self.lasts[events.kind]
        starts_at, ends_at = places(events, lasts)
        return merged([(self._starts(events), starts_at), (_ends(events.tids[lasts], events.end_ns[lasts]), ends_at)])

    def _starts(self, events: Events) -> Rows:
        event = [
            self.same_for_all.at(events.kind),
            varints(events.tids),
            *(column for key, arg in zip(self.arg_keys, events.args, strict=True) for column in _arg(key, arg)),
            *(_arrows(events.arrows) if events.arrows else ()),
        ]
        return side_by_side(event_packets(events.start_ns, event), len(events))


def _ends(tids: Numbers, end_ns: Numbers) -> Rows:
    first = field(_TYPE, _SLICE_END) + varint_key(_TRACK)
    return side_by_side(event_packets(end_ns, [varints(tids)], first), len(tids))


def _same_for_all(kind: Kind, interned: Interned) -> bytes:
    """What stands before the track of all starts of a kind, with the track's key."""
    return b"".join(
        (
            field(_TYPE, _INSTANT if kind.is_instant else _SLICE_BEGIN),
            field(_CATEGORY, interned.iid(Table.CATEGORIES, kind.category)),
            field(_NAME, interned.iid(Table.NAMES, kind.name)),
            *(
                field(_ARG, field(_ARG_NAME, interned.iid(Table.ARG_NAMES, name)) + _arg_value(value, interned))
                for name, value in kind.args
            ),
            varint_key(_TRACK),
        )
    )


def _arg_value(value: str | int | float, interned: Interned) -> bytes:
    match value:
        case str():
            return field(_ARG_TEXT, interned.iid(Table.ARG_TEXTS, value))
        case int():
            return field(_ARG_INT, value)
        case float():
            return field(_ARG_DOUBLE, value)


def _arg_key(name: str, interned: Interned) -> bytes:
    return field(_ARG_NAME, interned.iid(Table.ARG_NAMES, name)) + varint_key(_ARG_INT)


def _arg(key: bytes, arg: Arg) -> list[ByteColumn]:
    columns = message_fields(_ARG, [varints(arg.values)], key)
    return columns if arg.shown is None else [column.only(arg.shown) for column in columns]


def _arrows(arrows: Arrows) -> list[ByteColumn]:
    """Perfetto draws an arrow from the earlier of two slices with one id to the later. It knows of a way to say which
    of them is the end of it, but forgets an end that comes first."""
    return [column.only(arrows.ids > 0) for column in (constant(fixed64_key(_FLOW)), fixed64(arrows.ids))]


def _rows(events: Events, rows: slice) -> Events:
    """These rows of all columns."""
    return replace(
        events,
        tids=events.tids[rows],
        kind=events.kind[rows],
        start_ns=events.start_ns[rows],
        end_ns=events.end_ns[rows],
        group=events.group[rows],
        start_order=events.start_order[rows],
        end_order=events.end_order[rows],
        args=tuple(_arg_rows(arg, rows) for arg in events.args),
        arrows=_arrow_rows(events.arrows, rows) if events.arrows else None,
    )


def _arg_rows(arg: Arg, rows: slice) -> Arg:
    return replace(arg, values=arg.values[rows], shown=None if arg.shown is None else arg.shown[rows])


def _arrow_rows(arrows: Arrows, rows: slice) -> Arrows:
    return replace(arrows, ids=arrows.ids[rows], at_ns=arrows.at_ns[rows])

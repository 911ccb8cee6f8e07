"""Packets of a Perfetto trace: tracks, slices, instants and counters' samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

import numpy as np

from kprof_inject.export.drawing.scene import (
    Arg,
    Arrows,
    Counters,
    Events,
    Kind,
    Mask,
    Numbers,
    Picked,
    Process,
    Text,
    Threads,
)
from kprof_inject.export.protobuf import (
    ByteColumn,
    Rows,
    constant,
    decimals,
    field,
    fixed64,
    fixed64_key,
    merged,
    message_fields,
    one_behind_the_other,
    side_by_side,
    strings,
    varint_fields,
    varint_key,
    varints,
)

# Packets of a Perfetto trace: what all have, one at a time and many at once.
#
# A trace is a repeated field of packets, and the packets of one sequence share interned strings
# (https://github.com/google/perfetto/blob/main/protos/perfetto/trace/trace_packet.proto).

# Fields of ``Trace`` and of ``TracePacket``.
_PACKET = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _SEQUENCE_FLAGS, _FIRST_ON_SEQUENCE = 8, 10, 11, 13, 87
CHROME_EVENTS, INTERNED_DATA, TRACK_DESCRIPTOR = 5, 12, 60

_STATE_CLEARED, _NEEDS_STATE = 1, 2
_ON_SEQUENCE = field(_SEQUENCE, 1)
_NEEDS_INTERNED = _ON_SEQUENCE + field(_SEQUENCE_FLAGS, _NEEDS_STATE)
_CLEARS_INTERNED = _ON_SEQUENCE + field(_SEQUENCE_FLAGS, _STATE_CLEARED)


def first_packet() -> bytes:
    """Says that nothing came before."""
    return field(_PACKET, _CLEARS_INTERNED + field(_FIRST_ON_SEQUENCE, 1))


def clearing_packet() -> bytes:
    """Says that what strings' numbers stood for no longer counts."""
    return field(_PACKET, _CLEARS_INTERNED)


def packet(number: int, message: bytes) -> bytes:
    """A packet with this message at this field of ``TracePacket``."""
    return field(_PACKET, field(number, message) + _NEEDS_INTERNED)


def packets(number: int, message: Sequence[ByteColumn]) -> list[ByteColumn]:
    """A packet for each row, with the message that the columns hold."""
    return message_fields(_PACKET, [*message_fields(number, message), constant(_NEEDS_INTERNED)])


def event_packets(at_ns: Numbers, event: Sequence[ByteColumn], first: bytes = b"") -> list[ByteColumn]:
    """A packet for each row, with a ``TrackEvent``: what is ``first`` in all, and then what the columns hold.

    Times are on the clock that Perfetto takes where none is named, its own for the trace: it shows them as they are."""
    return message_fields(
        _PACKET,
        [varints(at_ns), *message_fields(_TRACK_EVENT, event, first), constant(_NEEDS_INTERNED)],
        varint_key(_TIMESTAMP),
    )


# Interned strings of a Perfetto trace: each is written once, with a number that stands for it from then on, until the
# state of their sequence is cleared.

_IID, _TEXT = 1, 2


class Table(IntEnum):
    """What a string is used for. The values are the fields of ``InternedData``."""

    CATEGORIES = 1
    NAMES = 2
    ARG_NAMES = 3
    ARG_TEXTS = 29


class Interned:
    """The strings so far, of what shares their numbers."""

    def __init__(self) -> None:
        self._iids: dict[Table, dict[str, int]] = {table: {} for table in Table}
        self._unwritten = bytearray()

    def iid(self, table: Table, text: str) -> int:
        """The number of a string, from 1 up."""
        iids = self._iids[table]
        if text not in iids:
            iids[text] = len(iids) + 1
            self._unwritten += field(table, field(_IID, iids[text]) + field(_TEXT, text))
        return iids[text]

    def take_unwritten(self) -> bytes:
        """``InternedData`` of the strings that are new since this was last called; empty if there are none."""
        unwritten = bytes(self._unwritten)
        self._unwritten.clear()
        return unwritten


# The order of starts and ends, where each is a packet of its own.
#
# Perfetto sorts packets by time and keeps, at equal times, the order of the file; an end ends what began last on its
# thread. So the file has to have starts and ends in the order in which they were.

# So few that a chunk's rows stay in the processor's cache.
_CHUNK_ORDERS = 1 << 15


def chunks(events: Events) -> Iterator[slice]:
    """Rows of whole groups, so many that their numbers of order stay few: at least one group."""
    first, _, spans = _groups(events)
    before = np.cumsum(spans) - spans
    cuts = np.flatnonzero(np.diff(before // _CHUNK_ORDERS, prepend=-1))
    rows = [*first[cuts].tolist(), len(events)]
    yield from (slice(begin, end) for begin, end in pairwise(rows))


def places(events: Events, lasts: Mask) -> tuple[Numbers, Numbers]:
    """Of each start, and of each end of what ``lasts``, its place in the order of all these: 0, 1, 2...

    The numbers of order are counted off, not sorted: in a group no two are the same.
    """
    first, lowest, spans = _groups(events)
    base = np.repeat(np.cumsum(spans) - spans - lowest, np.diff(first, append=len(events)))
    starts = base + events.start_order
    ends = (base + events.end_order)[lasts]
    taken = np.zeros(int(spans.sum()), dtype=np.int64)
    taken[starts] = taken[ends] = 1
    place = np.cumsum(taken) - 1
    return place[starts], place[ends]


def _groups(events: Events) -> tuple[Numbers, Numbers, Numbers]:
    """Where each group begins, its lowest number of order, and how many there are from that to its highest."""
    first = np.flatnonzero(np.diff(events.group, prepend=events.group[:1] - 1))
    lowest = np.minimum.reduceat(events.start_order, first)
    highest = np.maximum(np.maximum.reduceat(events.start_order, first), np.maximum.reduceat(events.end_order, first))
    return first, lowest, highest - lowest + 1


# Processes, threads and counters as packets of ``TrackDescriptor``, with their order
# (https://github.com/google/perfetto/blob/main/protos/perfetto/trace/track_event/track_descriptor.proto).
#
# Perfetto's UI draws the threads of a process open, and tracks of any other kind closed. It stands processes and
# threads by ``sibling_order_rank`` only if the root track, whose uuid is 0, says so; older ones order them by their
# own rules (https://github.com/google/perfetto/pull/6219).

# Uuids of processes and threads are their pids and tids, of 32 bits.
_UUID_BITS = 32

# Fields of ``TrackDescriptor``, and the value for an order that is told.
_UUID, _TRACK_NAME, _PROCESS, _THREAD, _PARENT, _TRACK_COUNTER = 1, 2, 3, 4, 5, 8
_CHILD_ORDERING, _RANK, _PROCESS_ORDERING, _THREAD_ORDERING = 11, 12, 19, 20
_CHILDREN_BY_RANK, _BY_RANK = 3, 1

# Fields of ``ProcessDescriptor``, ``ThreadDescriptor`` and ``CounterDescriptor``.
_PROCESS_PID, _PROCESS_NAME = 1, 6
_THREAD_PID, _THREAD_TID, _THREAD_NAME = 1, 2, 5
_COUNTER_UNIT = 6


def root_track() -> bytes:
    """Says that processes and threads stand by their ranks."""
    return packet(
        TRACK_DESCRIPTOR, field(_UUID, 0) + field(_PROCESS_ORDERING, _BY_RANK) + field(_THREAD_ORDERING, _BY_RANK)
    )


def process_track(process: Process) -> bytes:
    """A process, whose uuid is its pid."""
    return packet(
        TRACK_DESCRIPTOR,
        field(_UUID, process.pid)
        + field(_PROCESS, field(_PROCESS_PID, process.pid) + field(_PROCESS_NAME, process.name))
        + field(_CHILD_ORDERING, _CHILDREN_BY_RANK)
        + field(_RANK, process.pid),
    )


def thread_tracks(threads: Threads) -> bytes:
    """Threads; the uuid of each is its tid."""
    thread = [
        constant(field(_THREAD_PID, threads.pid)),
        *varint_fields(_THREAD_TID, threads.tids),
        *message_fields(_THREAD_NAME, _text(threads.names)),
    ]
    track = [
        *varint_fields(_UUID, threads.tids),
        constant(field(_PARENT, threads.pid)),
        *message_fields(_THREAD, thread),
        *varint_fields(_RANK, threads.positions),
    ]
    return one_behind_the_other(side_by_side(packets(TRACK_DESCRIPTOR, track), len(threads.tids)))


def first_counter_uuid(pid: int) -> int:
    """What the uuid of a process's counter is more than its number: no other track of the trace has such a one."""
    return pid << _UUID_BITS


def counter_tracks(counters: Counters, first_number: int) -> bytes:
    """Counters, with numbers from ``first_number`` on, which no other of their process has."""
    return b"".join(
        packet(
            TRACK_DESCRIPTOR,
            field(_UUID, first_counter_uuid(counters.pid) + number)
            + field(_PARENT, counters.pid)
            + field(_TRACK_NAME, name)
            + field(_TRACK_COUNTER, field(_COUNTER_UNIT, counters.unit))
            + field(_RANK, number),
        )
        for number, name in enumerate(counters.names, first_number)
    )


def _text(text: Text) -> list[ByteColumn]:
    return [_text_part(part) for part in text]


def _text_part(part: str | Numbers | Picked) -> ByteColumn:
    match part:
        case str():
            return constant(part.encode(errors="replace"))
        case Picked():
            return strings([text.encode(errors="replace") for text in part.texts]).at(part.index)
    return decimals(part)


# Slices, instants and counters' samples as packets of ``TrackEvent``
# (https://github.com/google/perfetto/blob/main/protos/perfetto/trace/track_event/track_event.proto).

# Fields of ``TrackEvent``, and the values of its type.
_CATEGORY, _ARG, _TYPE, _EVENT_NAME, _TRACK, _COUNTER_VALUE, _FLOW = 3, 4, 9, 10, 11, 30, 47
_SLICE_BEGIN, _SLICE_END, _INSTANT, _EVENT_COUNTER = 1, 2, 3, 4

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
    return one_behind_the_other(side_by_side(event_packets(at_ns, event, field(_TYPE, _EVENT_COUNTER)), len(uuids)))


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
            field(_EVENT_NAME, interned.iid(Table.NAMES, kind.name)),
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

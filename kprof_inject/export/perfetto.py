"""Perfetto's own trace format: packets of protobuf, written with numpy.

Format: https://perfetto.dev/docs/reference/synthetic-track-event. Each start and each end of a slice is a packet;
names, categories and texts are written once, and later packets refer to them by number. Times are integer nanoseconds
from the axis's zero.

Perfetto sorts packets by time and, for equal times, keeps the order of the file; an end closes the slice that began
last on its track. So the file has starts and ends in the order in which they happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from kprof_inject.export.events import Arg, Arrows, Counters, EventKind, Events, Part, Reals, Scene, Section
from kprof_inject.export.protobuf import (
    ByteColumn,
    concatenated,
    constant,
    decimals,
    doubles,
    field,
    fixed64,
    fixed64_key,
    merged,
    message_fields,
    strings,
    varint_fields,
    varint_key,
    varints,
)
from kprof_inject.export.tracks import Mask, Numbers, Picked, Process, Tracks
from kprof_inject.forks import JobRunner, in_turn

# Few enough that a chunk's rows stay in the processor's cache.
_CHUNK_SAMPLES = _CHUNK_ORDERS = 1 << 15

# Field numbers by message (https://github.com/google/perfetto/tree/main/protos/perfetto/trace).
# ``Trace`` and ``TracePacket``:
_PACKET = 1
_CHROME_EVENTS, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED_DATA = 5, 8, 10, 11, 12
_SEQUENCE_FLAGS, _TRACK_DESCRIPTOR, _FIRST_ON_SEQUENCE = 13, 60, 87
# ``ChromeEventBundle``, its ``ChromeMetadata``, and each message of ``InternedData``:
_METADATA, _METADATA_NAME, _METADATA_TEXT = 2, 1, 2
_IID, _TEXT = 1, 2
# ``TrackDescriptor`` and ``CounterDescriptor``:
_UUID, _TRACK_NAME, _PARENT, _TRACK_COUNTER = 1, 2, 5, 8
_CHILD_ORDERING, _RANK, _MERGING = 11, 12, 15
_COUNTER_UNIT = 6
# ``TrackEvent`` and ``DebugAnnotation``:
_CATEGORY, _ARG, _TYPE, _EVENT_NAME, _TRACK, _COUNTER_VALUE, _COUNTER_DOUBLE, _FLOW = 3, 4, 9, 10, 11, 30, 44, 47
_ARG_NAME, _ARG_INT, _ARG_DOUBLE, _ARG_TEXT = 1, 4, 5, 17

# Values of a packet's flags, of a track's order and merging, and of a track event's type.
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_BY_RANK, _NEVER_MERGED = 3, 2
_SLICE_BEGIN, _SLICE_END, _INSTANT, _EVENT_COUNTER = 1, 2, 3, 4

# All packets are of one sequence, and share their interned strings.
_ON_SEQUENCE = field(_SEQUENCE, 1)
_NEEDS_INTERNED = _ON_SEQUENCE + field(_SEQUENCE_FLAGS, _NEEDS_STATE)
_CLEARS_INTERNED = _ON_SEQUENCE + field(_SEQUENCE_FLAGS, _STATE_CLEARED)

# The UUIDs of tracks are the scene's IDs for them, which have 32 bits.
_UUID_BITS = 32

# Ranks that order the tracks in a track: threads by their positions, then processes, then groups.
_FIRST_PROCESS, _FIRST_GROUP = 1 << 29, 1 << 30

# Two launches, or two scopes, may have the same name.
_KEPT_APART = field(_MERGING, _NEVER_MERGED)
_IN_ORDER = field(_CHILD_ORDERING, _BY_RANK)


def encode(scene: Scene, run: JobRunner = in_turn) -> Iterator[bytes]:
    """Yield a scene as packets; its sections are ``run``'s jobs.

    The facts of each launch are in the trace's metadata, as JSON.
    """
    yield field(_PACKET, _CLEARS_INTERNED + field(_FIRST_ON_SEQUENCE, 1)) + _launch_facts(scene.launches)
    yield from run([partial(_packets_in, section) for section in scene.sections])


def _packets_in(section: Section) -> Iterator[bytes]:
    """Yield the packets of a section; the first one invalidates the numbers of other sections' strings."""
    yield field(_PACKET, _CLEARS_INTERNED)
    writer = _SectionWriter()
    for part in section():
        yield from writer.packets(part)


class _SectionWriter:
    """Writes the parts of one section, and remembers the numbers it has given."""

    def __init__(self) -> None:
        self._interned = _Interned()
        self._counters_before = 0

    def packets(self, part: Part) -> Iterator[bytes]:
        """Yield the packets of a part."""
        match part:
            case Process():
                yield _process_track(part)
            case Tracks():
                yield _tracks(part)
            case Events():
                chunks = _slices_and_instants(part, self._interned)
                if strings := self._interned.take_unwritten():
                    yield _packet(_INTERNED_DATA, strings)
                yield from chunks
            case Counters():
                yield _counter_tracks(part, self._counters_before)
                first_uuid = _first_counter_uuid(part.pid) + self._counters_before
                self._counters_before += len(part.names)
                for begin in range(0, len(part.values), _CHUNK_SAMPLES):
                    rows = np.s_[begin : begin + _CHUNK_SAMPLES]
                    yield _samples(first_uuid + part.counter[rows], part.at_ns[rows], part.values[rows])


def _launch_facts(launches: list[dict[str, Any]]) -> bytes:
    """Return a packet with the launches' facts; Perfetto's UI shows them under "Info and stats" with prefix "cr-"."""
    entries = [
        field(_METADATA_NAME, f"launch[{number}]") + field(_METADATA_TEXT, json.dumps(facts, separators=(",", ":")))
        for number, facts in enumerate(launches)
    ]
    return _packet(_CHROME_EVENTS, b"".join(field(_METADATA, entry) for entry in entries)) if entries else b""


def _packet(number: int, message: bytes) -> bytes:
    return field(_PACKET, field(number, message) + _NEEDS_INTERNED)


def _event_packets(at_ns: Numbers, event: Sequence[ByteColumn], first: bytes = b"") -> list[ByteColumn]:
    """Return columns with a packet for each row, with a ``TrackEvent``: ``first`` in each row, then these columns.

    No packet names a clock, so times are on the trace's own clock, and Perfetto shows them unchanged.
    """
    return message_fields(
        _PACKET,
        [varints(at_ns), *message_fields(_TRACK_EVENT, event, first), constant(_NEEDS_INTERNED)],
        varint_key(_TIMESTAMP),
    )


class _StringTable(IntEnum):
    """The uses of an interned string; the values are the fields of ``InternedData``."""

    CATEGORIES = 1
    NAMES = 2
    ARG_NAMES = 3
    ARG_TEXTS = 29


class _Interned:
    """The strings of a section so far: each is written once, and later referred to by its number."""

    def __init__(self) -> None:
        self._iids: dict[_StringTable, dict[str, int]] = {table: {} for table in _StringTable}
        self._unwritten = bytearray()

    def iid(self, table: _StringTable, text: str) -> int:
        """Return the number of a string, from 1."""
        iids = self._iids[table]
        if text not in iids:
            iids[text] = len(iids) + 1
            self._unwritten += field(table, field(_IID, iids[text]) + field(_TEXT, text))
        return iids[text]

    def take_unwritten(self) -> bytes:
        """Return ``InternedData`` for the strings that are new since the last call; empty if there are none."""
        unwritten = bytes(self._unwritten)
        self._unwritten.clear()
        return unwritten


class _Chunk(Struct, frozen=True):
    """Events of whole groups: each row's order numbers plus its ``base`` are unique, and less than ``orders``."""

    events: Events
    base: Numbers
    orders: int

    def positions(self, is_slice: Mask) -> tuple[Numbers, Numbers]:
        """Return the positions of all starts, and of the ends of slices, among all of these: 0, 1, 2...

        They are counted by their order numbers instead of sorted.
        """
        starts = self.base + self.events.start_order
        ends = (self.base + self.events.end_order)[is_slice]
        taken = np.zeros(self.orders, dtype=np.int64)
        taken[starts] = taken[ends] = 1
        place = np.cumsum(taken) - 1
        return place[starts], place[ends]


def _chunks(events: Events) -> Iterator[_Chunk]:
    """Yield chunks of at least one group; several groups share one if their order numbers are few."""
    first = np.flatnonzero(np.diff(events.group, prepend=events.group[:1] - 1))
    lowest = np.minimum.reduceat(events.start_order, first)
    highest = np.maximum(np.maximum.reduceat(events.start_order, first), np.maximum.reduceat(events.end_order, first))
    spans = highest - lowest + 1
    orders = np.cumsum(spans)
    before = orders - spans
    base = np.repeat(before - lowest, np.diff(first, append=len(events)))
    cuts = np.flatnonzero(np.diff(before // _CHUNK_ORDERS, prepend=-1))
    rows, bounds = [*first[cuts].tolist(), len(events)], [*before[cuts].tolist(), *orders[-1:].tolist()]
    for (begin, end), (low, high) in zip(pairwise(rows), pairwise(bounds), strict=True):
        part = events if end - begin == len(events) else events.part(slice(begin, end))
        yield _Chunk(part, base[begin:end] - low, high - low)


def _process_track(process: Process) -> bytes:
    """Return the descriptor of a track for the process, which also has the events of the process's own thread.

    Perfetto does not see it as a process: its UI would append the pid to the name and order processes by its own rules.
    """
    return _packet(
        _TRACK_DESCRIPTOR,
        field(_UUID, process.track)
        + (field(_PARENT, process.within.track) if process.within else b"")
        + field(_TRACK_NAME, process.label or process.name)
        + field(_RANK, _FIRST_PROCESS + process.pid)
        + _KEPT_APART
        + _IN_ORDER,
    )


def _tracks(tracks: Tracks) -> bytes:
    is_group = not tracks.names
    columns = [
        *varint_fields(_UUID, tracks.ids),
        *varint_fields(_PARENT, tracks.within),
        *message_fields(_TRACK_NAME, [_text(part) for part in tracks.labels]),
        *varint_fields(_RANK, tracks.positions + is_group * _FIRST_GROUP),
        constant(_KEPT_APART + is_group * _IN_ORDER),
    ]
    packets = message_fields(_PACKET, [*message_fields(_TRACK_DESCRIPTOR, columns), constant(_NEEDS_INTERNED)])
    return concatenated(packets, len(tracks.ids))


def _first_counter_uuid(pid: int) -> int:
    """Return the UUID of a process's first counter; no other track of the trace has UUIDs from there on."""
    return pid << _UUID_BITS


def _counter_tracks(counters: Counters, first_number: int) -> bytes:
    """Return the descriptors of counters in their process's track, numbered uniquely from ``first_number``."""
    return b"".join(
        _packet(
            _TRACK_DESCRIPTOR,
            field(_UUID, _first_counter_uuid(counters.pid) + number)
            + field(_PARENT, counters.pid)
            + field(_TRACK_NAME, name)
            + field(_TRACK_COUNTER, field(_COUNTER_UNIT, counters.unit))
            + field(_RANK, number),
        )
        for number, name in enumerate(counters.names, first_number)
    )


def _text(part: str | Numbers | Picked) -> ByteColumn:
    match part:
        case str():
            return constant(part.encode(errors="replace"))
        case Picked():
            return strings([text.encode(errors="replace") for text in part.texts]).at(part.index)
    return decimals(part)


def _slices_and_instants(events: Events, interned: _Interned) -> Iterator[bytes]:
    """Return the events' packets, in chunks; all strings they need are in ``interned`` before the first is taken."""
    writer = _EventWriter(
        strings([_common_start(kind, interned) for kind in events.kinds]),
        [_arg_form(arg, interned) for arg in events.args],
        np.array([not kind.is_instant for kind in events.kinds], dtype=bool),
    )
    return map(writer.packets, _chunks(events))


def _samples(uuids: Numbers, at_ns: Numbers, values: Numbers | Reals) -> bytes:
    if values.dtype.kind == "f":
        value = [constant(fixed64_key(_COUNTER_DOUBLE)), doubles(values.astype(np.float64))]
    else:
        value = varint_fields(_COUNTER_VALUE, values.astype(np.int64))
    event = [*varint_fields(_TRACK, uuids), *value]
    return concatenated(_event_packets(at_ns, event, field(_TYPE, _EVENT_COUNTER)), len(uuids))


class _ArgForm(Struct, frozen=True):
    """The encoding of an argument: the bytes before its value, and the value."""

    key: bytes
    value: Callable[[Any], ByteColumn]

    def columns(self, arg: Arg) -> list[ByteColumn]:
        """Return the columns of the argument's field."""
        columns = message_fields(_ARG, [self.value(arg.values)], self.key)
        return columns if arg.shown is None else [column.only(arg.shown) for column in columns]


def _arg_form(arg: Arg, interned: _Interned) -> _ArgForm:
    name = field(_ARG_NAME, interned.iid(_StringTable.ARG_NAMES, arg.name))
    if isinstance(arg.values, Picked):
        iids = np.array([interned.iid(_StringTable.ARG_TEXTS, text) for text in arg.values.texts], dtype=np.int64)
        return _ArgForm(name + varint_key(_ARG_TEXT), lambda picked: varints(iids[picked.index]))
    if arg.values.dtype.kind == "f":
        return _ArgForm(name + fixed64_key(_ARG_DOUBLE), doubles)
    return _ArgForm(name + varint_key(_ARG_INT), varints)


class _EventWriter(Struct, frozen=True):
    """Writes events of some kinds: the common start of each, the encoding of each argument, and which kinds last."""

    common_start: ByteColumn
    arg_forms: list[_ArgForm]
    is_slice: Mask

    def packets(self, chunk: _Chunk) -> bytes:
        """Return a packet for each start and each end, in order."""
        events = chunk.events
        is_slice = self.is_slice[events.kind]
        starts_at, ends_at = chunk.positions(is_slice)
        end = _event_packets(
            events.end_ns[is_slice],
            [varints(events.tids[is_slice])],
            field(_TYPE, _SLICE_END) + varint_key(_TRACK),
        )
        return merged([(self._starts(events), starts_at), (end, ends_at)])

    def _starts(self, events: Events) -> list[ByteColumn]:
        event = [
            self.common_start.at(events.kind),
            varints(events.tids),
            *(column for form, arg in zip(self.arg_forms, events.args, strict=True) for column in form.columns(arg)),
            *(column for arrows in events.arrows for column in _arrows(arrows)),
        ]
        return _event_packets(events.start_ns, event)


def _common_start(kind: EventKind, interned: _Interned) -> bytes:
    """Return the fields before the track in all starts of a kind, and the track's key."""
    return b"".join(
        (
            field(_TYPE, _INSTANT if kind.is_instant else _SLICE_BEGIN),
            field(_CATEGORY, interned.iid(_StringTable.CATEGORIES, kind.category)),
            field(_EVENT_NAME, interned.iid(_StringTable.NAMES, kind.name)),
            *(
                field(_ARG, field(_ARG_NAME, interned.iid(_StringTable.ARG_NAMES, name)) + _arg_value(value, interned))
                for name, value in kind.args
            ),
            varint_key(_TRACK),
        )
    )


def _arg_value(value: str | int | float, interned: _Interned) -> bytes:
    match value:
        case str():
            return field(_ARG_TEXT, interned.iid(_StringTable.ARG_TEXTS, value))
        case int():
            return field(_ARG_INT, value)
        case float():
            return field(_ARG_DOUBLE, value)


def _arrows(arrows: Arrows) -> list[ByteColumn]:
    """Return the field for an arrow's ID in each row.

    Perfetto draws an arrow from the earlier of two slices with the same ID to the later one. A field could say which
    slice is the end, but Perfetto ignores an end that comes first.
    """
    return [column.only(arrows.ids > 0) for column in (constant(fixed64_key(_FLOW)), fixed64(arrows.ids))]

"""Perfetto's own trace format: packets of protobuf, written with numpy.

Format: https://perfetto.dev/docs/reference/synthetic-track-event. Each start and each end of a slice is a packet;
names, categories and texts are written once, and later packets refer to them by number. Times are integer nanoseconds
from the axis's zero.

Perfetto sorts packets by time and, for equal times, keeps the order of the file; an end closes the slice that began
last on its track. So the file has starts and ends in the order in which they happened.

A field of protobuf is its key (number and wire type) and its value; a message within a message is its length and its
fields. Varints have seven bits a byte, the lowest first, the top bit on all but the last
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.export.events import Arg, Counters, EventKind, Events, Part, Picked, Process, Scene, Section, Tracks
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.columns import Mask, Numbers, Reals, Rows

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_LENGTHS_STEP = 64
_DECIMAL_DIGITS = 20


class ByteColumn(Struct, frozen=True):
    """A byte string for each row: the first ``lengths`` bytes of its item. A single row applies to all rows."""

    items: Rows
    lengths: Numbers

    def only(self, rows: Mask) -> ByteColumn:
        """Return the column with empty strings in all other rows."""
        return ByteColumn(self.items, np.where(rows, self.lengths, 0))

    def at(self, rows: Numbers) -> ByteColumn:
        """Return the strings of these rows."""
        return ByteColumn(self.items.take(rows), self.lengths.take(rows))


def strings(values: Sequence[bytes]) -> ByteColumn:
    """Return a column of these strings."""
    width = max((len(value) for value in values), default=0) or 1
    items = np.frombuffer(b"".join(value.ljust(width, b"\0") for value in values), dtype=f"V{width}")
    return ByteColumn(items, np.array([len(value) for value in values], dtype=np.int64))


@lru_cache
def constant(value: bytes) -> ByteColumn:
    """Return a column with the same string in every row."""
    return strings([value])


def decimals(values: Numbers) -> ByteColumn:
    """Return integers as decimal text."""
    text = values.astype(f"S{_DECIMAL_DIGITS}")
    return ByteColumn(text.view(f"V{_DECIMAL_DIGITS}"), np.char.str_len(text).astype(np.int64))


def fixed64(values: Numbers) -> ByteColumn:
    """Return integers as eight bytes, little-endian."""
    return ByteColumn(values.astype("<u8").view("V8"), np.full(len(values), 8, dtype=np.int64))


def doubles(values: Reals) -> ByteColumn:
    """Return floating-point numbers as eight bytes."""
    return fixed64(values.astype("<f8").view("<i8"))


def varints(values: Numbers) -> ByteColumn:
    """Return integers as varints of the minimum length; a negative one takes ten bytes, as protobuf's ``int64``."""
    words = values.astype(np.uint64)
    count = max(-(-int(words.max(initial=0)).bit_length() // 7), 1)
    data = np.empty((len(words), count), dtype=np.uint8)
    lengths = np.ones(len(words), dtype=np.int64)
    for place in range(count):
        rest = words >> np.uint64(7 * place)
        goes_on = rest > 0x7F
        data[:, place] = rest.astype(np.uint8) & 0x7F | goes_on.view(np.uint8) << 7
        lengths += goes_on
    return ByteColumn(data.reshape(-1).view(f"V{count}"), lengths)


def varint(value: int) -> bytes:
    """Return one integer as a varint; a negative one as protobuf's ``int64``."""
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Return one field: a varint, a double, or a text, message or other string of bytes."""
    if isinstance(value, int):
        return _key(number, _VARINT) + varint(value)
    if isinstance(value, float):
        return _key(number, _FIXED64) + struct.pack("<d", value)
    data = value.encode(errors="replace") if isinstance(value, str) else value
    return _key(number, _BYTES) + varint(len(data)) + data


def _key(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def varint_fields(number: int, values: Numbers) -> list[ByteColumn]:
    """Return the columns of a field with a varint in each row."""
    return [constant(_key(number, _VARINT)), varints(values)]


def message_fields(number: int, columns: Sequence[ByteColumn], first: bytes = b"") -> list[ByteColumn]:
    """Return the columns of a field with a message, or a text: ``first`` in each row, then these columns."""
    lengths: Numbers = sum((column.lengths for column in columns), start=np.zeros(1, dtype=np.int64))
    longest = int(lengths.max(initial=0)) | _LENGTHS_STEP - 1
    return [_message_heads(number, first, longest).at(lengths), *columns]


@lru_cache
def _message_heads(number: int, first: bytes, longest: int) -> ByteColumn:
    return strings([_key(number, _BYTES) + varint(len(first) + rest) + first for rest in range(longest + 1)])


def merged(parts: Sequence[tuple[Sequence[ByteColumn], Numbers]]) -> bytes:
    """Return the rows of all parts, each with the strings of all its columns, by their positions: 0, 1, 2..."""
    lengths = np.zeros(sum(len(places) for _, places in parts), dtype=np.int64)
    for columns, places in parts:
        lengths[places] = sum(column.lengths for column in columns)
    longest = int(lengths.max(initial=0))
    # Whole items are written, and the next one overwrites the bytes after a string; the last item needs room for these.
    stride = longest + max(column.items.itemsize for columns, _ in parts for column in columns)
    data = np.empty(len(lengths) * stride, dtype=np.uint8)
    for columns, places in parts:
        ends = places * stride
        for column in columns:
            # A view of all runs of as many bytes as an item has, indexed by their first byte.
            width = column.items.itemsize
            runs: NDArray[Any] = np.ndarray((max(len(data) - width + 1, 0),), f"V{width}", data, strides=(1,))
            runs[ends] = column.items
            ends += column.lengths
    narrow = np.min_scalar_type(longest)
    is_used = np.arange(longest, dtype=narrow) < lengths.astype(narrow)[:, None]
    return data.reshape(-1, stride)[:, :longest][is_used].tobytes()


_CHUNK_SAMPLES = _CHUNK_ORDERS = 1 << 15  # few enough that a chunk's rows stay in the processor's cache

# Field numbers by message (https://github.com/google/perfetto/tree/main/protos/perfetto/trace).
# ``Trace`` and ``TracePacket``:
_PACKET = 1
_CHROME_EVENTS, _TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED_DATA = 5, 8, 10, 11, 12
_SEQUENCE_FLAGS, _TRACK_DESCRIPTOR, _FIRST_ON_SEQUENCE = 13, 60, 87
# ``ChromeEventBundle``, its ``ChromeMetadata``, and each message of ``InternedData``:
_METADATA, _METADATA_NAME, _METADATA_TEXT = 2, 1, 2
_IID, _TEXT = 1, 2
# ``InternedData``, by the use of a string:
_CATEGORIES, _NAMES, _ARG_NAMES, _ARG_TEXTS = 1, 2, 3, 29
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

# The UUIDs of tracks are the scene's IDs for them, which have 32 bits. Those of counters have their pid above these.
_UUID_BITS = 32

# Ranks that order the tracks in a track: threads by their positions, then processes, then groups.
_FIRST_PROCESS, _FIRST_GROUP = 1 << 29, 1 << 30

# Two launches, or two scopes, may have the same name.
_KEPT_APART = field(_MERGING, _NEVER_MERGED)
_IN_ORDER = field(_CHILD_ORDERING, _BY_RANK)


def encode(scene: Scene, run: JobRunner = in_turn) -> Iterator[bytes]:
    """Yield a scene as packets; its sections are ``run``'s jobs. The launches' facts are metadata, as JSON."""
    yield field(_PACKET, _CLEARS_INTERNED + field(_FIRST_ON_SEQUENCE, 1))
    if scene.launches:
        # Perfetto's UI shows them under "Info and stats" with prefix "cr-".
        entries = (
            field(_METADATA_NAME, f"launch[{number}]") + field(_METADATA_TEXT, json.dumps(facts, separators=(",", ":")))
            for number, facts in enumerate(scene.launches)
        )
        yield _packet(_CHROME_EVENTS, b"".join(field(_METADATA, entry) for entry in entries))
    yield from run([partial(_packets_in, section) for section in scene.sections])


def _packets_in(section: Section) -> Iterator[bytes]:
    yield field(_PACKET, _CLEARS_INTERNED)  # the numbers of other sections' strings are invalid from here on
    writer = _SectionWriter()
    for part in section():
        yield from writer.packets(part)


def _packet(number: int, message: bytes) -> bytes:
    return field(_PACKET, field(number, message) + _NEEDS_INTERNED)


def _event_packets(at_ns: Numbers, event: Sequence[ByteColumn], first: bytes = b"") -> list[ByteColumn]:
    """Return columns with a packet for each row, with a ``TrackEvent``: ``first`` in each row, then these columns."""
    # No packet names a clock, so times are on the trace's own clock, and Perfetto shows them unchanged.
    return message_fields(
        _PACKET,
        [varints(at_ns), *message_fields(_TRACK_EVENT, event, first), constant(_NEEDS_INTERNED)],
        _key(_TIMESTAMP, _VARINT),
    )


class _SectionWriter:
    """Writes the parts of one section: each string is written once, and later referred to by its number, from 1."""

    def __init__(self) -> None:
        self._iids: dict[int, dict[str, int]] = {table: {} for table in (_CATEGORIES, _NAMES, _ARG_NAMES, _ARG_TEXTS)}
        self._unwritten = bytearray()
        self._counters = 0

    def packets(self, part: Part) -> Iterator[bytes]:
        match part:
            case Process():
                # The track also has the events of the process's own thread. Perfetto does not see it as a process: its
                # UI would append the pid to the name and order processes by its own rules.
                yield _packet(
                    _TRACK_DESCRIPTOR,
                    field(_UUID, part.track)
                    + (field(_PARENT, part.within.track) if part.within else b"")
                    + field(_TRACK_NAME, part.label or part.name)
                    + field(_RANK, _FIRST_PROCESS + part.pid)
                    + _KEPT_APART
                    + _IN_ORDER,
                )
            case Tracks():
                yield _tracks(part)
            case Events():
                for chunk in _chunks(part):
                    packets = self._slices_and_instants(*chunk)
                    if self._unwritten:
                        yield _packet(_INTERNED_DATA, bytes(self._unwritten))
                        self._unwritten.clear()
                    yield packets
            case Counters():
                first_uuid = (part.pid << _UUID_BITS) + self._counters
                yield _counter_tracks(part, self._counters)
                self._counters += len(part.names)
                for begin in range(0, len(part.values), _CHUNK_SAMPLES):
                    rows = np.s_[begin : begin + _CHUNK_SAMPLES]
                    yield _samples(first_uuid + part.counter[rows], part.at_ns[rows], part.values[rows])

    def _iid(self, table: int, text: str) -> int:
        iids = self._iids[table]
        if text not in iids:
            iids[text] = len(iids) + 1
            self._unwritten += field(table, field(_IID, iids[text]) + field(_TEXT, text))
        return iids[text]

    def _slices_and_instants(self, events: Events, order: Numbers, end_order: Numbers, orders: int) -> bytes:
        # A packet for each start, and for each end of a slice. Their order numbers are counted instead of sorted.
        is_slice = np.array([not kind.is_instant for kind in events.kinds], dtype=bool)[events.kind]
        end_order = end_order[is_slice]
        taken = np.zeros(orders, dtype=np.int64)
        taken[order] = taken[end_order] = 1
        place = np.cumsum(taken) - 1
        starts = [
            strings([self._common_start(kind) for kind in events.kinds]).at(events.kind),
            varints(events.tids),
            *(column for arg in events.args for column in self._arg(arg)),
            # Perfetto draws an arrow from the earlier of two slices with the same ID to the later one. A field could
            # say which slice is the end, but Perfetto ignores an end that comes first.
            *(
                column.only(arrows.ids > 0)
                for arrows in events.arrows
                for column in (constant(_key(_FLOW, _FIXED64)), fixed64(arrows.ids))
            ),
        ]
        ends = _event_packets(
            events.end_ns[is_slice], [varints(events.tids[is_slice])], field(_TYPE, _SLICE_END) + _key(_TRACK, _VARINT)
        )
        return merged([(_event_packets(events.start_ns, starts), place[order]), (ends, place[end_order])])

    def _common_start(self, kind: EventKind) -> bytes:
        fields = [
            field(_TYPE, _INSTANT if kind.is_instant else _SLICE_BEGIN),
            field(_CATEGORY, self._iid(_CATEGORIES, kind.category)),
            field(_EVENT_NAME, self._iid(_NAMES, kind.name)),
        ]
        for name, value in kind.args:
            named = field(_ARG_NAME, self._iid(_ARG_NAMES, name))
            match value:
                case str():
                    fields.append(field(_ARG, named + field(_ARG_TEXT, self._iid(_ARG_TEXTS, value))))
                case int():
                    fields.append(field(_ARG, named + field(_ARG_INT, value)))
                case float():
                    fields.append(field(_ARG, named + field(_ARG_DOUBLE, value)))
        return b"".join(fields) + _key(_TRACK, _VARINT)

    def _arg(self, arg: Arg) -> list[ByteColumn]:
        name = field(_ARG_NAME, self._iid(_ARG_NAMES, arg.name))
        if isinstance(arg.values, Picked):
            iids = np.array([self._iid(_ARG_TEXTS, text) for text in arg.values.texts], dtype=np.int64)
            key, value = _key(_ARG_TEXT, _VARINT), varints(iids[arg.values.index])
        elif arg.values.dtype.kind == "f":
            key, value = _key(_ARG_DOUBLE, _FIXED64), doubles(arg.values.astype(np.float64, copy=False))
        else:
            key, value = _key(_ARG_INT, _VARINT), varints(arg.values.astype(np.int64, copy=False))
        columns = message_fields(_ARG, [value], name + key)
        return columns if arg.shown is None else [column.only(arg.shown) for column in columns]


def _chunks(events: Events) -> Iterator[tuple[Events, Numbers, Numbers, int]]:
    """Yield chunks of whole groups, with unique order numbers of their starts and ends, and a number above these."""
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
        own = base[begin:end] - low
        yield part, own + part.start_order, own + part.end_order, high - low


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
    return merged([(packets, np.arange(len(tracks.ids)))])


def _counter_tracks(counters: Counters, first_number: int) -> bytes:
    return b"".join(
        _packet(
            _TRACK_DESCRIPTOR,
            field(_UUID, (counters.pid << _UUID_BITS) + number)
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


def _samples(uuids: Numbers, at_ns: Numbers, values: Numbers | Reals) -> bytes:
    if values.dtype.kind == "f":
        value = [constant(_key(_COUNTER_DOUBLE, _FIXED64)), doubles(values.astype(np.float64))]
    else:
        value = varint_fields(_COUNTER_VALUE, values.astype(np.int64))
    packets = _event_packets(at_ns, [*varint_fields(_TRACK, uuids), *value], field(_TYPE, _EVENT_COUNTER))
    return merged([(packets, np.arange(len(uuids)))])

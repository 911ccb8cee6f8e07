"""Packets of a Perfetto trace: what all have, one at a time and many at once.

A trace is a repeated field of packets, and the packets of one sequence share interned strings
(https://github.com/google/perfetto/blob/main/protos/perfetto/trace/trace_packet.proto).
"""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.export.drawing.scene import Numbers
from kprof_inject.export.packets.fields import field, message_fields, varint_key
from kprof_inject.export.packets.varints import ByteColumn, constant, varints

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

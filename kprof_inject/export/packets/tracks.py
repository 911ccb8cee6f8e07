"""Processes, threads and counters as packets of ``TrackDescriptor``, with their order
(https://github.com/google/perfetto/blob/main/protos/perfetto/trace/track_event/track_descriptor.proto).

Perfetto's UI draws the threads of a process open, and tracks of any other kind closed. It stands processes and threads
by ``sibling_order_rank`` only if the root track, whose uuid is 0, says so; older ones order them by their own rules
(https://github.com/google/perfetto/pull/6219).
"""

from __future__ import annotations

from kprof_inject.export.drawing.scene import Counters, Numbers, Picked, Process, Text, Threads
from kprof_inject.export.packets.fields import field, message_fields, varint_fields
from kprof_inject.export.packets.packets import TRACK_DESCRIPTOR, packet, packets
from kprof_inject.export.packets.rows import one_behind_the_other, side_by_side
from kprof_inject.export.packets.varints import ByteColumn, constant, decimals, strings

# Uuids of processes and threads are their pids and tids, of 32 bits.
_UUID_BITS = 32

# Fields of ``TrackDescriptor``, and the value for an order that is told.
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
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
            + field(_NAME, name)
            + field(_COUNTER, field(_COUNTER_UNIT, counters.unit))
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

"""Buffers of other profilers, made from a known truth.

Written from the profilers' own descriptions of their layouts, word by word, with no code of ``kprof_inject``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
EMPTY = 0xFFFFFFFFFFFFFFFF


class Scope(NamedTuple):
    """One scope that ran; ``end_ns`` None: it never ended. An instant has a ``type`` of 1."""

    event: int
    start_ns: int
    end_ns: int | None
    type: int = 0


class Mark(NamedTuple):
    """One record of a tag stream; ``side`` 0 is a start, 1 an end, 2 an instant."""

    event: int
    side: int
    ns: int


def words_of(data: bytes) -> Words:
    return np.frombuffer(data, dtype="<u8").copy()


def sm_profiler(
    blocks: int,
    groups: int,
    room: int,
    ran: Mapping[tuple[int, int], Sequence[Scope]],
    sms: Sequence[int],
    counts: Mapping[tuple[int, int], int] | None = None,
) -> Words:
    """``ran`` has the scopes of each block and group, in the order of their starts; ``counts`` what counters say that
    counted more than there was room for."""
    count = blocks * groups
    data = struct.pack("<QQ", blocks << 32 | groups, room << 32)
    counters = [0] * count
    events = [bytes(40)] * (count * room)
    for (block, group), scopes in ran.items():
        place = block * groups + group
        counters[place] = (counts or {}).get((block, group), len(scopes))
        for number, scope in enumerate(scopes[:room]):
            events[place * room + number] = struct.pack(
                "<6I2Q",
                number,
                scope.event,
                block,
                group,
                sms[block],
                scope.type,
                scope.start_ns,
                0 if scope.type else scope.end_ns or 0,
            )
    data += struct.pack(f"<{count}I", *counters)
    data += bytes(-len(data) % 8)
    data += bytes(4 * 32 * count)
    return words_of(data + b"".join(events))


def triton_distributed(
    groups: int, ran: Sequence[Sequence[Sequence[Mark]]], sms: Sequence[int], rows: int | None = None
) -> Words:
    """``ran`` has for each block and each of its groups the records, in the order of writing."""
    blocks = len(ran)
    rows = rows or max(len(marks) for block in ran for marks in block)
    head = [blocks | groups << 32, *(block | sms[block] << 32 for block in range(blocks))]
    slots = [EMPTY] * (rows * blocks * groups)
    for block, of_block in enumerate(ran):
        for group, marks in enumerate(of_block):
            unit = block * groups + group
            for row, mark in enumerate(marks):
                tag = unit << 12 | mark.event << 1 | (mark.side == 0)
                slots[row * blocks * groups + unit] = tag | (mark.ns & 0xFFFFFFFF) << 32
    return np.array(head + slots, dtype=np.uint64)


def flashinfer(
    groups: int,
    ran: Sequence[Sequence[Sequence[Mark]]],
    sms: Sequence[int] | None = None,
    spare_rows: int = 2,
    numbers_groups: bool = False,
) -> Words:
    """The later form if ``sms`` are told: its tag has the block, or as its decoder reads it (``numbers_groups``) the
    group, numbered through all blocks. As in the kernel, nothing keeps a large number out of the SM's bits."""
    blocks = len(ran)
    rows = max(len(marks) for block in ran for marks in block) + spare_rows
    slots = [0] * (rows * blocks * groups)
    for block, of_block in enumerate(ran):
        for group, marks in enumerate(of_block):
            unit = block * groups + group
            number = unit if sms is None or numbers_groups else block
            base = (0 if sms is None else sms[block] << 24) | number << 12
            for row, mark in enumerate(marks):
                tag = (base | mark.event << 2 | mark.side) & 0xFFFFFFFF
                slots[row * blocks * groups + unit] = tag | (mark.ns & 0xFFFFFFFF) << 32
    return np.array([blocks | groups << 32, *slots], dtype=np.uint64)


def cute(
    room: int, units: Sequence[Mapping[int, tuple[Scope, int]]], counts: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """``units`` has for each unit by the slot a scope and its ``tid``; ``counts`` the first word of each."""
    found: list[int] = []
    for number, slots in enumerate(units):
        found.append(counts[number] if counts else 0)
        for slot in range(room):
            if slot in slots:
                scope, tid = slots[slot]
                found += [scope.start_ns, (scope.end_ns or scope.start_ns) - scope.start_ns, scope.event, tid]
            else:
                found += [0, 0, 0, 0]
    return np.array(found, dtype=np.int64)


def cute_compact(room: int, anchors: Sequence[int], units: Sequence[Mapping[int, Scope]]) -> Words:
    found: list[int] = []
    for anchor, slots in zip(anchors, units, strict=True):
        found.append(anchor)
        for slot in range(room):
            scope = slots.get(slot)
            taken = 0 if scope is None or scope.end_ns is None else scope.end_ns - scope.start_ns
            found.append(0 if scope is None else scope.event << 56 | taken << 32 | scope.start_ns & 0xFFFFFFFF)
    return np.array(found, dtype=np.uint64)

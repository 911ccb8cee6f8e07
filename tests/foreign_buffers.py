"""Buffers of other profilers, made from a known truth.

Written from the profilers' own descriptions of their layouts, word by word, with no code of ``kprof_inject``.
"""

from __future__ import annotations

from collections.abc import Sequence
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

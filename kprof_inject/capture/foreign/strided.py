"""Buffers to which each group writes its entries at a constant stride: FlashInfer's and Triton-distributed's.

The groups of all blocks write next to each other: a row has one entry of each. So the position of an entry gives its
group, and its row the order of writing. An entry is a tag of 32 bits, and above it the lower 32 bits of
``%globaltimer``. A header precedes the entries, and in Triton-distributed's buffer also the SM of each block.

Facts about FlashInfer: flashinfer-ai/flashinfer, include/flashinfer/profiler.cuh at
40db3fadfd5f361882dcd4cc797bd8867b7893a2 (header, stride, ``globaltimer_lo``; the tag: 20 bits of group, numbered
through all blocks, 10 bits of event, 2 bits of start, end, instant), flashinfer/profiler/__init__.py at
004903ca828822934e51d1a3ac30640cca7758eb (an empty slot is 0; the later tag: 8 bits of SM, 12 bits of block and group,
10 and 2 bits as before). The later header file writes the block alone where that decoder reads block and group, so the
group is taken from the position of the entry. Neither masks the number that it writes: from 4,096 on it overflows into
the bits of the SM, which is unknown then.

Facts about Triton-distributed: ByteDance-Seed/Triton-distributed, python/triton_dist/tools/profiler/language.py at
8b9af3012c03ccafaa3288ff9b3d951d94537f28 (header, block's word, stride, tag: group 20 bits, task 11 bits, start 1 bit;
``globaltimer_lo`` above it); mdrumond/Triton-distributed, viewer.py in the same folder at
8db7c7b7506fd583e705b3935e2a9f5ed5acd816 (how its tag is decoded) and context.py at
6d6723b94245a6d9f25861abeb2dc1743e0fe352 (an empty slot has all bits set).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.foreign.entries import (
    POINT_COLUMNS,
    UNIT_COLUMNS,
    UNKNOWN_SM,
    PointKind,
    Points,
    sm_of_blocks,
    unwrapped,
)
from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted

_MAX_GROUPS = 1024
# Position of the group in a tag of either profiler.
_GROUP_SHIFT, _GROUP_MASK = 12, 0xFFFFF


class _Grid(Struct, frozen=True):
    """Number of blocks that ran, and of groups of each block that record."""

    blocks: int
    groups: int

    @property
    def stride(self) -> int:
        """Distance between two entries of a group."""
        return self.blocks * self.groups


class _Tags(Struct, frozen=True):
    """Content of the tags of some entries.

    ``sm`` is the SM of each, or ``UNKNOWN_SM``; entries that are not ``sound`` are not of this profiler.
    """

    event: NDArray[np.int64]
    side: NDArray[np.int64]
    sm: NDArray[np.int64]
    sound: NDArray[np.bool_]


def _grid_of(words: NDArray[np.uint64], hint: str) -> _Grid:
    """Read the grid from the first word: blocks in its lower half, groups above.

    Raises ``KprofError`` if it is impossible.
    """
    if not len(words):
        raise KprofError("the buffer is empty", hint=hint)
    blocks, groups = int(words[0]) & 0xFFFFFFFF, int(words[0]) >> 32
    if not (blocks and 0 < groups <= _MAX_GROUPS and blocks * groups < len(words)):
        raise KprofError(
            f"the header is invalid: {blocks} blocks of {groups} groups, in a buffer of {counted(len(words), 'word')}",
            hint=hint,
        )
    return _Grid(blocks, groups)


def _points_of(
    words: NDArray[np.uint64],
    grid: _Grid,
    empty: int,
    tags_of: Callable[[NDArray[np.int64], NDArray[np.int64]], _Tags],
    sm_of_block: NDArray[np.int64] | None = None,
) -> Points:
    """Read the entries ``words``, which have no header; entries equal to ``empty`` were never written.

    ``tags_of`` takes the tags and the groups (numbered through all blocks) of their positions. ``sm_of_block``, if the
    buffer has it, also gives the SM of blocks without a sound entry.
    """
    place = np.flatnonzero(words != np.uint64(empty))
    group = place % grid.stride
    # Sort by group; each group's entries stay in the order of writing.
    order = np.argsort(group, kind="stable")
    entries, group = words[place[order]], group[order]
    tags = tags_of((entries & np.uint64(0xFFFFFFFF)).astype(np.int64), group)

    ran, unit = np.unique(group, return_inverse=True)
    units = np.zeros(len(ran), dtype=UNIT_COLUMNS)
    units["cta"], units["warp"] = np.divmod(ran, grid.groups)
    units["written"] = np.bincount(unit, minlength=len(ran))
    units["damaged"] = np.bincount(unit[~tags.sound], minlength=len(ran))
    if sm_of_block is None:
        has_sm = tags.sound & (tags.sm != UNKNOWN_SM)
        sm_of_block = sm_of_blocks(grid.blocks, group[has_sm] // grid.groups, tags.sm[has_sm])
    units["sm"] = sm_of_block[units["cta"]]

    kept = np.flatnonzero(tags.sound)
    points = np.zeros(len(kept), dtype=POINT_COLUMNS)
    points["unit"], points["event"], points["side"] = unit[kept], tags.event[kept], tags.side[kept]
    points["ns"] = unwrapped(unit[kept].astype(np.int64), (entries[kept] >> np.uint64(32)).astype(np.uint32))
    return Points(units, points, grid.blocks - len(np.unique(units["cta"])))


# FlashInfer's sides, by the lowest two bits of a tag.
_SIDES = np.array([PointKind.START, PointKind.END, PointKind.INSTANT, -1], dtype=np.int64)


_SIDE_MASK = 0x3
_EVENT_SHIFT, _EVENT_MASK = 2, 0x3FF
_BLOCK_MASK = 0xFFF
_SM_SHIFT = 24
_FLASHINFER_HINT = (
    "is it a FlashInfer buffer, zeroed before one launch, and saved whole? numpy.save(PATH, buffer.cpu().numpy())"
)


def read_flashinfer(words: NDArray[np.uint64], units: int, names: int) -> Points:
    """Read all entries by that form of the tag, of two, that fits more of them.

    An instant does not advance the position: the group's next entry replaces it. Raises ``KprofError`` if the header is
    invalid.
    """
    grid = _grid_of(words, _FLASHINFER_HINT)
    return _points_of(words[1:], grid, 0, partial(_flashinfer_tags, grid.groups))


def _flashinfer_tags(groups: int, tags: NDArray[np.int64], group: NDArray[np.int64]) -> _Tags:
    side = _SIDES[tags & _SIDE_MASK]
    number = tags >> _GROUP_SHIFT
    without_sm = number == group & _GROUP_MASK
    is_block = number & _BLOCK_MASK == group // groups & _BLOCK_MASK
    is_group = number & _BLOCK_MASK == group & _BLOCK_MASK
    with_sm = is_block | is_group
    has_sm = int(with_sm.sum()) > int(without_sm.sum())
    written = group // groups if int(is_block.sum()) > int(is_group.sum()) else group
    return _Tags(
        tags >> _EVENT_SHIFT & _EVENT_MASK,
        side,
        np.where(has_sm & (written <= _BLOCK_MASK), tags >> _SM_SHIFT, UNKNOWN_SM),
        (side >= 0) & (with_sm if has_sm else without_sm),
    )


_START_MASK = 1
_TASK_SHIFT, _TASK_MASK = 1, 0x7FF
_MAX_SMS = 1 << 12
_TRITON_DISTRIBUTED_HINT = (
    "is it a Triton-distributed buffer, reset before one launch, and saved whole? numpy.save(PATH, "
    "profile_buf.cpu().numpy())"
)


def read_triton_distributed(words: NDArray[np.uint64], units: int, names: int) -> Points:
    """Read all entries; one thread of each group writes, and slots that it did not write stay empty.

    Raises ``KprofError`` if the header or every block's word is invalid.
    """
    grid = _grid_of(words, _TRITON_DISTRIBUTED_HINT)
    blocks = words[1 : 1 + grid.blocks]
    number, sm = (blocks & np.uint64(0xFFFFFFFF)).astype(np.int64), (blocks >> np.uint64(32)).astype(np.int64)
    has_sm = (number == np.arange(grid.blocks)) & (sm < _MAX_SMS)
    if not has_sm.any():
        raise KprofError("the SM of every block is invalid", hint=_TRITON_DISTRIBUTED_HINT)
    return _points_of(
        words[1 + grid.blocks :],
        grid,
        0xFFFFFFFFFFFFFFFF,
        _triton_distributed_tags,
        np.where(has_sm, sm, UNKNOWN_SM),
    )


def _triton_distributed_tags(tags: NDArray[np.int64], group: NDArray[np.int64]) -> _Tags:
    is_start = (tags & _START_MASK).astype(bool)
    return _Tags(
        tags >> _TASK_SHIFT & _TASK_MASK,
        np.where(is_start, PointKind.START, PointKind.END),
        np.full(len(tags), UNKNOWN_SM),
        tags >> _GROUP_SHIFT == group & _GROUP_MASK,
    )

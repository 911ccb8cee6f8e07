"""Buffers to which each group writes its entries at a constant stride: FlashInfer's, and those derived from it.

The groups of all blocks write next to each other: a row has one entry of each. So the position of an entry gives its
group, and its row the order of writing. An entry is a tag of 32 bits, and above it the lower 32 bits of
``%globaltimer``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
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

_MAX_GROUPS = 1024


@dataclass(frozen=True, slots=True)
class Grid:
    """Number of blocks that ran, and of groups of each block that record."""

    blocks: int
    groups: int

    @property
    def stride(self) -> int:
        """Distance between two entries of a group."""
        return self.blocks * self.groups


@dataclass(frozen=True, slots=True)
class Tags:
    """Content of the tags of some entries.

    ``sm`` is the SM of each, or ``UNKNOWN_SM``; entries that are not ``sound`` are not of this profiler.
    """

    event: NDArray[np.int64]
    side: NDArray[np.int64]
    sm: NDArray[np.int64]
    sound: NDArray[np.bool_]


def grid_of(words: NDArray[np.uint64], hint: str) -> Grid:
    """Read the grid from the first word: blocks in its lower half, groups above.

    Raises ``KprofError`` if it is impossible.
    """
    if not len(words):
        raise KprofError("the buffer is empty", hint=hint)
    blocks, groups = int(words[0]) & 0xFFFFFFFF, int(words[0]) >> 32
    if not (blocks and 0 < groups <= _MAX_GROUPS and blocks * groups < len(words)):
        raise KprofError(
            f"the header makes no sense: {blocks} blocks of {groups} groups, in a buffer of {len(words)} words",
            hint=hint,
        )
    return Grid(blocks, groups)


def points_of(
    words: NDArray[np.uint64],
    grid: Grid,
    empty: int,
    tags_of: Callable[[NDArray[np.int64], NDArray[np.int64]], Tags],
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


SIDES = np.array([PointKind.START, PointKind.END, PointKind.INSTANT, -1], dtype=np.int64)
"""FlashInfer's sides, by the lowest two bits of a tag."""

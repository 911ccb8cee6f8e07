"""Triton-distributed's buffer: header, the SM of each block, then an entry for each record, by stride.

Facts: ByteDance-Seed/Triton-distributed, python/triton_dist/tools/profiler/language.py at
8b9af3012c03ccafaa3288ff9b3d951d94537f28 (header, block's word, stride, tag: group 20 bits, task 11 bits, start 1 bit;
``globaltimer_lo`` above it); mdrumond/Triton-distributed, viewer.py in the same folder at
8db7c7b7506fd583e705b3935e2a9f5ed5acd816 (how its tag is decoded) and context.py at
6d6723b94245a6d9f25861abeb2dc1743e0fe352 (an empty slot has all bits set).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.foreign.entries import UNKNOWN_SM, PointKind, Points
from kprof_inject.capture.foreign.strided import Tags, grid_of, points_of
from kprof_inject.errors import KprofError

_EMPTY = 0xFFFFFFFFFFFFFFFF
_START_MASK = 1
_TASK_SHIFT, _TASK_MASK = 1, 0x7FF
_GROUP_SHIFT, _GROUP_MASK = 12, 0xFFFFF
_MAX_SMS = 1 << 12
_HINT = (
    "is it a Triton-distributed buffer, reset before one launch, and saved whole? numpy.save(PATH, "
    "profile_buf.cpu().numpy())"
)


@dataclass(frozen=True, slots=True)
class TritonDistributed:
    """Profiler in which one thread of each group writes; slots that it did not write stay empty."""

    cta_name: ClassVar[str] = "CTA"
    unit_name: ClassVar[str] = "group"
    takes_units: ClassVar[bool] = False

    def read(self, words: NDArray[np.uint64], units: int, names: int) -> Points:
        """Read all entries; raises ``KprofError`` if the header or every block's word is invalid."""
        grid = grid_of(words, _HINT)
        blocks = words[1 : 1 + grid.blocks]
        number, sm = (blocks & np.uint64(0xFFFFFFFF)).astype(np.int64), (blocks >> np.uint64(32)).astype(np.int64)
        has_sm = (number == np.arange(grid.blocks)) & (sm < _MAX_SMS)
        if not has_sm.any():
            raise KprofError("no block says which SM it ran on", hint=_HINT)
        return points_of(words[1 + grid.blocks :], grid, _EMPTY, _tags, np.where(has_sm, sm, UNKNOWN_SM))


def _tags(tags: NDArray[np.int64], group: NDArray[np.int64]) -> Tags:
    is_start = (tags & _START_MASK).astype(bool)
    return Tags(
        tags >> _TASK_SHIFT & _TASK_MASK,
        np.where(is_start, PointKind.START, PointKind.END),
        np.full(len(tags), UNKNOWN_SM),
        tags >> _GROUP_SHIFT == group & _GROUP_MASK,
    )

"""FlashInfer's buffer: header, then an entry for each record, by stride.

Facts: flashinfer-ai/flashinfer, include/flashinfer/profiler.cuh at 40db3fadfd5f361882dcd4cc797bd8867b7893a2 (header,
stride, ``globaltimer_lo``; the tag: 20 bits of group, numbered through all blocks, 10 bits of event, 2 bits of start,
end, instant), flashinfer/profiler/__init__.py at 004903ca828822934e51d1a3ac30640cca7758eb (an empty slot is 0; the
later tag: 8 bits of SM, 12 bits of block and group, 10 and 2 bits as before). The later header file writes the block
alone where that decoder reads block and group, so the group is taken from the position of the entry. Neither masks the
number that it writes: from 4,096 on it overflows into the bits of the SM, which is unknown then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.foreign.entries import UNKNOWN_SM, Points
from kprof_inject.capture.foreign.strided import SIDES, Tags, grid_of, points_of

_EMPTY = 0
_SIDE_MASK = 0x3
_EVENT_SHIFT, _EVENT_MASK = 2, 0x3FF
_GROUP_SHIFT, _GROUP_MASK = 12, 0xFFFFF
_BLOCK_MASK = 0xFFF
_SM_SHIFT = 24
_HINT = "is it a FlashInfer buffer, zeroed before one launch, and saved whole? numpy.save(PATH, buffer.cpu().numpy())"


@dataclass(frozen=True, slots=True)
class FlashInfer:
    """Profiler with two forms of its tag, of which the one that fits more entries is used.

    An instant does not advance the position: the group's next entry replaces it.
    """

    cta_name: ClassVar[str] = "CTA"
    unit_name: ClassVar[str] = "group"
    takes_units: ClassVar[bool] = False

    def read(self, words: NDArray[np.uint64], units: int, names: int) -> Points:
        """Read all entries; raises ``KprofError`` if the header is invalid."""
        grid = grid_of(words, _HINT)
        return points_of(words[1:], grid, _EMPTY, partial(_tags, grid.groups))


def _tags(groups: int, tags: NDArray[np.int64], group: NDArray[np.int64]) -> Tags:
    side = SIDES[tags & _SIDE_MASK]
    number = tags >> _GROUP_SHIFT
    without_sm = number == group & _GROUP_MASK
    is_block = number & _BLOCK_MASK == group // groups & _BLOCK_MASK
    is_group = number & _BLOCK_MASK == group & _BLOCK_MASK
    with_sm = is_block | is_group
    has_sm = int(with_sm.sum()) > int(without_sm.sum())
    written = group // groups if int(is_block.sum()) > int(is_group.sum()) else group
    return Tags(
        tags >> _EVENT_SHIFT & _EVENT_MASK,
        side,
        np.where(has_sm & (written <= _BLOCK_MASK), tags >> _SM_SHIFT, UNKNOWN_SM),
        (side >= 0) & (with_sm if has_sm else without_sm),
    )

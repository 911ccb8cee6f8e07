"""Choose the CTAs of a launch that record, and lay out the buffer of such a sample.

The clusters of a grid (without clusters: its CTAs) have the order of their program ids. Of each ``2 ** shift``
successive ones, a block, one records; a hash of the block's number tells which. So the sample is spread evenly over the
grid, and does not follow a pattern of the grid's own. The last block may be shorter, and then may have none.

The buffer of such a launch has two parts. First come words of all CTAs of the grid, from the last CTA to the first: a
CTA that does not record leaves its end and its SM there. Then come the rows of the clusters that record, one for each
block. The kernel gets the address of the first row, and ``shift`` in the lowest bits of that address, which its
alignment leaves free. If all CTAs record, ``shift`` is 0, and there are no such words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

from msgspec import Struct

from kprof_inject.capture.schema import MAX_CTA_SHIFT, Grid
from kprof_inject.errors import KprofError, Position

ADDRESS_ALIGNMENT = 128  # alignment of a buffer in bytes, as Proton's own hook has it
END_BYTES = 8  # size of the word with a CTA's end
SM_BITS = 10  # number of the word's lowest bits that hold the SM; above them is the timer
HASH_FACTOR = 2654435761  # Knuth's multiplicative hash: 2**32 over the golden ratio
HASH_SHIFT = 32 - MAX_CTA_SHIFT

_MIN_RECORDED = 256
"""``auto`` has at least this many clusters record: the interval of a scope's median is then ± 2.5 %
(in the median of 58 foreign launches, H200, ``benchmarks/sampled.py``)."""
_MIN_SHARE = 4  # ``auto`` samples a grid only if it has at least this many times ``_MIN_RECORDED`` clusters


class CtaSample(Struct, frozen=True):
    """The sample of a grid of ``ctas`` in clusters of ``cluster_ctas``."""

    ctas: int
    cluster_ctas: int
    shift: int

    @property
    def rows(self) -> int:
        """Number of rows in the buffer."""
        clusters = self.ctas // self.cluster_ctas
        return -(-clusters >> self.shift) * self.cluster_ctas

    @property
    def ends_bytes(self) -> int:
        """Size of the words with the ends, after which the rows begin."""
        return -(-self.ctas * END_BYTES // ADDRESS_ALIGNMENT) * ADDRESS_ALIGNMENT if self.shift else 0

    def buffer_bytes(self, row_bytes: int) -> int:
        """Return the size of the buffer with rows of this size."""
        return self.ends_bytes + self.rows * row_bytes


@dataclass(frozen=True, slots=True)
class CtaChoice:
    """Value of ``--ctas``: one of ``2 ** shift`` clusters records.

    With None, at least ``min_recorded``, or all of a grid of fewer than four times as many. With ``per_sm`` = N, N to
    2 N CTAs of each SM record in the launch that ``of_launch`` gets.
    """

    shift: int | None = None
    per_sm: int | None = None
    min_recorded: int = _MIN_RECORDED

    def of_launch(self, grid: Grid, cluster_ctas: int, sms: int) -> CtaChoice:
        """Return the part of the CTAs that ``per_sm`` amounts to on a device with this number of SMs."""
        if self.per_sm is None or not sms:
            return replace(self, per_sm=None)
        return CtaChoice(_shift_for(prod(grid) * cluster_ctas, self.per_sm * sms))

    def sample(self, grid: Grid, cluster_ctas: int) -> CtaSample:
        """Return the sample of a launch whose ``grid`` counts clusters."""
        clusters = prod(grid)
        shift = self.shift
        if shift is None:
            has_sample = clusters >= _MIN_SHARE * self.min_recorded
            shift = _shift_for(clusters, self.min_recorded) if has_sample else 0
        return CtaSample(clusters * cluster_ctas, cluster_ctas, shift)


def _shift_for(count: int, min_recorded: int) -> int:
    return min(max((count // min_recorded).bit_length() - 1, 0), MAX_CTA_SHIFT)


EVERY_CTA = CtaChoice(0)
AUTO_CTAS = CtaChoice()
FEWER_CTAS = CtaChoice(min_recorded=_MIN_RECORDED // 2)  # for a kernel that is slow with the records of ``AUTO_CTAS``
_PART = re.compile(r"1/(\d{1,5})")
_PER_SM = re.compile(r"per-sm:(\d{1,6})")


def parse_ctas(text: str) -> CtaChoice:
    """Parse the value of ``--ctas``; raises ``KprofError``."""
    word = text.strip()
    if word in ("auto", "all"):
        return AUTO_CTAS if word == "auto" else EVERY_CTA
    per_sm = _PER_SM.fullmatch(word)
    if per_sm and int(per_sm[1]):
        return CtaChoice(per_sm=int(per_sm[1]))
    part = _PART.fullmatch(word)
    count = int(part[1]) if part else 0
    if count.bit_count() != 1 or count > 1 << MAX_CTA_SHIFT:
        raise KprofError(
            f"{word!r} is not a part of the CTAs",
            where=Position("--ctas", 1, 1, text),
            hint="give auto, all, per-sm:4 for four to eight of each SM, or a part such as 1/8: a power of two, up to "
            f"1/{1 << MAX_CTA_SHIFT}",
            exit_code=2,
        )
    return CtaChoice(count.bit_length() - 1)

"""Cycles of the SMs in which each scope ran; CTAs on one SM share its units, so common cycles count once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.ranges import merged

_SCOPES = 1 << 16  # more than any table has


class SmCycles:
    """Accumulator of the SMs' cycles from blocks of scopes (``SCOPE_COLUMNS``).

    The time of warps that run at once on an SM counts once.
    """

    def __init__(self, scopes: int) -> None:
        """Prepare sums for a table of ``scopes`` scopes."""
        self._scopes = scopes
        self._spans = [np.empty((0, 3), np.int64)]

    def add(self, block: NDArray[np.void]) -> None:
        """Add a block of scopes."""
        place = block["sm"].astype(np.int64) * _SCOPES + block["scope"]
        spans = np.stack([place, block["start_cycles"], block["end_cycles"]], axis=1)
        self._spans.append(_merged(spans))

    def cycles(self) -> NDArray[np.int64]:
        """Return the cycles of each scope of the table, summed over the SMs."""
        spans = _merged(np.concatenate(self._spans))
        found = np.zeros(self._scopes, np.int64)
        np.add.at(found, spans[:, 0] % _SCOPES, spans[:, 2] - spans[:, 1])
        return found


def cycles_with_ctas(ctas: NDArray[np.void], clock_hz: float, end: str = "pre_final_ns") -> int:
    """Return the cycles in which SMs had a CTA at work, summed over the SMs.

    They are computed from the timers of the CTAs (``CTA_COLUMNS``), without records. With ``post_final_ns`` as the end,
    the time in which CTAs write out their records counts too.
    """
    ends_ns = np.maximum(ctas[end], ctas["init_ns"])
    spans = _merged(np.stack([ctas["sm"].astype(np.int64), ctas["init_ns"], ends_ns], axis=1))
    return round(int((spans[:, 2] - spans[:, 1]).sum()) * clock_hz / 1e9)


def _merged(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Merge spans of a place that touch each other; rows are place, begin and end, in order."""
    if not len(spans):
        return spans
    places, number = np.unique(spans[:, 0], return_inverse=True)
    first = spans[:, 1].min()
    # Places are so far apart that no span of one reaches the next.
    far = spans[:, 2].max() - first + 1
    begins, ends = merged(*(spans[:, side] - first + number * far for side in (1, 2)))
    number = begins // far
    moved = number * far - first
    return np.stack([places[number], begins - moved, ends - moved], axis=1)

"""In how many cycles of the SMs each scope ran: CTAs that share an SM share its units, too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SCOPES = 1 << 16  # more than any table has
_FAR = 1 << 50  # further than any two cycles of a launch are from each other


class SmCycles:
    """Adds up a launch's blocks of scopes (``SCOPE_COLUMNS``). What warps run at once on an SM counts once."""

    def __init__(self, scopes: int) -> None:
        self._scopes = scopes
        self._spans = [np.empty((0, 3), np.int64)]

    def add(self, block: NDArray[np.void]) -> None:
        place = block["sm"].astype(np.int64) * _SCOPES + block["scope"]
        spans = np.stack([place, block["start_cycles"], block["end_cycles"]], axis=1)
        self._spans.append(_merged(spans))

    def cycles(self) -> NDArray[np.int64]:
        """Of each scope of the table, summed over the SMs."""
        spans = _merged(np.concatenate(self._spans))
        found = np.zeros(self._scopes, np.int64)
        np.add.at(found, spans[:, 0] % _SCOPES, spans[:, 2] - spans[:, 1])
        return found


def _merged(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of place, begin and end, without those of a place that touch each other, in order."""
    if not len(spans):
        return spans
    spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
    # Places are put so far from each other that no span of one reaches the next.
    place = np.cumsum(np.diff(spans[:, 0], prepend=spans[0, 0]) != 0)
    least = spans[:, 1].min()
    begins, ends = (spans[:, side] - least + place * _FAR for side in (1, 2))
    reached = np.maximum.accumulate(ends)
    first = np.flatnonzero(np.append(True, begins[1:] > reached[:-1]))
    last = np.append(first[1:], len(spans)) - 1
    return np.stack([spans[first, 0], spans[first, 1], reached[last] - place[last] * _FAR + least], axis=1)

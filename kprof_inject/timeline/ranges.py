"""Merging of ranges that may overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ends = NDArray[np.int64]


def merged(starts: Ends, ends: Ends) -> tuple[Ends, Ends]:
    """Merge ranges, given in any order, into ascending ones with gaps between them."""
    if not starts.size:
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    first = np.flatnonzero(np.append(True, starts[1:] > reached[:-1]))
    return starts[first], reached[np.append(first[1:], starts.size) - 1]

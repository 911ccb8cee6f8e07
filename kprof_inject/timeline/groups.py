"""Columns of values by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NO_SMALLEST = np.iinfo(np.int64).max
NO_LARGEST = np.iinfo(np.int64).min


def smallest(group: NDArray[np.int64], values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The smallest value of each of ``count`` groups; ``NO_SMALLEST`` for a group without any."""
    found = np.full(count, NO_SMALLEST)
    np.minimum.at(found, group, values)
    return found


def largest(group: NDArray[np.int64], values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The largest value of each of ``count`` groups; ``NO_LARGEST`` for a group without any."""
    found = np.full(count, NO_LARGEST)
    np.maximum.at(found, group, values)
    return found


def never_falling(values: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values, which are in order of ``group``, each at least as large as those before it in its group. The array is
    changed where it must be."""
    falls = np.flatnonzero((np.diff(values) < 0) & (np.diff(group) == 0))
    for number in np.unique(group[falls]).tolist():
        mine = slice(*np.searchsorted(group, (number, number + 1)).tolist())
        values[mine] = np.maximum.accumulate(values[mine])
    return values

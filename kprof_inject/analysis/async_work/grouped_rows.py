"""Operations on the columns of rows that are grouped: the rows of a group are contiguous."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_ROWS = 1 << 31
"""More than there are rows: a group's number times this, plus a row's number, is unique."""

Numbers = NDArray[np.int64]


def group_numbers(*keys: NDArray[np.integer]) -> Numbers:
    """Return the number of each row's group. A group ends where one of the keys changes."""
    begins = np.zeros(len(keys[0]), bool)
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return np.cumsum(begins)


def begins_group(group: Numbers) -> NDArray[np.bool_]:
    """Return which rows are the first of their group."""
    return np.append(True, np.diff(group) != 0)[: group.size]


def ends_group(group: Numbers) -> NDArray[np.bool_]:
    """Return which rows are the last of their group."""
    return np.append(np.diff(group) != 0, True)[: group.size]


def first_of_group(values: Numbers, group: Numbers) -> Numbers:
    """Return the value of the first row of each row's group."""
    found: Numbers = values[np.flatnonzero(begins_group(group))][group]
    return found


def last_of_group(values: Numbers, group: Numbers) -> Numbers:
    """Return the value of the last row of each row's group."""
    found: Numbers = values[np.flatnonzero(ends_group(group))][group]
    return found


def running_sums(values: Numbers, group: Numbers) -> Numbers:
    """Return the cumulative sums within each group."""
    total = np.cumsum(values)
    return total - first_of_group(total - values, group)


def numbers_in_group(group: Numbers) -> Numbers:
    """Return each row's place in its group, from 1."""
    return running_sums(np.ones(len(group), np.int64), group)


def greatest_so_far(values: Numbers, group: Numbers) -> Numbers:
    """Return the cumulative maximum within each group, at least 0. Values are below ``MAX_ROWS``."""
    return np.maximum.accumulate(np.maximum(values, 0) + group * MAX_ROWS) - group * MAX_ROWS

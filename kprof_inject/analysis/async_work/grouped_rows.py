"""Rows that stand in groups, as columns: a group's rows are side by side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 1 << 31
"""More than there are rows: the number of a group times this, and any number of rows, is one number."""

Numbers = NDArray[np.int64]


def group_numbers(*keys: NDArray[np.integer]) -> Numbers:
    """Of each row, the number of its group. A group ends where one of the keys changes."""
    begins = np.zeros(len(keys[0]), bool)
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return np.cumsum(begins)


def begins_group(group: Numbers) -> NDArray[np.bool_]:
    """Which rows are the first of theirs."""
    return np.append(True, np.diff(group) != 0)[: group.size]


def ends_group(group: Numbers) -> NDArray[np.bool_]:
    """Which rows are the last of theirs."""
    return np.append(np.diff(group) != 0, True)[: group.size]


def first_of_group(values: Numbers, group: Numbers) -> Numbers:
    """Of each row, what the first of its group has."""
    found: Numbers = values[np.flatnonzero(begins_group(group))][group]
    return found


def last_of_group(values: Numbers, group: Numbers) -> Numbers:
    """Of each row, what the last of its group has."""
    found: Numbers = values[np.flatnonzero(ends_group(group))][group]
    return found


def running_sums(values: Numbers, group: Numbers) -> Numbers:
    """They begin anew with each group."""
    total = np.cumsum(values)
    return total - first_of_group(total - values, group)


def numbers_in_group(group: Numbers) -> Numbers:
    """Of each row, its place in its group, from 1 on."""
    return running_sums(np.ones(len(group), np.int64), group)


def greatest_so_far(values: Numbers, group: Numbers) -> Numbers:
    """In each group, of numbers of rows; never less than 0."""
    return np.maximum.accumulate(np.maximum(values, 0) + group * MOST_ROWS) - group * MOST_ROWS

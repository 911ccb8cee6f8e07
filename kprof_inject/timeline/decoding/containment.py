"""What the scope table tells of records: a scope that stands in another one's text runs while that is open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeTable


def parents_of(table: ScopeTable) -> tuple[int, ...]:
    """The scope around each scope of the table, or -1."""
    return tuple(scope.parent for scope in table.scopes)


def inner_scopes(parents: Sequence[int]) -> list[list[int]]:
    """For each scope of the table those in it, at any depth. An outer one stands before those in it."""
    inner: list[list[int]] = [[] for _ in parents]
    for scope in range(len(parents)):
        around = scope
        while 0 <= parents[around] < around:
            around = parents[around]
            inner[around].append(scope)
    return inner


def begun_amid_inner(
    starts: NDArray[np.int64],
    order: NDArray[np.int64],
    scope: NDArray[np.int16],
    group: NDArray[np.int64],
    is_end: NDArray[np.bool_],
    parents: Sequence[int],
) -> NDArray[np.bool_]:
    """Which of the ``starts``, each the first record of its scope in its ring, cannot be one: a scope in it was open
    there, or had run before. The ring lost the true start, and this one was another's.

    ``starts`` are places in ``order``, which has the records by scope and then by time; the columns are in that order.
    """
    wrong = np.zeros(len(starts), dtype=bool)
    bounds = np.searchsorted(scope, np.arange(len(parents) + 1))
    inner = inner_scopes(parents)
    for outer in np.unique(scope[starts]):
        mine = np.flatnonzero(scope[starts] == outer)
        at, warp = order[starts[mine]], group[starts[mine]]
        for begin, end in ((bounds[scope], bounds[scope + 1]) for scope in inner[outer]):
            if begin == end:
                continue
            following = begin + np.searchsorted(order[begin:end], at)
            before, after = np.maximum(following - 1, begin), np.minimum(following, end - 1)
            wrong[mine] |= (following > begin) & (group[before] == warp)
            wrong[mine] |= (following < end) & (group[after] == warp) & is_end[after]
    return wrong

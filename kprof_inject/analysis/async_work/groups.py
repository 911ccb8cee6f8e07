"""Groups of asynchronous work that were in flight in a launch, as columns, and what to compute of grouped rows.

The rows of a group are side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeInfo, ScopeKind
from kprof_inject.select.parts import COPIES
from kprof_inject.ttgir.dialect import traits_of

IN_FLIGHT_COLUMNS = np.dtype(
    [
        ("cta", "i4"),
        ("sm", "i4"),
        ("warp", "i2"),
        ("scope", "i2"),
        ("wait_scope", "i2"),
        ("record", "i4"),
        ("start_cycles", "i8"),
        ("end_cycles", "i8"),
        ("start_ns", "i8"),
        ("known_ns", "i8"),
        ("end_ns", "i8"),
        ("blocked_ns", "i8"),
        ("depth", "i4"),
        ("bytes", "i8"),
    ]
)
"""One group of asynchronous work that was asked for and awaited.

``scope`` and ``wait_scope`` index the scope table; ``record`` is the first of its scope's, as in ``SCOPE_COLUMNS``.
It began at ``start_ns``. It was under way until ``known_ns`` for
sure, and until ``end_ns`` at the latest; the two are equal where the wait blocked, for ``blocked_ns``. ``depth`` is how
many of its kind were under way when it had begun, it among them. ``bytes`` are what this warp's part of it moves, of
TMA's copies what the CTA's does."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """Of a launch. ``works`` are the kinds of work of scopes around what asks for it; ``unpaired`` says of operations
    why their work could not be paired with a wait."""

    groups: NDArray[np.void]
    works: Mapping[int, str]
    unpaired: Mapping[str, str]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of work, in the order in which they are drawn."""
        return tuple(sorted(set(self.works.values())))


def starts_async(scope: ScopeInfo) -> bool:
    """Whether a scope is around an operation that asks for asynchronous work, or a run of these."""
    if scope.kind == ScopeKind.PART:
        return scope.label.partition("@")[0] == COPIES
    return scope.kind == ScopeKind.OPERATION and traits_of(scope.label or scope.name).starts_async


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

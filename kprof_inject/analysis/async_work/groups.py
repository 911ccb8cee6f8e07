"""Groups of asynchronous work in flight, as columns; operations on grouped rows; lanes in which groups are drawn."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
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
"""One group of asynchronous work that was issued and awaited.

``scope`` and ``wait_scope`` index the scope table; ``record`` is the first record of its scope, as in
``SCOPE_COLUMNS``. The group began at ``start_ns``. It was in flight until ``known_ns`` at least, and until ``end_ns``
at most; the two are equal where the wait blocked, for ``blocked_ns``. ``depth`` is how many groups of its kind were in
flight once it had begun, including itself. ``bytes`` are what this warp's part of it moves; for TMA copies, the
CTA's."""


class InFlight(Struct, frozen=True):
    """The asynchronous work of a launch.

    ``works`` are the kinds of work that scopes issue. ``unpaired`` gives the reason for each operation whose work could
    not be paired with a wait.
    """

    groups: NDArray[np.void]
    works: Mapping[int, str]
    unpaired: Mapping[str, str]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of work, in the order in which they are drawn."""
        return tuple(sorted(set(self.works.values())))


def starts_async(scope: ScopeInfo) -> bool:
    """Return whether a scope covers an operation that issues asynchronous work, or several of these in a row."""
    if scope.kind == ScopeKind.PART:
        return scope.label.partition("@")[0] == COPIES
    return scope.kind == ScopeKind.OPERATION and traits_of(scope.label or scope.name).starts_async


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


class FlightLanes(Struct, frozen=True):
    """The groups of a launch that are drawn, ordered by lane and start.

    A group is in flight until ``known_ns`` at least, and until ``end_ns`` at most, as far as its lane has room.
    ``work`` indexes ``kinds``. Lanes are numbered through the launch, CTA by CTA; in a CTA, each kind of work has lanes
    of its own.
    """

    kinds: tuple[str, ...]
    groups: NDArray[np.void]
    work: Numbers
    lane: Numbers
    known_ns: Numbers
    end_ns: Numbers

    @property
    def count(self) -> int:
        """The number of lanes."""
        return int(self.lane.max(initial=-1)) + 1


def flight_lanes(found: InFlight) -> FlightLanes:
    """Assign lanes to the groups of each CTA's first warp: all its warps issue the same work."""
    numbers = np.zeros(max(found.works, default=0) + 1, np.int64)
    for scope, kind in found.works.items():
        numbers[scope] = found.kinds.index(kind)
    work = numbers[found.groups["scope"]]
    order = np.lexsort((found.groups["start_cycles"], found.groups["warp"], work, found.groups["cta"]))
    groups, work = found.groups[order], work[order]
    is_first_warp = groups["warp"] == first_of_group(groups["warp"], group_numbers(groups["cta"], work))
    groups, work = groups[is_first_warp], work[is_first_warp]
    member = group_numbers(groups["cta"], work)
    # A group that ends as it begins has a depth of 0.
    depth = np.maximum(groups["depth"].astype(np.int64), 1)
    deepest = np.maximum.reduceat(depth, np.flatnonzero(begins_group(member))) if depth.size else depth
    lane = (np.cumsum(deepest) - deepest)[member] + (numbers_in_group(member) - 1) % deepest[member]
    order = np.lexsort((groups["start_ns"], lane))
    groups, work, lane = groups[order], work[order], lane[order]
    # None ends after the next start in its lane.
    following = np.append(groups["start_ns"][1:], np.iinfo(np.int64).max)
    is_followed = np.append(lane[1:] == lane[:-1], False)
    end_ns: Numbers = np.where(is_followed, np.minimum(groups["end_ns"], following), groups["end_ns"])
    return FlightLanes(found.kinds, groups, work, lane, np.minimum(groups["known_ns"], end_ns), end_ns)

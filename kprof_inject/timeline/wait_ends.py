"""Match each wait for a flag with the change of that flag which ended it, perhaps by another GPU.

A change is matched with a wait by the place in memory, and by values where the wait's condition and what was stored are
known. Elsewhere, the last change before the end of the wait counts, such as the last addition to a counter; that takes
all records of all CTAs. Where another change may have been the last, within the error of the clocks and the time that
an atomic takes, or where no recorded change explains the end, what ended the wait is unknown. It is never guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.flag_visits import TIMER_ERROR_NS, FlagVisits, flag_visits
from kprof_inject.timeline.memory_waits import has_all

# How long after a change a wait for it may end. A poll of another GPU's memory takes up to 2 µs, and the change may
# come right after one. On two H200, 7.3 µs were seen where many CTAs poll with atomics while others copy, and some
# 90 µs after 56 ms of polling; only values tell then.
_MAX_LATE_NS = 4_000
_MAX_LATE_BY_VALUE_NS = 200_000
_MAX_LATE_IF_SET_NS = 20_000
# Processes that share a GPU run in turn: the one that waits sees the change when it is its turn again.
_ANY_TIME_NS = 1 << 62
# Atomics that two SMs issue may be done in the other order. Between scopes whose code differs, one may also have its
# result when its end is recorded, and the other not.
_MAX_REORDERED_NS, _MAX_REORDERED_ELSEWHERE_NS = 500, 1_000
# Changes before those that may have ended a wait: more than a flag is changed between two waits for it.
_MIN_NEAR = 64
_NONE = -1


_Compare = Callable[[Any, Any], Any]


class Ending(IntEnum):
    """Outcome of matching a wait with changes of its flag."""

    CHANGED = 0
    """A CTA changed the flag while this one waited."""
    CHANGED_BEFORE = 1
    """The flag had its value when the CTA came."""
    NO_ADDRESS = 2
    """Unknown: the address of the flag was not recorded."""
    NOT_RECORDED = 3
    """Unknown: no recorded change of the flag explains the end."""
    NOT_SURE = 4
    """Unknown: two changes came so close to each other that either may have been the last."""
    TAGGED = 5
    """A CTA of the rank that the user has tagged; which of its changes it was is unknown."""


class WaitEnds(Struct, frozen=True):
    """Waits of some launches with the changes that ended them.

    ``endings`` has the ``Ending`` of each of the visits' waits, ``changes`` the index of the change that ended it or
    came before it, -1 if that is unknown.
    """

    visits: FlagVisits
    endings: NDArray[np.int8]
    changes: NDArray[np.int64]

    def arrows(self) -> NDArray[np.int64]:
        """Return the waits during which another CTA, or another launch, changed the flag."""
        at = np.flatnonzero(self.endings == Ending.CHANGED)
        waits, changes = self.visits.waits[at], self.visits.changes[self.changes[at]]
        is_other: NDArray[np.bool_] = (waits["launch"] != changes["launch"]) | (waits["cta"] != changes["cta"])
        return at[is_other]

    def by_clocks_of(self, launches: Sequence[PlacedLaunch]) -> WaitEnds:
        """Return the same by other clocks; ``launches`` are those of the visits with these, in the same order."""
        visits = flag_visits(launches)
        waits, changes = _ordered_as(self.visits.waits, visits.waits), _ordered_as(self.visits.changes, visits.changes)
        return replace(self, visits=replace(visits, waits=waits, changes=changes))


def _ordered_as(visits: NDArray[np.void], others: NDArray[np.void]) -> NDArray[np.void]:
    """Return ``others``, which are the same visits in another order, in the order of ``visits``."""
    ordered = np.empty_like(others)
    ordered[_by_row(visits)] = others[_by_row(others)]
    return ordered


def _by_row(visits: NDArray[np.void]) -> NDArray[np.intp]:
    return np.lexsort((visits["row"], visits["launch"]))


def wait_ends(launches: Sequence[PlacedLaunch]) -> list[WaitEnds]:
    """Return what ended the waits for flags, for the launches of each axis."""
    axes: dict[int, list[PlacedLaunch]] = {}
    for placed in launches:
        axes.setdefault(placed.clock.axis.number, []).append(placed)
    return [_ends(flag_visits(own)) for own in axes.values()]


def _ends(visits: FlagVisits) -> WaitEnds:
    waits, changes = visits.waits, visits.changes
    endings = np.full(len(waits), Ending.NO_ADDRESS, dtype=np.int8)
    ended_by = np.full(len(waits), _NONE)
    places_of_changes = dict(_groups(changes["flag"]))
    nothing = np.empty(0, dtype=np.int64)
    clocks = [placed.clock for placed in visits.launches]
    timers = np.array([clocks.index(clock) for clock in clocks])
    processes = {placed.timeline.launch.origin.name for placed in visits.launches}
    takes_turns = len(processes) > len(set(timers.tolist()))
    ranks = np.array([_rank_of(placed) for placed in visits.launches])
    is_whole = all(has_all(placed.timeline) for placed in visits.launches)
    for flag, own_waits in _groups(waits["flag"]):
        if flag == _NONE:
            continue
        own_changes = places_of_changes.get(flag, nothing)
        place = _Place(visits, timers, ranks, own_waits, own_changes, takes_turns=takes_turns, has_all=is_whole)
        for at, ending, change in place.endings():
            endings[at], ended_by[at] = ending, change
    endings[(ended_by == _NONE) & (waits["peer"] != NO_TAG)] = Ending.TAGGED
    return WaitEnds(visits, endings, ended_by)


def _rank_of(placed: PlacedLaunch) -> int:
    rank = placed.timeline.launch.origin.rank
    return _NONE if rank is None else rank


def _groups(numbers: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each number with the indices that have it, in their order."""
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.diff(numbers[order], prepend=np.iinfo(np.int64).min))
    for own in np.split(order, begins[1:]) if order.size else ():
        yield int(numbers[own[0]]), own


class _Cause(NamedTuple):
    """A change (by index) that ended waits: its time's error, and whether it is sure to be the one.

    It was matched by the flag's value, or else by time. An earlier change that was not looked at may have set the same
    value.
    """

    change: int
    error_ns: int = 0
    is_sure: bool = False
    by_value: bool = False
    may_be_earlier: bool = False


_NO_CAUSE = _Cause(_NONE)


class _Place:
    """The waits and the changes of one flag.

    For each launch, ``timers`` has a number that is equal for those of one device, and ``ranks`` its process's rank.

    With ``takes_turns``, processes share a device. With ``has_all``, no record of the launches is missing.
    """

    def __init__(
        self,
        visits: FlagVisits,
        timers: NDArray[np.int64],
        ranks: NDArray[np.int64],
        waits: NDArray[np.int64],
        changes: NDArray[np.int64],
        *,
        takes_turns: bool,
        has_all: bool,
    ) -> None:
        self._visits = visits
        self._at = waits
        self._changes_at = changes[np.argsort(visits.changes["begins_ns"][changes], kind="stable")]
        self._waits = visits.waits[waits]
        self._changes = visits.changes[self._changes_at]
        self._timers = timers
        self._ranks = ranks
        self._takes_turns = takes_turns
        self._has_all = has_all
        self._longest_ns = int((self._changes["ends_ns"] - self._changes["begins_ns"]).max(initial=0))
        self._left_ns: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._max_error_ns = int(self._changes["error_ns"].max(initial=0))
        self._takes = [visits.flag_of(wait).does == "takes" for wait in self._waits]
        self._sets_known_values = bool(len(changes)) and all(
            visits.flag_of(change).does == "sets" and change["value"] != NO_TAG for change in self._changes
        )

    def endings(self) -> Iterator[tuple[int, Ending, int]]:
        """Yield each wait with its ending and the change that ended it."""
        released_ns = self._released_ns()
        groups: dict[tuple[int, ...], list[int]] = {}
        alike = self._waits[["launch", "scope", "value", "peer"]].tolist()
        for number, (key, at_ns) in enumerate(zip(alike, released_ns.tolist(), strict=True)):
            # Takers of a lock get it one after the other.
            own = number if self._takes[number] else _NONE
            groups.setdefault((*key, at_ns, own), []).append(number)
        for (*_, at_ns, _), numbers in groups.items():
            cause = self._cause(self._waits[numbers], at_ns)
            for number in numbers:
                ending = self._ending(self._waits[number], cause)
                is_known = ending in (Ending.CHANGED, Ending.CHANGED_BEFORE)
                yield int(self._at[number]), ending, int(self._changes_at[cause.change]) if is_known else _NONE

    def _released_ns(self) -> NDArray[np.int64]:
        """Return when each wait ended at the latest: others that wait for the same may have seen it earlier.

        A CTA that goes on may change the flag again before the last one has seen the first change.
        """
        leaves_ns, arrives_ns = self._waits["leaves_ns"], self._waits["arrives_ns"]
        released_ns = leaves_ns.copy()
        order = np.argsort(leaves_ns, kind="stable").tolist()
        for place, number in enumerate(order):
            if self._takes[number]:
                continue
            wait = self._waits[number]
            for earlier in reversed(order[:place]):
                if leaves_ns[number] - leaves_ns[earlier] > _MAX_LATE_NS or leaves_ns[earlier] < arrives_ns[number]:
                    break
                if self._waits[earlier]["value"] == wait["value"] and self._waits[earlier]["scope"] == wait["scope"]:
                    released_ns[number] = min(released_ns[number], released_ns[earlier])
                    break
        return released_ns

    def _left_before(self, wait: np.void) -> NDArray[np.int64]:
        """Return when the CTA that made each change had last left a wait for the same; long ago if it had not."""
        key = int(wait["scope"]), int(wait["value"])
        if key not in self._left_ns:
            self._left_ns[key] = self._left_waits_for(*key)
        return self._left_ns[key]

    def _left_waits_for(self, scope: int, value: int) -> NDArray[np.int64]:
        left: dict[tuple[int, int], list[int]] = {}
        alike = self._waits[(self._waits["scope"] == scope) & (self._waits["value"] == value)]
        for launch, cta, leaves_ns in np.sort(alike[["launch", "cta", "leaves_ns"]]).tolist():
            left.setdefault((launch, cta), []).append(leaves_ns)
        found = np.full(len(self._changes), np.iinfo(np.int64).min)
        for at, (launch, cta, begins_ns) in enumerate(self._changes[["launch", "cta", "begins_ns"]].tolist()):
            own = left.get((launch, cta), [])
            if before := bisect_right(own, begins_ns):
                found[at] = own[before - 1]
        return found

    def _cause(self, waits: NDArray[np.void], released_ns: int) -> _Cause:
        """Return the change that ended some waits for the same, of which the first ended at ``released_ns``."""
        wait = waits[0]
        first, near = self._near(wait, released_ns)
        spread_ns = sum(int(np.ptp(waits[field])) for field in ("cta_begins_ns", "cta_ends_ns", "error_ns"))
        errors_ns = self._errors_ns(wait, near) + spread_ns
        is_before = (near["begins_ns"] - errors_ns <= released_ns) & ~_is_same_visit(near, wait)
        # A CTA that itself had waited for the same, and left no earlier, made its change after that.
        is_before &= self._left_before(wait)[first : first + len(near)] < released_ns
        if wait["peer"] != NO_TAG:
            is_before &= self._ranks[near["launch"]] == wait["peer"]
        before = np.flatnonzero(is_before)
        if not before.size:
            return _NO_CAUSE
        goes_on = _CONDITIONS.get(self._visits.flag_of(wait).condition)
        by_value = goes_on is not None and wait["value"] != NO_TAG and self._sets_known_values
        if by_value and goes_on is not None:
            change, is_sure = self._first_with_value(near, before, goes_on, wait["value"])
        elif self._has_all:
            change, is_sure = self._last(near, before, released_ns, errors_ns)
        else:
            return _NO_CAUSE
        if change == _NONE:
            return _NO_CAUSE
        may_be_earlier = by_value and first > 0 and change == before[0]
        return _Cause(first + change, int(errors_ns[change]), is_sure, by_value, may_be_earlier)

    def _ending(self, wait: np.void, cause: _Cause) -> Ending:
        """Return how a wait ended, if this change ended those for the same."""
        if cause.change == _NONE:
            return Ending.NOT_RECORDED
        changed_ns, arrives_ns = int(self._changes["ends_ns"][cause.change]), int(wait["arrives_ns"])
        was_set = changed_ns < arrives_ns
        max_late_ns = _MAX_LATE_NS
        if cause.by_value:
            max_late_ns = _MAX_LATE_IF_SET_NS if was_set else _MAX_LATE_BY_VALUE_NS
            max_late_ns = _ANY_TIME_NS if self._takes_turns else max_late_ns
        if int(wait["leaves_ns"]) - max(changed_ns, arrives_ns) > max_late_ns + cause.error_ns:
            return Ending.NOT_RECORDED
        if not cause.is_sure or (cause.may_be_earlier and not was_set):
            return Ending.NOT_SURE
        return Ending.CHANGED_BEFORE if was_set else Ending.CHANGED

    def _near(self, wait: np.void, released_ns: int) -> tuple[int, NDArray[np.void]]:
        """Return the changes that may have ended a wait and some before these, and the index of the first."""
        error_ns = int(self._visits.launches[0].clock.axis.error_ns + self._max_error_ns + wait["error_ns"])
        begins_ns = self._changes["begins_ns"]
        earliest_ns = released_ns - self._longest_ns - _MAX_LATE_BY_VALUE_NS - error_ns
        last = int(np.searchsorted(begins_ns, released_ns + error_ns, "right"))
        first = max(min(int(np.searchsorted(begins_ns, earliest_ns)), last - _MIN_NEAR), 0)
        return first, self._changes[first:last]

    def _errors_ns(self, visit: np.void, changes: NDArray[np.void]) -> NDArray[np.int64]:
        """Return how far the time of each change may be off against a visit's."""
        errors_ns: NDArray[np.int64] = changes["error_ns"] + visit["error_ns"]
        is_same_timer = self._timers[changes["launch"]] == self._timers[visit["launch"]]
        # One clock drives all SMs of a device: CTAs that begin and end together are off by the same time.
        apart_ns = abs(changes["cta_begins_ns"] - visit["cta_begins_ns"])
        apart_ns = apart_ns + abs(changes["cta_ends_ns"] - visit["cta_ends_ns"])
        same_errors_ns = np.minimum(errors_ns, apart_ns + 2 * TIMER_ERROR_NS)
        return np.where(is_same_timer, same_errors_ns, self._visits.launches[0].clock.axis.error_ns + errors_ns)

    def _first_with_value(
        self, near: NDArray[np.void], before: NDArray[np.int64], goes_on: _Compare, value: np.int64
    ) -> tuple[int, bool]:
        """Return the change that gave the flag a value that ends the wait, and whether it is sure to be the first.

        The flag may have been changed again since, to a value that ends it as well.
        """
        ends_it = ~goes_on(near["value"][before], value)
        if not ends_it.any():
            return _NONE, False
        last = int(np.flatnonzero(ends_it)[-1])
        others = np.flatnonzero(~ends_it[:last])
        run = before[int(others[-1]) + 1 if others.size else 0 : last + 1]
        return int(run[0]), not self._is_close(near, int(run[0]), run[1:])

    def _last(
        self, near: NDArray[np.void], before: NDArray[np.int64], released_ns: int, errors_ns: NDArray[np.int64]
    ) -> tuple[int, bool]:
        """Return the last change before a wait ended, and whether it is sure that no other was."""
        ends_ns = near["ends_ns"]
        change = int(before[np.argmax(ends_ns[before])])
        others = before[before != change]
        others = others[released_ns - ends_ns[others] <= _MAX_LATE_NS + errors_ns[others]]
        if near["begins_ns"][change] + errors_ns[change] > released_ns:
            return change, not others.size
        return change, not self._is_close(near, change, others)

    def _is_close(self, near: NDArray[np.void], change: int, others: NDArray[np.int64]) -> bool:
        """Return whether the order of a change and one of the others is unknown; that of one CTA's changes is known."""
        one, rest = near[change], near[others]
        rest = rest[~_is_same_cta(rest, one)]
        reordered_ns = np.where(rest["scope"] == one["scope"], _MAX_REORDERED_NS, _MAX_REORDERED_ELSEWHERE_NS)
        return bool((abs(rest["ends_ns"] - one["ends_ns"]) <= reordered_ns + self._errors_ns(one, rest)).any())


def _is_same_cta(visits: NDArray[np.void], visit: np.void) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (visits["launch"] == visit["launch"]) & (visits["cta"] == visit["cta"])
    return same


def _is_same_visit(visits: NDArray[np.void], visit: np.void) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = _is_same_cta(visits, visit) & (visits["scope"] == visit["scope"])
    same &= visits["round"] == visit["round"]
    return same


def _unsigned(compare: _Compare) -> _Compare:
    def compared(values: NDArray[np.int64], value: np.int64) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = compare(values.view(np.uint64), np.int64(value).view(np.uint64))
        return found

    return compared


# The predicates of arith.cmpi. A value of 32 bits is recorded with its sign, which keeps the order of unsigned ones.
_CONDITIONS: Mapping[str, _Compare] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "slt": np.less,
    "sle": np.less_equal,
    "sgt": np.greater,
    "sge": np.greater_equal,
    "ult": _unsigned(np.less),
    "ule": _unsigned(np.less_equal),
    "ugt": _unsigned(np.greater),
    "uge": _unsigned(np.greater_equal),
}

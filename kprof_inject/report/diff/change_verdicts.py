"""What changed from A to B, of a launch as a whole and of one scope: is it the kernel's, the clock's, or chance?"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.report.diff.runs import LaunchFigures, ScopeFigures
from kprof_inject.report.diff.scope_matching import NOWHERE, ScopeIdentity, ScopeMatch
from kprof_inject.timeline.comparison import Change, change_between, noise_floor, timer_step_ns, typical

_SAME_CLOCK = 0.01
"""Within it clocks are alike: each is fitted to a quarter of a per cent or so, and what times differ by then is within
the noise from process to process."""

_TOO_COARSE_PERCENT = 25.0
"""Whoever compares kernels is after less than a quarter: an interval that wide says nothing."""

_NO_BOUND_PERCENT = 100.0


class ChangeVerdict(Enum):
    """``NEW`` and ``GONE`` are of a scope that ran in B alone, or in A alone."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no difference"
    CLOCK = "the clock"
    UNKNOWN = "cannot tell"
    NEW = "new"
    GONE = "gone"


ONE_SIDED = (ChangeVerdict.NEW, ChangeVerdict.GONE)

_BY_DIRECTION = {1: ChangeVerdict.SLOWER, 0: ChangeVerdict.SAME, -1: ChangeVerdict.FASTER}


@dataclass(frozen=True, slots=True)
class Clocks:
    """The SMs' clock of both sides, as it was measured; None where it was not."""

    a_hz: float | None
    b_hz: float | None

    @property
    def differ(self) -> bool:
        if not self.a_hz or not self.b_hz:
            return False
        return abs(math.log(self.b_hz / self.a_hz)) > _SAME_CLOCK

    def __str__(self) -> str:
        return " vs ".join("unknown" if hz is None else f"{hz / 1e9:.2f} GHz" for hz in (self.a_hz, self.b_hz))


@dataclass(frozen=True, slots=True)
class Judged:
    """A change in time and the same in cycles, None where they cannot be told, and what is said of them.

    A kernel that changed is slower, or faster, in cycles as well; where the clocks differ and it is not, the clock is
    all that is known to have changed."""

    verdict: ChangeVerdict
    change: Change | None
    cycles: Change | None

    @property
    def changed(self) -> bool:
        return self.verdict in (ChangeVerdict.SLOWER, ChangeVerdict.FASTER)

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.value,
            "change": change_json(self.change),
            "change_in_cycles": change_json(self.cycles),
        }


def judged(change: Change | None, cycles: Change | None, clocks: Clocks) -> Judged:
    return Judged(_verdict(change, cycles, clocks), change, cycles)


def _verdict(change: Change | None, cycles: Change | None, clocks: Clocks) -> ChangeVerdict:
    if change is None or (change.direction == 0 and is_too_coarse(change)):
        return ChangeVerdict.UNKNOWN
    if change.direction and clocks.differ and cycles is not None and cycles.direction != change.direction:
        return ChangeVerdict.CLOCK
    return _BY_DIRECTION[change.direction]


def decisive(recorded: Judged, clean: Judged | None) -> Judged:
    """What is said of a launch by its times with records and without: by those without, if they can tell."""
    return clean if clean is not None and clean.verdict is not ChangeVerdict.UNKNOWN else recorded


UNKNOWN_INTERVAL = "[?]"


def change_words(change: Change) -> str:
    """Return a change with its interval, unless that says no more than that nothing is known: ``-32.3 % [-34.5,
    -27.9]``. The ends are rounded outwards."""
    low, high = _tenths(change.low_percent, math.floor), _tenths(change.high_percent, math.ceil)
    is_known = change.direction or change.error_percent <= _NO_BOUND_PERCENT
    interval = f"[{low:+.1f}, {high:+.1f}]" if is_known else UNKNOWN_INTERVAL
    return f"{round(change.percent, 1) + 0.0:+.1f} % {interval}"


def _tenths(percent: float, rounded: Callable[[float], int]) -> float:
    # What is a tenth but for the last digits of a float stays one; -0.0 is no number to show.
    return rounded(round(10 * percent, 6)) / 10 + 0.0


def is_too_coarse(change: Change) -> bool:
    return change.detectable_percent > _TOO_COARSE_PERCENT


def change_json(change: Change | None) -> dict[str, float] | None:
    if change is None:
        return None
    return {
        "percent": round(change.percent, 4),
        "low_percent": round(change.low_percent, 4),
        "high_percent": round(change.high_percent, 4),
        "detectable_percent": round(change.detectable_percent, 4),
    }


_LEAST_WITHOUT_FIRST = 2

_Launches = tuple[LaunchFigures, ...]
_Value = Callable[[LaunchFigures], float | None]
_ScopeValue = Callable[[ScopeFigures], float | None]


@dataclass(frozen=True, slots=True)
class Both:
    """A figure of A and of B, ``typical`` of their launches; None where there is none."""

    a: float | None
    b: float | None


@dataclass(frozen=True, slots=True)
class Basis:
    """What of a scope is compared, in time and in cycles. Of one that never ran the total is 0; there is no mean."""

    name: str
    time_ns: _ScopeValue
    cycles: _ScopeValue


TOTAL = Basis(
    "total",
    lambda scope: (scope.total_ns or 0) / max(len(scope.warps), 1),
    lambda scope: scope.total_cycles / max(len(scope.warps), 1),
)
"""Of all CTAs, for each warp that ran the scope: warps run side by side, and twice as many take no longer."""

MEAN = Basis("mean", lambda scope: scope.mean_ns, lambda scope: scope.mean_cycles)
"""Where records are missing on a side, the total is not of all."""


@dataclass(frozen=True, eq=False)
class Sides:
    """The launches of a kernel in A and in B."""

    a: _Launches
    b: _Launches

    @property
    def launches(self) -> _Launches:
        return (*self.a, *self.b)

    def without_first(self) -> Sides:
        return Sides(_without_first(self.a), _without_first(self.b))

    @cached_property
    def clocks(self) -> Clocks:
        return Clocks(_clock_hz(self.a), _clock_hz(self.b))

    @cached_property
    def duration_ns(self) -> Both:
        return self.both(_duration_ns)

    @cached_property
    def duration_cycles(self) -> Both:
        return self.both(_duration_cycles)

    def both(self, value: _Value) -> Both:
        return Both(_typical(self.a, value), _typical(self.b, value))

    def both_of(self, match: ScopeMatch, value: _ScopeValue) -> Both:
        """Of the scopes of a match."""
        return Both(_typical(self.a, _in_scope(match.a, value)), _typical(self.b, _in_scope(match.b, value)))

    def ran(self, match: ScopeMatch) -> tuple[bool, bool]:
        """Whether it ran in a launch of A, and of B."""
        return _any_ran(self.a, match.a), _any_ran(self.b, match.b)

    def basis(self, match: ScopeMatch) -> Basis:
        whole = all(one.scopes[match.a].whole for one in self.a) and all(one.scopes[match.b].whole for one in self.b)
        return TOTAL if whole else MEAN

    def launch_change(self, comparisons: int) -> Judged:
        """Of the time from the first CTA's begin to the last one's end, with records."""
        if not self.duration_ns.a or not self.duration_ns.b:
            return judged(None, None, self.clocks)
        shorter_ns = min(self.duration_ns.a, self.duration_ns.b)
        step = max(launch.timer_step_ns for launch in self.launches) / shorter_ns
        floor = noise_floor(shorter_ns, shorter_ns)
        time, cycles = (
            change_between(
                _by_process(self.a, value), _by_process(self.b, value), floor=floor, comparisons=comparisons, step=step
            )
            for value in (_duration_ns, _duration_cycles)
        )
        return judged(time, cycles, self.clocks)

    def scope_change(self, match: ScopeMatch, comparisons: int) -> Judged:
        basis, shares = self.basis(match), self.both_of(match, lambda scope: scope.share)
        shorter_ns = min(self.duration_ns.a or 0.0, self.duration_ns.b or 0.0)
        part_ns = shorter_ns * min(shares.a or 0.0, shares.b or 0.0)
        if part_ns <= 0:
            return judged(None, None, self.clocks)
        floor = noise_floor(shorter_ns, part_ns)
        time, cycles = (
            change_between(
                _by_process(self.a, _in_scope(match.a, value)),
                _by_process(self.b, _in_scope(match.b, value)),
                floor=floor,
                comparisons=comparisons,
            )
            for value in (basis.time_ns, basis.cycles)
        )
        return judged(time, cycles, self.clocks)


def clean_change(
    a: Sequence[NDArray[np.float64]],
    b: Sequence[NDArray[np.float64]],
    recorded: Judged,
    clocks: Clocks,
    comparisons: int,
) -> Judged:
    """Of a launch's time without records, an array for each process. What the clock did then is known from the launches
    with records alone, and goes for these if both say the same of the time."""
    shorter_ns = min(float(np.median(np.concatenate(side))) for side in (a, b))
    change = change_between(
        a,
        b,
        floor=noise_floor(shorter_ns, shorter_ns),
        comparisons=comparisons,
        step=timer_step_ns((*a, *b)) / shorter_ns,
    )
    agree = change is not None and recorded.change is not None and change.direction == recorded.change.direction
    return judged(change, recorded.cycles if agree else None, clocks)


def _without_first(launches: _Launches) -> _Launches:
    """Without the first launch of each process, which fills the caches, where at least two others are left."""
    others: dict[Hashable, int] = {}
    for launch in launches:
        others[launch.process] = others.get(launch.process, 0) + (not launch.first)
    return tuple(launch for launch in launches if not launch.first or others[launch.process] < _LEAST_WITHOUT_FIRST)


def _duration_ns(launch: LaunchFigures) -> float:
    return float(launch.duration_ns)


def _duration_cycles(launch: LaunchFigures) -> float | None:
    return None if launch.clock_hz is None else launch.duration_ns * launch.clock_hz / 1e9


def _clock_hz(launches: _Launches) -> float | None:
    if any(launch.clock_hz is None for launch in launches):
        return None
    return _typical(launches, lambda launch: launch.clock_hz)


def _any_ran(launches: _Launches, index: int) -> bool:
    return any(launch.scopes[index].count for launch in launches)


def _in_scope(index: int, value: _ScopeValue) -> _Value:
    return lambda launch: value(launch.scopes[index])


def _typical(launches: _Launches, value: _Value) -> float | None:
    known = [launch for launch in launches if value(launch) is not None]
    return typical(_by_process(known, value))


def _by_process(launches: Sequence[LaunchFigures], value: _Value) -> list[NDArray[np.float64]]:
    """The values of each process's launches in their order; one that is not known counts as none at all."""
    found: dict[Hashable, list[float]] = {}
    for launch in launches:
        found.setdefault(launch.process, []).append(value(launch) or 0.0)
    return [np.array(values, dtype=np.float64) for values in found.values()]


@dataclass(frozen=True, slots=True)
class ChangeExplanation:
    """How much of a launch's change its scopes explain."""

    percent: float
    """By how much it would take longer in B if nothing but its scopes had changed."""
    parts: tuple[float, ...]
    """Which part of its change each match explains by itself, without the matched scopes in it."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What the scopes of a match took more in B than in A, over all CTAs in each of these ``warps``."""

    ns: float
    warps: frozenset[int]


def explanation(
    sides: Sides,
    matches: Sequence[ScopeMatch],
    b: Sequence[ScopeIdentity],
    launch: Judged,
    recorded: Judged,
    took_ns: float | None,
) -> ChangeExplanation | None:
    """Of a launch that took ``took_ns`` in A, with records or without. None if it did not change for sure, or what its
    scopes grew by is not known.

    Scopes are timed with records: where the launch changed by as much with them as without, so far as can be told,
    their parts are those of its change with records."""
    duration_ns, cta_ns = sides.duration_ns.a, _typical(sides.a, lambda one: one.cta_ns)
    if not launch.changed or launch.change is None or not duration_ns or not cta_ns or not took_ns:
        return None
    grown = [_grown(sides, match) for match in matches]
    # CTAs run beside each other: as many as in A take so much of the launch's time for each ns of all of theirs.
    found = explained(matches, b, grown, launch.change, 100 * duration_ns / cta_ns / took_ns)
    if found is None or recorded.change is None or not (recorded.changed and _overlap(recorded.change, launch.change)):
        return found
    with_records = explained(matches, b, grown, recorded.change, 100 / cta_ns)
    return with_records and replace(with_records, percent=found.percent)


def _overlap(one: Change, other: Change) -> bool:
    return one.low_percent <= other.high_percent and other.low_percent <= one.high_percent


def explained(
    matches: Sequence[ScopeMatch],
    b: Sequence[ScopeIdentity],
    grown: Sequence[Grown | None],
    change: Change,
    percent_per_ns: float,
) -> ChangeExplanation | None:
    """Of a launch with this ``change``, which all CTAs' time moves by so many per cent for each ns."""
    known = [one for one in grown if one is not None]
    if not known or len(known) < len(grown):
        return None
    around, own_ns = _own([one.ns for one in known], matches, b)
    outermost = [one for one, outer in zip(known, around, strict=True) if outer == NOWHERE]
    percent = percent_per_ns * _foremost_ns(outermost, change.direction)
    # What the launch's interval holds may be all of its change.
    whole = percent if change.low_percent <= percent <= change.high_percent else change.percent
    return ChangeExplanation(percent, tuple(percent_per_ns * ns / whole for ns in own_ns))


def own_cta_changes_ns(
    sides: Sides, matches: Sequence[ScopeMatch], b: Sequence[ScopeIdentity]
) -> tuple[float | None, ...]:
    """Return by how much each match takes longer in a CTA of B than in one of A, by itself, without the matched scopes
    in it. All are None if records are missing of any."""
    cta_ns = [sides.both_of(match, lambda scope: scope.cta_ns) for match in matches]
    grown_ns = [both.b - both.a for both in cta_ns if both.a is not None and both.b is not None]
    if len(grown_ns) < len(matches) or any(sides.basis(match) is not TOTAL for match in matches):
        return (None,) * len(matches)
    return tuple(_own(grown_ns, matches, b)[1])


def _own(
    grown_ns: Sequence[float], matches: Sequence[ScopeMatch], b: Sequence[ScopeIdentity]
) -> tuple[list[int], list[float]]:
    """Return the match around each, and what each grew by itself."""
    at = {match.b: number for number, match in enumerate(matches)}
    around = [at.get(_matched_around(match.b, b, at), NOWHERE) for match in matches]
    own_ns = list(grown_ns)
    for number, outer in enumerate(around):
        if outer != NOWHERE:
            own_ns[outer] -= grown_ns[number]
    return around, own_ns


def _grown(sides: Sides, match: ScopeMatch) -> Grown | None:
    """None if records are missing."""
    totals = sides.both_of(match, TOTAL.time_ns)
    if sides.basis(match) is not TOTAL or totals.a is None or totals.b is None:
        return None
    warps = [launch.scopes[at].warps for side, at in ((sides.a, match.a), (sides.b, match.b)) for launch in side]
    return Grown(totals.b - totals.a, frozenset().union(*warps))


def _foremost_ns(outermost: Sequence[Grown], direction: int) -> float:
    """What scopes grew by in the warp where that says most of the launch: warps run side by side."""
    by_warp: dict[int, float] = {}
    for one in outermost:
        for warp in one.warps:
            by_warp[warp] = by_warp.get(warp, 0.0) + one.ns
    return direction * max((direction * ns for ns in by_warp.values()), default=0.0)


def _matched_around(index: int, scopes: Sequence[ScopeIdentity], matched: dict[int, int]) -> int:
    """The innermost matched scope around one."""
    parent = scopes[index].parent
    while parent != NOWHERE and parent not in matched:
        parent = scopes[parent].parent
    return parent

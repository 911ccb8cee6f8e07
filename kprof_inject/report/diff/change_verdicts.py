"""Verdicts on a change from A to B, of a launch or of one scope: the kernel, the clock, or noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.report.diff.runs import LaunchFigures, ScopeFigures
from kprof_inject.report.diff.scope_matching import NOWHERE, ScopeIdentity, ScopeMatch
from kprof_inject.timeline.comparison import Change, change_between, noise_floor, timer_step_ns, typical

_SAME_CLOCK = 0.01
"""Clocks within 1 % count as equal: each fit is within a quarter of a per cent or so, and the times then differ by less
than the noise from process to process."""

_TOO_COARSE_PERCENT = 25.0
"""Intervals wider than 25 % are uninformative: users compare kernels for smaller changes."""

_NO_BOUND_PERCENT = 100.0
"""An interval with a larger error is printed as unknown."""


class ChangeVerdict(Enum):
    """Verdict on a change; ``NEW`` and ``GONE`` are for a scope that ran in B alone, or in A alone."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no difference"
    CLOCK = "the clock"
    UNKNOWN = "cannot tell"
    NEW = "new"
    GONE = "gone"


ONE_SIDED = (ChangeVerdict.NEW, ChangeVerdict.GONE)

_BY_DIRECTION = {1: ChangeVerdict.SLOWER, 0: ChangeVerdict.SAME, -1: ChangeVerdict.FASTER}


class Clocks(Struct, frozen=True):
    """Measured SM clock rates of both sides; None where a side has no measured rate."""

    a_hz: float | None
    b_hz: float | None

    @property
    def differ(self) -> bool:
        """True if both rates are known and differ by more than 1 %."""
        if not self.a_hz or not self.b_hz:
            return False
        return abs(math.log(self.b_hz / self.a_hz)) > _SAME_CLOCK

    def __str__(self) -> str:
        """Return both rates as ``1.50 GHz → 1.98 GHz``."""
        return " → ".join("unknown" if hz is None else f"{hz / 1e9:.2f} GHz" for hz in (self.a_hz, self.b_hz))


class Judged(Struct, frozen=True):
    """Verdict on a change, with the change in time and in cycles; None where one cannot be computed.

    A kernel that changed is slower, or faster, in cycles as well. If the clocks differ and the cycles do not confirm
    the change, only the clock is known to have changed.
    """

    verdict: ChangeVerdict
    change: Change | None
    cycles: Change | None

    @property
    def changed(self) -> bool:
        """True if the verdict is slower or faster."""
        return self.verdict in (ChangeVerdict.SLOWER, ChangeVerdict.FASTER)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict and both changes as JSON values."""
        return {
            "verdict": self.verdict.value,
            "change": change_json(self.change),
            "change_in_cycles": change_json(self.cycles),
        }


def judge_change(change: Change | None, cycles: Change | None, clocks: Clocks) -> Judged:
    """Return the change in time and in cycles with the verdict on them."""
    if change is None or (change.direction == 0 and change.detectable_percent > _TOO_COARSE_PERCENT):
        verdict = ChangeVerdict.UNKNOWN
    elif change.direction and clocks.differ and cycles is not None and cycles.direction != change.direction:
        verdict = ChangeVerdict.CLOCK
    else:
        verdict = _BY_DIRECTION[change.direction]
    return Judged(verdict, change, cycles)


def decisive(recorded: Judged, clean: Judged | None) -> Judged:
    """Return the verdict on a launch: that of its times without records if these suffice, else that with records."""
    return clean if clean is not None and clean.verdict is not ChangeVerdict.UNKNOWN else recorded


UNKNOWN_INTERVAL = "[?]"


def change_words(change: Change) -> str:
    """Return a change with its interval: ``-32.3 % [-34.5, -27.9]``, or ``[?]`` for an interval that excludes nothing.

    The ends are rounded outwards.
    """
    low, high = _tenths(change.low_percent, math.floor), _tenths(change.high_percent, math.ceil)
    is_known = change.direction or change.error_percent <= _NO_BOUND_PERCENT
    interval = f"[{low:+.1f}, {high:+.1f}]" if is_known else UNKNOWN_INTERVAL
    return f"{round(change.percent, 1) + 0.0:+.1f} % {interval}"


def _tenths(percent: float, rounded: Callable[[float], int]) -> float:
    # Rounding to six digits first keeps a tenth a tenth despite float error; adding 0.0 turns -0.0 into 0.0.
    return rounded(round(10 * percent, 6)) / 10 + 0.0


def change_json(change: Change | None) -> dict[str, float] | None:
    """Return a change as JSON values; None if there is none."""
    if change is None:
        return None
    return {
        "percent": round(change.percent, 4),
        "low_percent": round(change.low_percent, 4),
        "high_percent": round(change.high_percent, 4),
        "detectable_percent": round(change.detectable_percent, 4),
    }


_MIN_WITHOUT_FIRST = 2

_Launches = tuple[LaunchFigures, ...]
_Value = Callable[[LaunchFigures], float | None]
_ScopeValue = Callable[[ScopeFigures], float | None]


class Both(Struct, frozen=True):
    """A figure of A and of B, each ``typical`` of its side's launches; None where a side has none."""

    a: float | None
    b: float | None


class Basis(Struct, frozen=True):
    """Figure by which a scope is compared, in time and in cycles.

    For a scope that never ran, the total is 0 and there is no mean.
    """

    name: str
    time_ns: _ScopeValue
    cycles: _ScopeValue


TOTAL = Basis(
    "total",
    lambda scope: (scope.total_ns or 0) / max(len(scope.warps), 1),
    lambda scope: scope.total_cycles / max(len(scope.warps), 1),
)
"""Total over all CTAs per warp that ran the scope: warps run in parallel, and twice as many take no longer."""

MEAN = Basis("mean", lambda scope: scope.mean_ns, lambda scope: scope.mean_cycles)
"""For sides with missing records, whose totals are incomplete."""


@dataclass(frozen=True, eq=False)
class Sides:
    """The launches of a kernel in A and in B."""

    a: _Launches
    b: _Launches

    @property
    def launches(self) -> _Launches:
        """Launches of A, then those of B."""
        return (*self.a, *self.b)

    def without_first(self) -> Sides:
        """Return the launches without each process's first one, if at least two others remain."""
        return Sides(_without_first(self.a), _without_first(self.b))

    @cached_property
    def clocks(self) -> Clocks:
        """Typical clock rates of both sides."""
        return Clocks(_clock_hz(self.a), _clock_hz(self.b))

    @cached_property
    def duration_ns(self) -> Both:
        """Typical duration of a launch on each side, in nanoseconds."""
        return self.both(_duration_ns)

    @cached_property
    def duration_cycles(self) -> Both:
        """Typical duration of a launch on each side, in SM cycles."""
        return self.both(_duration_cycles)

    def both(self, value: _Value) -> Both:
        """Return the typical ``value`` of a launch on each side."""
        return Both(typical_value(self.a, value), typical_value(self.b, value))

    def both_of(self, match: ScopeMatch, value: _ScopeValue) -> Both:
        """Return the typical ``value`` of the matched scopes on each side."""
        return Both(typical_value(self.a, _in_scope(match.a, value)), typical_value(self.b, _in_scope(match.b, value)))

    def ran(self, match: ScopeMatch) -> tuple[bool, bool]:
        """Return whether the matched scope ran in any launch of A, and in any of B."""
        return _any_ran(self.a, match.a), _any_ran(self.b, match.b)

    def basis(self, match: ScopeMatch) -> Basis:
        """Return the basis on which to compare the matched scopes: totals, or means if records are missing."""
        whole = all(launch.scopes[match.a].whole for launch in self.a) and all(
            launch.scopes[match.b].whole for launch in self.b
        )
        return TOTAL if whole else MEAN

    def launch_change(self, comparisons: int) -> Judged:
        """Judge the change of the launch's span with records, from the first CTA's begin to the last one's end.

        ``comparisons`` is the number of launches that are compared, for the intervals to hold together.
        """
        if not self.duration_ns.a or not self.duration_ns.b:
            return judge_change(None, None, self.clocks)
        shorter_ns = min(self.duration_ns.a, self.duration_ns.b)
        step = max(launch.timer_step_ns for launch in self.launches) / shorter_ns
        floor = noise_floor(shorter_ns, shorter_ns)
        time, cycles = (
            change_between(
                _by_process(self.a, value), _by_process(self.b, value), floor=floor, comparisons=comparisons, step=step
            )
            for value in (_duration_ns, _duration_cycles)
        )
        return judge_change(time, cycles, self.clocks)

    def scope_change(self, match: ScopeMatch, comparisons: int) -> Judged:
        """Judge the change of the matched scopes' time; ``comparisons`` is the number of scopes compared."""
        basis, shares = self.basis(match), self.both_of(match, lambda scope: scope.share)
        shorter_ns = min(self.duration_ns.a or 0.0, self.duration_ns.b or 0.0)
        part_ns = shorter_ns * min(shares.a or 0.0, shares.b or 0.0)
        if part_ns <= 0:
            return judge_change(None, None, self.clocks)
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
        return judge_change(time, cycles, self.clocks)


def clean_change(
    a: Sequence[NDArray[np.float64]],
    b: Sequence[NDArray[np.float64]],
    recorded: Judged,
    clocks: Clocks,
    comparisons: int,
) -> Judged:
    """Judge the change of a launch's time without records; ``a`` and ``b`` have an array for each process.

    The clock is known only from the launches with records. Their change in cycles is used here if the two changes in
    time have the same direction.
    """
    shorter_ns = min(float(np.median(np.concatenate(side))) for side in (a, b))
    change = change_between(
        a,
        b,
        floor=noise_floor(shorter_ns, shorter_ns),
        comparisons=comparisons,
        step=timer_step_ns((*a, *b)) / shorter_ns,
    )
    agree = change is not None and recorded.change is not None and change.direction == recorded.change.direction
    return judge_change(change, recorded.cycles if agree else None, clocks)


def _without_first(launches: _Launches) -> _Launches:
    """Drop the first launch of each process, which fills the caches, if at least two others remain."""
    later_launches = Counter(launch.process for launch in launches if not launch.first)
    return tuple(
        launch for launch in launches if not launch.first or later_launches[launch.process] < _MIN_WITHOUT_FIRST
    )


def _duration_ns(launch: LaunchFigures) -> float:
    return float(launch.duration_ns)


def _duration_cycles(launch: LaunchFigures) -> float | None:
    return None if launch.clock_hz is None else launch.duration_ns * launch.clock_hz / 1e9


def _clock_hz(launches: _Launches) -> float | None:
    if any(launch.clock_hz is None for launch in launches):
        return None
    return typical_value(launches, lambda launch: launch.clock_hz)


def _any_ran(launches: _Launches, index: int) -> bool:
    return any(launch.scopes[index].count for launch in launches)


def _in_scope(index: int, value: _ScopeValue) -> _Value:
    return lambda launch: value(launch.scopes[index])


def typical_value(launches: _Launches, value: _Value) -> float | None:
    """Return the typical ``value`` of a side's launches; None if it is unknown in all of them."""
    known = [launch for launch in launches if value(launch) is not None]
    return typical(_by_process(known, value))


def _by_process(launches: Sequence[LaunchFigures], value: _Value) -> list[NDArray[np.float64]]:
    """Return the values of each process's launches in their order; an unknown value counts as 0."""
    found: dict[Hashable, list[float]] = {}
    for launch in launches:
        found.setdefault(launch.process, []).append(value(launch) or 0.0)
    return [np.array(values, dtype=np.float64) for values in found.values()]


class ChangeExplanation(Struct, frozen=True):
    """Part of a launch's change that its scopes explain."""

    percent: float
    """Change of B's launch, in per cent, if nothing but its scopes had changed."""
    parts: tuple[float, ...]
    """Part of the launch's change that each match explains by itself, without the matched scopes in it."""


class ScopeGrowth(Struct, frozen=True):
    """Time that a match's scopes took more in B than in A, over all CTAs, in each of ``warps``."""

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
    """Explain by its scopes the change of a launch that took ``took_ns`` in A, with or without records.

    Return None if the launch has not certainly changed, or the scopes' changes are unknown. Scopes are timed with
    records. If the launch's changes with and without records agree within their intervals, the parts are those of the
    change with records.
    """
    duration_ns, cta_ns = sides.duration_ns.a, typical_value(sides.a, lambda launch: launch.cta_ns)
    if not launch.changed or launch.change is None or not duration_ns or not cta_ns or not took_ns:
        return None
    grown = [_grown(sides, match) for match in matches]
    # CTAs run in parallel, so a nanosecond of all CTAs' time is a smaller part of the launch, as measured in A.
    explained = explain_change(matches, b, grown, launch.change, 100 * duration_ns / cta_ns / took_ns)
    change = recorded.change if recorded.changed else None
    if explained is None or change is None:
        return explained
    if change.low_percent > launch.change.high_percent or launch.change.low_percent > change.high_percent:
        return explained
    with_records = explain_change(matches, b, grown, change, 100 / cta_ns)
    return with_records and replace(with_records, percent=explained.percent)


def explain_change(
    matches: Sequence[ScopeMatch],
    b: Sequence[ScopeIdentity],
    grown: Sequence[ScopeGrowth | None],
    change: Change,
    percent_per_ns: float,
) -> ChangeExplanation | None:
    """Explain by its scopes a launch's ``change``; each nanosecond of all CTAs' time changes it by ``percent_per_ns``.

    Return None if the change of any scope is unknown.
    """
    known = [growth for growth in grown if growth is not None]
    if not known or len(known) < len(grown):
        return None
    around, own_ns = _own([growth.ns for growth in known], matches, b)
    outermost = [growth for growth, outer in zip(known, around, strict=True) if outer == NOWHERE]
    percent = percent_per_ns * _slowest_warp_growth_ns(outermost, change.direction)
    # A value within the launch's interval may be its whole change.
    whole = percent if change.low_percent <= percent <= change.high_percent else change.percent
    return ChangeExplanation(percent, tuple(percent_per_ns * ns / whole for ns in own_ns))


def own_cta_changes_ns(
    sides: Sides, matches: Sequence[ScopeMatch], b: Sequence[ScopeIdentity]
) -> tuple[float | None, ...]:
    """Return how much longer each match takes in a CTA of B than in one of A, without the matched scopes in it.

    In nanoseconds. All are None if records are missing from any match.
    """
    cta_ns = [sides.both_of(match, lambda scope: scope.cta_ns) for match in matches]
    grown_ns = [both.b - both.a for both in cta_ns if both.a is not None and both.b is not None]
    if len(grown_ns) < len(matches) or any(sides.basis(match) is not TOTAL for match in matches):
        return (None,) * len(matches)
    return tuple(_own(grown_ns, matches, b)[1])


def _own(
    grown_ns: Sequence[float], matches: Sequence[ScopeMatch], b: Sequence[ScopeIdentity]
) -> tuple[list[int], list[float]]:
    """Return the match around each match, and the time by which each grew by itself."""
    at = {match.b: number for number, match in enumerate(matches)}
    around = [at.get(_matched_parent(match.b, b, at), NOWHERE) for match in matches]
    own_ns = list(grown_ns)
    for number, outer in enumerate(around):
        if outer != NOWHERE:
            own_ns[outer] -= grown_ns[number]
    return around, own_ns


def _grown(sides: Sides, match: ScopeMatch) -> ScopeGrowth | None:
    """Return the time by which a match grew; None if records are missing."""
    totals = sides.both_of(match, TOTAL.time_ns)
    if sides.basis(match) is not TOTAL or totals.a is None or totals.b is None:
        return None
    warps = [launch.scopes[at].warps for side, at in ((sides.a, match.a), (sides.b, match.b)) for launch in side]
    return ScopeGrowth(totals.b - totals.a, frozenset().union(*warps))


def _slowest_warp_growth_ns(outermost: Sequence[ScopeGrowth], direction: int) -> float:
    """Return the growth of the warp that explains most of the change: warps run in parallel."""
    by_warp: dict[int, float] = {}
    for growth in outermost:
        for warp in growth.warps:
            by_warp[warp] = by_warp.get(warp, 0.0) + growth.ns
    return direction * max((direction * ns for ns in by_warp.values()), default=0.0)


def _matched_parent(index: int, scopes: Sequence[ScopeIdentity], matched: dict[int, int]) -> int:
    parent = scopes[index].parent
    while parent != NOWHERE and parent not in matched:
        parent = scopes[parent].parent
    return parent

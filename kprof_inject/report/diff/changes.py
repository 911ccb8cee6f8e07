"""What changed from A to B: of a launch as a whole, and of one scope."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.report.diff.matching import Match, ScopeIdentity
from kprof_inject.report.diff.runs import LaunchFigures, ScopeFigures
from kprof_inject.report.diff.verdict import Clocks, Judged, judged
from kprof_inject.timeline.comparison import Change, change_between, noise_floor

_LEAST_WITHOUT_FIRST = 2
_LARGEST_STEP_NS = 500.0  # what CUDA promises of its events; times that are all equal show no finer step

_Launches = Sequence[LaunchFigures]
_Value = Callable[[LaunchFigures], float | None]


@dataclass(frozen=True, slots=True)
class Both:
    """A figure of A and of B, the median of their launches; None where there is none."""

    a: float | None
    b: float | None

    @classmethod
    def of(cls, a: _Launches, b: _Launches, value_a: _Value, value_b: _Value) -> Both:
        return cls(_median(a, value_a), _median(b, value_b))


@dataclass(frozen=True, slots=True)
class Basis:
    """What of a scope is compared, in time and in cycles. Of one that never ran the total is 0; there is no mean."""

    name: str
    time_ns: Callable[[ScopeFigures], float | None]
    cycles: Callable[[ScopeFigures], float | None]


TOTAL = Basis(
    "total",
    lambda scope: (scope.total_ns or 0) / max(len(scope.warps), 1),
    lambda scope: scope.total_cycles / max(len(scope.warps), 1),
)
"""Of all CTAs, for each warp that ran the scope: warps run side by side, and twice as many take no longer."""

MEAN = Basis("mean", lambda scope: scope.mean_ns, lambda scope: scope.mean_cycles)
"""Where records are missing on a side, the total is not of all."""


def without_first(launches: _Launches) -> tuple[LaunchFigures, ...]:
    """Without the first launch of each process, which fills the caches, where at least two others are left."""
    others: dict[Hashable, int] = {}
    for launch in launches:
        others[launch.process] = others.get(launch.process, 0) + (not launch.first)
    return tuple(launch for launch in launches if not launch.first or others[launch.process] < _LEAST_WITHOUT_FIRST)


def clocks_of(a: _Launches, b: _Launches) -> Clocks:
    return Clocks(_clock_hz(a), _clock_hz(b))


def launch_change(a: _Launches, b: _Launches, clocks: Clocks, comparisons: int) -> Judged:
    """Of the time from the first CTA's begin to the last one's end, with records."""
    durations = Both.of(a, b, _duration_ns, _duration_ns)
    if not durations.a or not durations.b:
        return judged(None, None, clocks)
    shorter_ns = min(durations.a, durations.b)
    step = max(launch.timer_step_ns for launch in (*a, *b)) / shorter_ns
    floor = noise_floor(shorter_ns, shorter_ns)

    def change(value: _Value) -> Change | None:
        return change_between(
            _by_process(a, value), _by_process(b, value), floor=floor, comparisons=comparisons, step=step
        )

    return judged(change(_duration_ns), change(_duration_cycles), clocks)


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
    steps_ns = np.diff(np.unique(np.concatenate((*a, *b)).round()))
    change = change_between(
        a,
        b,
        floor=noise_floor(shorter_ns, shorter_ns),
        comparisons=comparisons,
        step=float(steps_ns.min(initial=_LARGEST_STEP_NS)) / shorter_ns,
    )
    agree = change is not None and recorded.change is not None and change.direction == recorded.change.direction
    return judged(change, recorded.cycles if agree else None, clocks)


def scope_basis(a: _Launches, b: _Launches, in_a: int, in_b: int) -> Basis:
    whole = all(launch.scopes[in_a].whole for launch in a) and all(launch.scopes[in_b].whole for launch in b)
    return TOTAL if whole else MEAN


def compared_ns(a: _Launches, b: _Launches, in_a: int, in_b: int, basis: Basis) -> Both:
    return Both.of(
        a, b, lambda launch: basis.time_ns(launch.scopes[in_a]), lambda launch: basis.time_ns(launch.scopes[in_b])
    )


def scope_change(a: _Launches, b: _Launches, in_a: int, in_b: int, clocks: Clocks, comparisons: int) -> Judged:
    """Of the scopes with these numbers in A's and in B's table."""
    basis = scope_basis(a, b, in_a, in_b)
    durations = Both.of(a, b, _duration_ns, _duration_ns)
    shares = Both.of(a, b, lambda launch: launch.scopes[in_a].share, lambda launch: launch.scopes[in_b].share)
    shorter_ns = min(durations.a or 0.0, durations.b or 0.0)
    part_ns = shorter_ns * min(shares.a or 0.0, shares.b or 0.0)
    if part_ns <= 0:
        return judged(None, None, clocks)
    floor = noise_floor(shorter_ns, part_ns)

    def change(value: Callable[[ScopeFigures], float | None]) -> Change | None:
        return change_between(
            _by_process(a, lambda launch: value(launch.scopes[in_a])),
            _by_process(b, lambda launch: value(launch.scopes[in_b])),
            floor=floor,
            comparisons=comparisons,
        )

    return judged(change(basis.time_ns), change(basis.cycles), clocks)


def _duration_ns(launch: LaunchFigures) -> float:
    return float(launch.duration_ns)


def _duration_cycles(launch: LaunchFigures) -> float | None:
    return None if launch.clock_hz is None else launch.duration_ns * launch.clock_hz / 1e9


def _clock_hz(launches: _Launches) -> float | None:
    rates = [launch.clock_hz for launch in launches]
    return None if None in rates else _median(launches, lambda launch: launch.clock_hz)


def _median(launches: _Launches, value: _Value) -> float | None:
    known = [found for found in map(value, launches) if found is not None]
    return float(np.median(known)) if known else None


def _by_process(launches: _Launches, value: _Value) -> list[NDArray[np.float64]]:
    """The values of each process's launches in their order; one that is not known counts as none at all."""
    found: dict[Hashable, list[float]] = {}
    for launch in launches:
        found.setdefault(launch.process, []).append(value(launch) or 0.0)
    return [np.array(values) for values in found.values()]


# How much of a launch's change its scopes explain: each by itself, and all together.

_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Explanation:
    """``percent`` is by how much the launch would take longer in B if nothing but its scopes had changed, and ``parts``
    which part of its change each match explains by itself, without the matched scopes in it."""

    percent: float
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Grown:
    """What the scopes of a match took more in B than in A, over all CTAs in each of these ``warps``."""

    ns: float
    warps: frozenset[int]


def explanation(
    matches: Sequence[Match],
    b: Sequence[ScopeIdentity],
    launches_a: Sequence[LaunchFigures],
    launches_b: Sequence[LaunchFigures],
    launch: Judged,
    took_ns: float | None,
) -> Explanation | None:
    """Of a launch that took ``took_ns`` in A, with records or without. None if it did not change for sure, or what its
    scopes grew by is not known."""
    duration_ns = Both.of(launches_a, launches_b, _scopes_duration_ns, _scopes_duration_ns).a
    cta_ns = Both.of(launches_a, launches_b, _cta_ns, _cta_ns).a
    grown = [_grown(launches_a, launches_b, match) for match in matches]
    if not launch.changed or launch.change is None or not duration_ns or not cta_ns or not took_ns:
        return None
    # CTAs run beside each other: as many as in A take so much of the launch's time for each ns of all of theirs.
    return explained(matches, b, grown, launch.change, 100 * duration_ns / cta_ns / took_ns)


def explained(
    matches: Sequence[Match],
    b: Sequence[ScopeIdentity],
    grown: Sequence[Grown | None],
    change: Change,
    percent_per_ns: float,
) -> Explanation | None:
    """Of a launch with this ``change``, which all CTAs' time moves by so many per cent for each ns."""
    known = [one for one in grown if one is not None]
    if not known or len(known) < len(grown):
        return None
    at = {match.b: number for number, match in enumerate(matches)}
    around = [at.get(_matched_around(match.b, b, at), _NOWHERE) for match in matches]
    own_ns = [one.ns for one in known]
    for number, outer in enumerate(around):
        if outer != _NOWHERE:
            own_ns[outer] -= known[number].ns
    outermost = [one for one, outer in zip(known, around, strict=True) if outer == _NOWHERE]
    percent = percent_per_ns * _foremost_ns(outermost, change.direction)
    # What the launch's interval holds may be all of its change.
    whole = percent if change.low_percent <= percent <= change.high_percent else change.percent
    return Explanation(percent, tuple(percent_per_ns * ns / whole for ns in own_ns))


def _grown(a: Sequence[LaunchFigures], b: Sequence[LaunchFigures], match: Match) -> Grown | None:
    """None if records are missing."""
    if scope_basis(a, b, match.a, match.b) is not TOTAL:
        return None
    totals = compared_ns(a, b, match.a, match.b, TOTAL)
    if totals.a is None or totals.b is None:
        return None
    warps = [launch.scopes[at].warps for side, at in ((a, match.a), (b, match.b)) for launch in side]
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
    while parent != _NOWHERE and parent not in matched:
        parent = scopes[parent].parent
    return parent


def _scopes_duration_ns(launch: LaunchFigures) -> float:
    return float(launch.duration_ns)


def _cta_ns(launch: LaunchFigures) -> float:
    return float(launch.cta_ns)

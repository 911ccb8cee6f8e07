"""What changed from A to B: of a launch as a whole, and of one scope."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.report.diff.figures import LaunchFigures, ScopeFigures
from kprof_inject.report.diff.verdict import Clocks, Judged, judged
from kprof_inject.timeline.statistics.comparison import Change, change_between, noise_floor

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

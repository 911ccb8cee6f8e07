"""How much longer a kernel takes with records in it, from the times of its launches: skewed, few, with outliers.

The ratio of the medians, and its interval after Price and Bonett, "Distribution-free confidence intervals for
difference and ratio of medians" (2002): a median's standard error is taken from two of its order statistics, on
logarithms. To it we add what they leave out: launches that resemble those before them, a timer that counts in steps,
and two processes that are never quite alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
_NORMAL_QUANTILE = 1.96  # of CONFIDENCE, both tails

MIN_LAUNCHES = 5
"""The range of four times misses their true median in one of eight cases; no interval can be better than that."""

_LARGEST_STEP_NS = 500.0
"""What CUDA promises of its events. Times that are all equal show no finer step."""

_NO_BOUND_PERCENT = 100.0
"""An interval wider than this bounds nothing: that is all there is to say of it."""

_BETWEEN_RUNS_NS = 165.0
"""How much the median moves from one process to the next, where nothing else changes (memory lies elsewhere): the
standard deviation over 16 runs of vector add and matmul, 5 and 18 µs long, on an H200 with Triton 3.6.0."""

_LARGEST_LOG = 50.0  # more than any ratio of times, and no overflow

_STRONGEST_CORRELATION = 0.9
"""Beyond it, few times say no more than that they drift; the error is about four times as large there already."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """``percent`` ± ``error_percent`` of the time without records; the interval holds the truth with ``CONFIDENCE``.

    ``least_error_percent`` is what would be left of the error after any number of launches: two processes differ by
    themselves, and the timer counts in steps."""

    percent: float
    error_percent: float
    least_error_percent: float = 0.0

    @property
    def low_percent(self) -> float:
        return self.percent - self.error_percent

    @property
    def high_percent(self) -> float:
        return self.percent + self.error_percent

    @property
    def is_measurable(self) -> bool:
        """Whether the times with and without records differ by more than chance."""
        return abs(self.percent) > self.error_percent

    def __str__(self) -> str:
        # The error is rounded up, so that what is printed holds the truth no less often; -0.0 is no number to show.
        error = f"{math.ceil(self.error_percent * 10 - 1e-9) / 10:.1f}"
        if self.error_percent > _NO_BOUND_PERCENT:
            error = f">{_NO_BOUND_PERCENT:g}"
        return f"{round(self.percent, 1) + 0.0:+.1f} % ± {error}"


def usable_times(times_ns: Sequence[float]) -> NDArray[np.float64]:
    """The times without those that no launch can have taken."""
    times = np.asarray(times_ns, dtype=np.float64)
    return times[np.isfinite(times) & (times > 0)]


def overhead_of(clean_ns: NDArray[np.float64], with_records_ns: NDArray[np.float64]) -> Overhead:
    """Compare the launches of two processes; each has at least ``MIN_LAUNCHES`` times, in the order of its launches."""
    clean, recorded = float(np.median(clean_ns)), float(np.median(with_records_ns))
    # Uniform within a step.
    step_error = _timer_step_ns(clean_ns, with_records_ns) / math.sqrt(12)
    of_runs = math.hypot(step_error, _BETWEEN_RUNS_NS) * math.hypot(1 / clean, 1 / recorded)
    of_launches = math.hypot(_standard_error_of_log_median(clean_ns), _standard_error_of_log_median(with_records_ns))
    ratio = recorded / clean
    # Symmetric in the logarithm: of the two halves the upper is larger.
    error_percent, least_error_percent = (
        100 * ratio * math.expm1(min(_NORMAL_QUANTILE * error, _LARGEST_LOG))
        for error in (math.hypot(of_runs, of_launches), of_runs)
    )
    return Overhead(100 * (ratio - 1), error_percent, least_error_percent)


def _standard_error_of_log_median(times_ns: NDArray[np.float64]) -> float:
    ordered = np.log(np.sort(times_ns))
    count = len(ordered)
    lower = max(1, round((count + 1) / 2 - math.sqrt(count)))
    # How many standard deviations of a binomial count these order statistics lie from the median.
    deviations = (count + 1 - 2 * lower) / math.sqrt(count)
    independent = float(ordered[count - lower] - ordered[lower - 1]) / (2 * deviations)
    return independent * math.sqrt(_variance_inflation(times_ns))


def _variance_inflation(times_ns: NDArray[np.float64]) -> float:
    """By how much the median's variance is larger because neighbours resemble each other (a clock that falls, say).

    What counts for a median is on which side of it neighbours lie."""
    sides = np.sign(times_ns - np.median(times_ns))
    correlation = float(sides[1:] @ sides[:-1]) / max(float(sides @ sides), 1.0)
    correlation = min(max(correlation, 0.0), _STRONGEST_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def _timer_step_ns(*samples: NDArray[np.float64]) -> float:
    """The smallest distance between two times: the timer's step, or nearly nothing if it has none."""
    steps = np.diff(np.unique(np.concatenate(samples).round()))
    return float(steps.min(initial=_LARGEST_STEP_NS))

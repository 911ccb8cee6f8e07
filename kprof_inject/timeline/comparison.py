"""Whether something takes longer on one side than on the other, from repeated launches of both: skewed, few, with
outliers, alike to their neighbours, and of processes that are never quite alike.

On logarithms, so that what is compared is a ratio:

* Within a process, the trimmed mean of its launches and that mean's variance: ``within_process``.
* Processes differ by themselves, which no number of launches in one process can show. Their variance is that of
  ``noise_floor``, moderated by what a few repeated processes of a side show (Smyth, "Linear models and empirical Bayes
  methods", 2004); from some more on it is what those show.
* The parts have degrees of freedom of their own, which are joined as by Welch (1947) and Satterthwaite (1946).
* Of several comparisons, each interval is widened so that all hold at once (Bonferroni; Dunn 1961).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

# Quantiles of Student's t distribution.

_STEPS = 4096
# Beyond, it is the normal distribution in the digits that we show.
_MOST_DEGREES = 1000.0


@lru_cache(maxsize=1024)
def t_quantile(tail: float, degrees: float) -> float:
    """The t that is exceeded with probability ``tail``, 0 < tail <= 0.5, for ``degrees`` of freedom, at least 1 and not
    necessarily whole.

    With t = sqrt(degrees) cot(x), x is distributed as sin(x) ^ (degrees - 1) between 0 and pi: that is integrated from
    0 on, in steps that are finer the nearer to 0 they are.
    """
    degrees = min(degrees, _MOST_DEGREES)
    x = np.pi / 2 * np.linspace(0, 1, _STEPS) ** 3
    density = np.sin(x) ** (degrees - 1)
    below = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x)))
    at = float(np.interp(tail, below / (2 * below[-1]), x))
    return math.sqrt(degrees) / math.tan(at)


# Where the launches of one process lie, and how sure that is.
#
# The 20 % trimmed mean, and its variance from the Winsorised values: Yuen, "The two-sample trimmed t for unequal
# population variances" (Biometrika 1974). A first launch that is slow moves neither by much.
#
# Launches resemble those before them (a clock that falls): the variance is raised by what the first autocorrelation
# says, which is estimated too low from few values and corrected for that: Marriott and Pope, "Bias in the estimation
# of autocorrelations" (Biometrika 1954).

MIN_LAUNCHES = 5
"""Fewer show neither an outlier nor that they resemble each other."""

_TRIMMED = 0.2
"""Of each end: it takes a fifth of outliers, and costs little where there are none."""

_STRONGEST_CORRELATION = 0.95
"""Beyond it, launches say no more than that they drift."""


@dataclass(frozen=True, slots=True)
class Within:
    """Where the launches lie, and the variance of that with its degrees of freedom: 0 and 0 if they are too few."""

    location: float
    variance: float
    degrees: float


def within_process(values: NDArray[np.float64]) -> Within:
    """Of at least one value, in the order of the launches."""
    count = len(values)
    trimmed = int(_TRIMMED * count)
    kept = count - 2 * trimmed
    middle = np.sort(values)[trimmed : count - trimmed]
    location = float(middle.mean())
    if count < MIN_LAUNCHES:
        return Within(location, 0.0, 0.0)
    winsorised = np.clip(values, middle[0], middle[-1])
    centred = winsorised - winsorised.mean()
    inflation = _inflation(centred)
    variance = inflation * float(centred @ centred) / (kept * (kept - 1))
    return Within(location, variance, max(kept / inflation - 1, 1.0))


def _inflation(centred: NDArray[np.float64]) -> float:
    """By how much the mean's variance is larger because neighbours resemble each other."""
    count, squares = len(centred), float(centred @ centred)
    if not squares:
        return 1.0
    seen = float(centred[1:] @ centred[:-1]) / squares
    # From few values it comes out too low, by (1 + 3 r) / n.
    correlation = min(max((count * seen + 1) / (count - 3), 0.0), _STRONGEST_CORRELATION)
    return (1 + correlation) / (1 - correlation)


CONFIDENCE = 0.95

_BETWEEN_PROCESSES_NS = 165.0
"""How much a launch's time moves from one process to the next, where nothing else changes (memory lies elsewhere): the
standard deviation over 16 runs of vector add and matmul, 5 and 18 µs long, on an H200 with Triton 3.6.0. It is what
``timeline/overhead.py`` goes by, too."""

_BETWEEN_PROCESSES_SHARE = 0.003
"""And never less than this part of it: in launches of a millisecond 165 ns are nothing, but temperature, power and
where memory lies move them as well. An assumption, until several captures of one side show better."""

_FLOOR_DEGREES = 8.0
"""How many repeats of one's own weigh as much as the floor. It rests on 16 runs, but of other kernels: half of that."""

_ENOUGH_REPEATS = 4
"""From so many on, what one's own repeated processes show stands for itself."""

_LARGEST_LOG = 50.0  # more than any ratio of times, and no overflow


@dataclass(frozen=True, slots=True)
class Change:
    """By how much B takes longer than A: ``log_ratio`` ± ``log_error``, an interval that holds the truth with
    ``CONFIDENCE``, for all comparisons of its family at once."""

    log_ratio: float
    log_error: float

    @property
    def percent(self) -> float:
        return 100 * math.expm1(self.log_ratio)

    @property
    def low_percent(self) -> float:
        return 100 * math.expm1(self.log_ratio - self.log_error)

    @property
    def high_percent(self) -> float:
        return 100 * math.expm1(min(self.log_ratio + self.log_error, _LARGEST_LOG))

    @property
    def error_percent(self) -> float:
        """The larger of the interval's halves: the upper one."""
        return self.high_percent - self.percent

    @property
    def detectable_percent(self) -> float:
        """The smallest slowdown that would have shown, had it been measured."""
        return 100 * math.expm1(min(self.log_error, _LARGEST_LOG))

    @property
    def direction(self) -> int:
        """1 if B takes longer, -1 if it takes less, 0 if that may be chance."""
        return 0 if abs(self.log_ratio) <= self.log_error else int(math.copysign(1, self.log_ratio))

    def __str__(self) -> str:
        return f"{round(self.percent, 1) + 0.0:+.1f} % ± {rounded_error(self.error_percent)}"


def rounded_error(percent: float) -> str:
    """Rounded up, so that what is printed holds the truth no less often."""
    return f"{math.ceil(percent * 10 - 1e-9) / 10:.1f}"


def noise_floor(launch_ns: float, part_ns: float) -> float:
    """The relative standard deviation, from process to process, of a part that takes ``part_ns`` of a launch's
    ``launch_ns``. Parts move each by itself, so that their variances add up to the launch's: that of a part is in
    proportion to its time."""
    return math.hypot(_BETWEEN_PROCESSES_NS / math.sqrt(launch_ns * part_ns), _BETWEEN_PROCESSES_SHARE)


def change_between(
    a: Sequence[NDArray[np.float64]],
    b: Sequence[NDArray[np.float64]],
    *,
    floor: float,
    comparisons: int = 1,
    step: float = 0.0,
) -> Change | None:
    """Compare two sides; of each, one array for each process with the values of its launches in their order.

    ``floor`` is the ``noise_floor``, ``step`` the timer's step as a part of the values. None if a side has neither
    ``MIN_LAUNCHES`` in each process nor several processes, or a value that is not above 0.
    """
    first, second = _side(a), _side(b)
    if first is None or second is None:
        return None
    variance, degrees = _joined(_parts(first, second, floor, step))
    quantile = t_quantile((1 - CONFIDENCE) / 2 / comparisons, degrees)
    return Change(second.location - first.location, quantile * math.sqrt(variance))


@dataclass(frozen=True, slots=True)
class _Between:
    """The variance between processes and its degrees of freedom. ``measured`` says that it is of what processes show,
    their launches' scatter in it."""

    variance: float
    degrees: float
    measured: bool


@dataclass(frozen=True, slots=True)
class _Side:
    """With ``few_launches`` what varies within some process is not known, and the processes are the sample."""

    processes: tuple[Within, ...]
    few_launches: bool

    @property
    def location(self) -> float:
        return float(np.mean([process.location for process in self.processes]))

    @property
    def repeats(self) -> float:
        return len(self.processes) - 1.0

    @property
    def scatter(self) -> float:
        """The sum of squares of the processes about their mean."""
        return float(np.sum([(process.location - self.location) ** 2 for process in self.processes]))


def _side(processes: Sequence[NDArray[np.float64]]) -> _Side | None:
    there = [values for values in processes if values.size]
    if not there or any(not np.isfinite(values).all() or values.min() <= 0 for values in there):
        return None
    found = tuple(within_process(np.log(values)) for values in there)
    side = _Side(found, any(not process.degrees for process in found))
    return None if side.few_launches and not side.repeats else side


def _parts(first: _Side, second: _Side, floor: float, step: float) -> Iterator[tuple[float, float]]:
    """The variance of the log ratio, in independent parts with their degrees of freedom."""
    # Uniform within a step, on both sides.
    yield step**2 / 6, math.inf
    for side in (first, second):
        if side.few_launches:
            yield side.scatter / side.repeats / len(side.processes), side.repeats
    others = [side for side in (first, second) if not side.few_launches]
    between = _between(floor, others)
    # One estimate for both sides: one part.
    yield between.variance * sum(1 / len(side.processes) for side in others), between.degrees
    for side in others:
        if not (between.measured and side.repeats):
            for process in side.processes:
                yield process.variance / len(side.processes) ** 2, process.degrees


def _joined(parts: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The sum of the variances, and its degrees of freedom."""
    known = [(variance, degrees) for variance, degrees in parts if variance]
    variance = sum(part for part, _ in known)
    uncertainty = sum(part**2 / degrees for part, degrees in known)
    return variance, max(round(variance**2 / uncertainty, 2), 1.0) if uncertainty else math.inf


def _between(floor: float, sides: Sequence[_Side]) -> _Between:
    repeats = sum(side.repeats for side in sides)
    if not repeats:
        return _Between(floor**2, _FLOOR_DEGREES, measured=False)
    shown = sum(side.scatter for side in sides) / repeats
    if repeats >= _ENOUGH_REPEATS:
        return _Between(shown, repeats, measured=True)
    explained = float(np.mean([process.variance for side in sides for process in side.processes]))
    shown = max(shown - explained, 0.0)
    degrees = _FLOOR_DEGREES + repeats
    return _Between(max((_FLOOR_DEGREES * floor**2 + repeats * shown) / degrees, shown), degrees, measured=False)

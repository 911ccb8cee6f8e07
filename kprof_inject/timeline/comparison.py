"""How two samples of launch times are compared: whether something takes longer on one side than on the other.

Launches are skewed, few, with outliers, alike to their neighbours, and of processes that are never quite alike. The
verdict on the records (``trust.py``) and ``diff`` both ask here, each with its ``Method``. All is done on logarithms,
so that what is compared is a ratio:

* Within a process, where its launches lie and the variance of that.
* Processes differ by themselves, which no number of launches in one process can show. Their variance is that of
  ``noise_floor``, moderated by what a few repeated processes of a side show (Smyth, "Linear models and empirical Bayes
  methods", 2004); from some more on it is what those show.
* The parts have degrees of freedom of their own, which are joined as by Welch (1947) and Satterthwaite (1946).
* Of several comparisons, each interval is widened so that all hold at once (Bonferroni; Dunn 1961).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95

MIN_LAUNCHES = 5
"""Fewer show neither an outlier nor that they resemble each other. The range of four times misses their true median in
one of eight cases; no interval can be better than that."""

# What CUDA promises of its events. Times that are all equal show no finer step.
_MAX_STEP_NS = 500.0

_BETWEEN_PROCESSES_NS = 165.0
"""How much a launch's time moves from one process to the next, where nothing else changes (memory lies elsewhere): the
standard deviation over 16 runs of vector add and matmul, 5 and 18 µs long, on an H200 with Triton 3.6.0."""

_BETWEEN_PROCESSES_SHARE = 0.003
"""And never less than this part of it: in launches of a millisecond 165 ns are nothing, but temperature, power and
where memory lies move them as well. An assumption, until several captures of one side show better."""

_FLOOR_DEGREES = 8.0
"""How many repeats of one's own weigh as much as the floor. It rests on 16 runs, but of other kernels: half of that."""

_ENOUGH_REPEATS = 4
"""From so many on, what one's own repeated processes show stands for itself."""

_MAX_LOG = 50.0  # more than any ratio of times, and no overflow

_STEPS = 4096
# Beyond, it is the normal distribution in the digits that we show.
_MAX_DEGREES = 1000.0


@lru_cache(maxsize=1024)
def t_quantile(tail: float, degrees: float) -> float:
    """The t of Student's distribution that is exceeded with probability ``tail``, 0 < tail <= 0.5, for ``degrees`` of
    freedom, at least 1 and not necessarily whole; infinite ones make it the normal distribution's.

    By hand, because SciPy would add a wheel of 35 MB to every install for this one function.

    With t = sqrt(degrees) cot(x), x is distributed as sin(x) ^ (degrees - 1) between 0 and pi: that is integrated from
    0 on, in steps that are finer the nearer to 0 they are.
    """
    if math.isinf(degrees):
        return NormalDist().inv_cdf(1 - tail)
    degrees = min(degrees, _MAX_DEGREES)
    x = np.pi / 2 * np.linspace(0, 1, _STEPS) ** 3
    density = np.sin(x) ** (degrees - 1)
    below = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x)))
    at = float(np.interp(tail, below / (2 * below[-1]), x))
    return math.sqrt(degrees) / math.tan(at)


@dataclass(frozen=True, slots=True)
class Location:
    """Where the launches of one process lie."""

    log_ns: float
    variance: float
    """Of ``log_ns``; 0 if the launches are too few to tell."""
    degrees: float
    """The variance's degrees of freedom; 0 if the launches are too few to tell."""


# Of each end: it takes a fifth of outliers, and costs little where there are none.
_TRIMMED = 0.2
# Beyond these, launches say no more than that they drift. What is estimated of signs has a larger error.
_MAX_CORRELATION = 0.95
_MAX_SIGN_CORRELATION = 0.9


def trimmed_mean(times: NDArray[np.float64]) -> Location:
    """The 20 % trimmed mean of at least one time, in the order of the launches, and its variance from the Winsorised
    logarithms: Yuen, "The two-sample trimmed t for unequal population variances" (Biometrika 1974). A first launch that
    is slow moves neither by much."""
    values = np.log(times)
    count = len(values)
    trimmed = int(_TRIMMED * count)
    kept = count - 2 * trimmed
    middle = np.sort(values)[trimmed : count - trimmed]
    location = float(middle.mean())
    if count < MIN_LAUNCHES:
        return Location(location, 0.0, 0.0)
    winsorised = np.clip(values, middle[0], middle[-1])
    centred = winsorised - winsorised.mean()
    squares = float(centred @ centred)
    correlation = _without_bias(_first_autocorrelation(centred), count) if squares else 0.0
    inflation = _inflation(correlation, _MAX_CORRELATION)
    return Location(location, inflation * squares / (kept * (kept - 1)), max(kept / inflation - 1, 1.0))


def median(times: NDArray[np.float64]) -> Location:
    """The median of at least one time, in the order of the launches, and its variance from two order statistics of the
    logarithms: Price and Bonett, "Distribution-free confidence intervals for difference and ratio of medians" (2002),
    who take it for known."""
    return _median(times, is_doubted=False)


def doubted_median(times: NDArray[np.float64]) -> Location:
    """The same for intervals that hold where launches are few and resemble each other as well: the correlation is
    corrected as ``trimmed_mean`` does, and the variance has the degrees of freedom of as many independent launches."""
    return _median(times, is_doubted=True)


def _median(times: NDArray[np.float64], *, is_doubted: bool) -> Location:
    middle, count = float(np.median(times)), len(times)
    if count < MIN_LAUNCHES:
        return Location(math.log(middle), 0.0, 0.0)
    ordered = np.log(np.sort(times))
    lower = max(1, round((count + 1) / 2 - math.sqrt(count)))
    # How many standard deviations of a binomial count these order statistics lie from the median.
    deviations = (count + 1 - 2 * lower) / math.sqrt(count)
    error = float(ordered[count - lower] - ordered[lower - 1]) / (2 * deviations)
    # What counts for a median is on which side of it neighbours lie.
    correlation = _first_autocorrelation(np.sign(times - middle))
    if is_doubted:
        correlation = _without_bias(correlation, count)
    inflation = _inflation(correlation, _MAX_SIGN_CORRELATION)
    degrees = max(count / inflation - 1, 1.0) if is_doubted else math.inf
    return Location(math.log(middle), error**2 * inflation, degrees)


def _without_bias(correlation: float, count: int) -> float:
    """Correct the correlation of few values, which comes out too low by (1 + 3 r) / n: Marriott and Pope, "Bias in the
    estimation of autocorrelations" (Biometrika 1954)."""
    return (count * correlation + 1) / (count - 3)


def _first_autocorrelation(centred: NDArray[np.float64]) -> float:
    """How much launches resemble those before them (a clock that falls, say)."""
    squares = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / squares if squares else 0.0


def _inflation(correlation: float, strongest: float) -> float:
    """By how much a variance is larger because neighbours are correlated."""
    correlation = min(max(correlation, 0.0), strongest)
    return (1 + correlation) / (1 - correlation)


def typical(processes: Iterable[NDArray[np.float64]]) -> float | None:
    """Return the value that ``OF_SIDES`` compares: the median of a process's launches, the geometric mean of those of
    several processes. Where one is 0 or less, it is the arithmetic mean; None without values."""
    medians = [float(np.median(values)) for values in processes if values.size]
    if len(medians) < 2:
        return medians[0] if medians else None
    return math.exp(float(np.mean(np.log(medians)))) if min(medians) > 0 else float(np.mean(medians))


@dataclass(frozen=True, slots=True)
class Method:
    """What two comparisons may do differently, for the reason that ``OF_SIDES`` and ``OF_RECORDS`` give."""

    locate: Callable[[NDArray[np.float64]], Location]
    floor_degrees: float
    """How well the noise floor is known; infinite if no repeats are to correct it."""


OF_SIDES = Method(doubted_median, _FLOOR_DEGREES)
"""Of ``diff``: any two captures, perhaps of other devices and of several processes, and many comparisons at once. It
is printed beside ``typical`` times, which its reader will divide; it doubts the floor."""

OF_RECORDS = Method(median, math.inf)
"""Of the verdict: one kernel without records and with them, in one process each. It is printed beside the two medians,
which its reader will divide. The floor was measured between such runs, and there is a single pair: it is taken for
known, and has no share of the launch's time in it (``run_noise``)."""


@dataclass(frozen=True, slots=True)
class Change:
    """By how much B takes longer than A: ``log_ratio`` ± ``log_error``, an interval that holds the truth with
    ``CONFIDENCE``, for all comparisons of its family at once."""

    log_ratio: float
    log_error: float
    min_log_error: float = 0.0
    """What would be left of the error after any number of launches: processes differ by themselves, and the timer
    counts in steps."""

    @property
    def percent(self) -> float:
        return 100 * math.expm1(self.log_ratio)

    @property
    def low_percent(self) -> float:
        return 100 * math.expm1(self.log_ratio - self.log_error)

    @property
    def high_percent(self) -> float:
        return 100 * math.expm1(min(self.log_ratio + self.log_error, _MAX_LOG))

    @property
    def error_percent(self) -> float:
        """The larger of the interval's halves: the upper one."""
        return self.high_percent - self.percent

    @property
    def min_error_percent(self) -> float:
        """The same of ``min_log_error``."""
        return 100 * math.expm1(min(self.log_ratio + self.min_log_error, _MAX_LOG)) - self.percent

    @property
    def detectable_percent(self) -> float:
        """The smallest slowdown that would have shown, had it been measured."""
        return 100 * math.expm1(min(self.log_error, _MAX_LOG))

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


def run_noise(a_ns: float, b_ns: float) -> float:
    """The same for two runs of one kernel, shortly after each other on one device, which take ``a_ns`` and ``b_ns`` a
    launch: temperature and power have not moved far."""
    return _BETWEEN_PROCESSES_NS * mean_share(a_ns, b_ns)


def mean_share(a_ns: float, b_ns: float) -> float:
    """What part a nanosecond is of ``a_ns`` and of ``b_ns``: the root of their mean square, as errors add up."""
    return math.hypot(1 / a_ns, 1 / b_ns) / math.sqrt(2)


def timer_step_ns(samples: Iterable[NDArray[np.float64]]) -> float:
    """The smallest distance between two times: the timer's step, or nearly nothing if it has none."""
    # What launching takes may have been subtracted, and differ from sample to sample.
    aligned = [sample - sample.min(initial=np.inf) for sample in samples]
    steps = np.diff(np.unique(np.concatenate(aligned).round()))
    return float(steps.min(initial=_MAX_STEP_NS))


def change_between(
    a: Sequence[NDArray[np.float64]],
    b: Sequence[NDArray[np.float64]],
    *,
    floor: float,
    comparisons: int = 1,
    step: float = 0.0,
    method: Method = OF_SIDES,
) -> Change | None:
    """Compare two sides; of each, one array for each process with the values of its launches in their order.

    ``floor`` is the ``noise_floor``, ``step`` the timer's step as a part of the values. None if a side has neither
    ``MIN_LAUNCHES`` in each process nor several processes, or a value that is not above 0.
    """
    first, second = _side(a, method), _side(b, method)
    if first is None or second is None:
        return None
    # Uniform within a step, on both sides.
    of_processes: list[_Part] = [(step**2 / 6, math.inf)]
    of_launches: list[_Part] = []
    for side in (first, second):
        if side.few_launches:
            of_processes.append((side.scatter / side.repeats / len(side.processes), side.repeats))
    others = [side for side in (first, second) if not side.few_launches]
    between = _between(floor, others, method.floor_degrees)
    # One estimate for both sides: one part.
    of_processes.append((between.variance * sum(1 / len(side.processes) for side in others), between.degrees))
    for side in others:
        if not (between.measured and side.repeats):
            count = len(side.processes)
            of_launches += [(process.variance / count**2, process.degrees) for process in side.processes]
    tail = (1 - CONFIDENCE) / 2 / comparisons
    return Change(
        second.location - first.location, _error([*of_processes, *of_launches], tail), _error(of_processes, tail)
    )


def change_in_pairs(a: NDArray[np.float64], b: NDArray[np.float64], *, step: float) -> Change | None:
    """Compare what was timed in turn, in one process: the n-th of both are a pair, in which nothing else has changed.

    ``step`` is the timer's step as a part of the values. None for fewer pairs than ``MIN_LAUNCHES``."""
    if len(a) < MIN_LAUNCHES:
        return None
    ratio = median(b / a)
    # Times that scatter less than a step all fall on the same one, however many there are; and so does their median.
    timer: _Part = (step**2 / 6, math.inf)
    tail = (1 - CONFIDENCE) / 2
    return Change(ratio.log_ns, _error([timer, (ratio.variance, ratio.degrees)], tail), _error([timer], tail))


_Part = tuple[float, float]
"""An independent part of the log ratio's variance, with its degrees of freedom."""


def _error(parts: Iterable[_Part], tail: float) -> float:
    """By how much the sum of the parts may be off, but for so much of either tail."""
    known = [(variance, degrees) for variance, degrees in parts if variance]
    variance = sum(part for part, _ in known)
    uncertainty = sum(part**2 / degrees for part, degrees in known)
    degrees = max(round(variance**2 / uncertainty, 2), 1.0) if uncertainty else math.inf
    return t_quantile(tail, degrees) * math.sqrt(variance)


@dataclass(frozen=True, slots=True)
class _Side:
    """With ``few_launches`` what varies within some process is not known, and the processes are the sample."""

    processes: tuple[Location, ...]
    few_launches: bool

    @property
    def location(self) -> float:
        return float(np.mean([process.log_ns for process in self.processes]))

    @property
    def repeats(self) -> float:
        return len(self.processes) - 1.0

    @property
    def scatter(self) -> float:
        """The sum of squares of the processes about their mean."""
        return float(np.sum([(process.log_ns - self.location) ** 2 for process in self.processes]))


def _side(processes: Sequence[NDArray[np.float64]], method: Method) -> _Side | None:
    there = [values for values in processes if values.size]
    if not there or any(not np.isfinite(values).all() or values.min() <= 0 for values in there):
        return None
    found = tuple(map(method.locate, there))
    side = _Side(found, any(not process.degrees for process in found))
    return None if side.few_launches and not side.repeats else side


@dataclass(frozen=True, slots=True)
class _Between:
    """The variance between processes and its degrees of freedom. ``measured`` says that it is of what processes show,
    their launches' scatter in it."""

    variance: float
    degrees: float
    measured: bool


def _between(floor: float, sides: Sequence[_Side], floor_degrees: float) -> _Between:
    repeats = sum(side.repeats for side in sides)
    if not repeats or math.isinf(floor_degrees):
        return _Between(floor**2, floor_degrees, measured=False)
    shown = sum(side.scatter for side in sides) / repeats
    if repeats >= _ENOUGH_REPEATS:
        return _Between(shown, repeats, measured=True)
    explained = float(np.mean([process.variance for side in sides for process in side.processes]))
    shown = max(shown - explained, 0.0)
    degrees = floor_degrees + repeats
    return _Between(max((floor_degrees * floor**2 + repeats * shown) / degrees, shown), degrees, measured=False)

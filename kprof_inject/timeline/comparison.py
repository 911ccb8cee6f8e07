"""Compare two samples of launch times: whether something takes longer on one side than on the other.

Launch times are skewed, few, autocorrelated and have outliers, and their processes are never quite alike. The verdict
on the records (``trust.py``) and ``diff`` both use this module. Everything is computed on
logarithms, so that a comparison is a ratio:

* A process has a location and the variance of that location.
* Processes differ among themselves, which no number of launches in one process can show. Their variance is that of
  ``noise_floor``, moderated by the scatter of a side's few repeated processes (Smyth, "Linear models and empirical
  Bayes methods", 2004); with enough repeats it is that scatter alone.
* Each part has its own degrees of freedom, which are combined as by Welch (1947) and Satterthwaite (1946).
* With several comparisons, each interval is widened so that all hold at once (Bonferroni; Dunn 1961).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from kprof_inject.timeline.columns import Reals

CONFIDENCE = 0.95

MIN_LAUNCHES = 5
"""Fewer launches show neither outliers nor autocorrelation. The range of four times misses their true median in one of
eight cases; no interval can be better than that.
"""

# Resolution of CUDA events (CUDA Runtime API, cudaEventElapsedTime). Times that are all equal show no finer step.
_MAX_STEP_NS = 500.0

_BETWEEN_PROCESSES_NS = 165.0
"""Standard deviation of a launch's time from one process to the next, where nothing but memory addresses changes: over
16 runs of vector add and matmul, 5 and 18 µs long, on an H200 with Triton 3.6.0.
"""

_BETWEEN_PROCESSES_SHARE = 0.003
"""Minimum of the same, relative to the time: in launches of a millisecond 165 ns are nothing, but temperature, power
and memory addresses change them as well. An assumption, until several captures of one side show better.
"""

_FLOOR_DEGREES = 8.0
"""Number of own repeats that weigh as much as the floor. The floor is known from 16 runs, but of other kernels: half of
that.
"""

_ENOUGH_REPEATS = 4  # number of repeats from which the scatter of a side's own processes replaces the floor
_MAX_LOG = 50.0  # more than any ratio of times, and no overflow
_STEPS = 4096  # of the numerical integration; enough for the digits that are shown
_MAX_DEGREES = 1000.0  # with more degrees of freedom, the distribution is normal in the digits that are shown


@lru_cache(maxsize=1024)
def t_quantile(tail: float, degrees: float) -> float:
    """Return the t of Student's distribution that is exceeded with probability ``tail``, 0 < tail <= 0.5.

    ``degrees`` of freedom are at least 1 and not necessarily whole; infinite ones give the normal distribution. SciPy
    would add a wheel of 35 MB to every install for this one function.

    With t = sqrt(degrees) cot(x), x is distributed as sin(x) ^ (degrees - 1) between 0 and pi. The density is
    integrated from 0 on, in steps that are finer the nearer to 0 they are.
    """
    if math.isinf(degrees):
        return NormalDist().inv_cdf(1 - tail)
    degrees = min(degrees, _MAX_DEGREES)
    x = np.pi / 2 * np.linspace(0, 1, _STEPS) ** 3
    density = np.sin(x) ** (degrees - 1)
    below = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x)))
    at = float(np.interp(tail, below / (2 * below[-1]), x))
    return math.sqrt(degrees) / math.tan(at)


class Location(Struct, frozen=True):
    """Location of one process's launch times: the variance and its degrees of freedom are 0 for too few launches."""

    log_ns: float
    variance: float
    degrees: float


# Share of the times that is trimmed at each end: it removes a fifth of outliers, and costs little where there are none.
_TRIMMED = 0.2
# Stronger correlations only show that launches drift. The estimate from signs has a larger error.
_MAX_CORRELATION = 0.95
_MAX_SIGN_CORRELATION = 0.9


def trimmed_mean(times: Reals) -> Location:
    """Estimate the location as a 20 % trimmed mean of at least one time, in the order of the launches.

    The variance is from the Winsorised logarithms: Yuen, "The two-sample trimmed t for unequal population variances"
    (Biometrika 1974).
    """
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


def median(times: Reals, *, is_doubted: bool) -> Location:
    """Estimate the location as the median of at least one time, in the order of the launches.

    The variance is from two order statistics of the logarithms: Price and Bonett, "Distribution-free confidence
    intervals for difference and ratio of medians" (2002), who assume that it is known. If it ``is_doubted``, the
    interval holds for few, autocorrelated launches too: the correlation is corrected as by ``trimmed_mean``, and the
    variance has the degrees of freedom of as many independent launches.
    """
    middle, count = float(np.median(times)), len(times)
    if count < MIN_LAUNCHES:
        return Location(math.log(middle), 0.0, 0.0)
    ordered = np.log(np.sort(times))
    lower = max(1, round((count + 1) / 2 - math.sqrt(count)))
    # Distance of these order statistics from the median, in standard deviations of a binomial count.
    deviations = (count + 1 - 2 * lower) / math.sqrt(count)
    error = float(ordered[count - lower] - ordered[lower - 1]) / (2 * deviations)
    # A median only depends on the side of it on which neighbours are.
    correlation = _first_autocorrelation(np.sign(times - middle))
    if is_doubted:
        correlation = _without_bias(correlation, count)
    inflation = _inflation(correlation, _MAX_SIGN_CORRELATION)
    degrees = max(count / inflation - 1, 1.0) if is_doubted else math.inf
    return Location(math.log(middle), error**2 * inflation, degrees)


def _without_bias(correlation: float, count: int) -> float:
    # Estimated of few values, it is too low by (1 + 3 r) / n: Marriott and Pope, "Bias in the estimation of
    # autocorrelations" (Biometrika 1954).
    return (count * correlation + 1) / (count - 3)


def _first_autocorrelation(centred: Reals) -> float:
    squares = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / squares if squares else 0.0


def _inflation(correlation: float, max_correlation: float) -> float:
    correlation = min(max(correlation, 0.0), max_correlation)
    return (1 + correlation) / (1 - correlation)


def typical(processes: Iterable[Reals]) -> float | None:
    """Return the value that ``change_between`` compares: the median of a process's launches.

    Of several processes' medians, it is the geometric mean, or the arithmetic mean if one is 0 or less.
    """
    medians = [float(np.median(values)) for values in processes if values.size]
    if len(medians) < 2:
        return medians[0] if medians else None
    return math.exp(float(np.mean(np.log(medians)))) if min(medians) > 0 else float(np.mean(medians))


class Change(Struct, frozen=True):
    """Ratio of B's time to A's, as ``log_ratio`` ± ``log_error``.

    The interval holds the truth with ``CONFIDENCE``, for all comparisons of its family at once.
    """

    log_ratio: float
    log_error: float
    min_log_error: float = 0.0
    """Error that would remain after any number of launches, because processes differ and the timer counts in steps."""

    @property
    def percent(self) -> float:
        """Increase from A to B."""
        return 100 * math.expm1(self.log_ratio)

    @property
    def low_percent(self) -> float:
        """Lower end of the interval."""
        return 100 * math.expm1(self.log_ratio - self.log_error)

    @property
    def high_percent(self) -> float:
        """Upper end of the interval."""
        return 100 * math.expm1(min(self.log_ratio + self.log_error, _MAX_LOG))

    @property
    def error_percent(self) -> float:
        """Upper half of the interval, which is the larger one."""
        return self.high_percent - self.percent

    @property
    def min_error_percent(self) -> float:
        """Upper half of the interval that would remain after any number of launches."""
        return 100 * math.expm1(min(self.log_ratio + self.min_log_error, _MAX_LOG)) - self.percent

    @property
    def detectable_percent(self) -> float:
        """Smallest slowdown that the measurement could have shown."""
        return 100 * math.expm1(min(self.log_error, _MAX_LOG))

    @property
    def direction(self) -> int:
        """1 if B takes longer, -1 if it takes less, 0 if the difference is not significant."""
        return 0 if abs(self.log_ratio) <= self.log_error else int(math.copysign(1, self.log_ratio))

    def __str__(self) -> str:
        return f"{round(self.percent, 1) + 0.0:+.1f} % ± {rounded_error(self.error_percent)}"


def rounded_error(percent: float) -> str:
    """Round up, so that the printed interval holds the truth no less often."""
    return f"{math.ceil(percent * 10 - 1e-9) / 10:.1f}"


def noise_floor(launch_ns: float, part_ns: float) -> float:
    """Return the relative standard deviation, between processes, of a part that takes ``part_ns`` of ``launch_ns``.

    Parts vary independently, so a part's variance is proportional to its time.
    """
    return math.hypot(_BETWEEN_PROCESSES_NS / math.sqrt(launch_ns * part_ns), _BETWEEN_PROCESSES_SHARE)


def run_noise(a_ns: float, b_ns: float) -> float:
    """Return the noise floor of two runs of one kernel with these times, shortly after each other on one device."""
    return _BETWEEN_PROCESSES_NS * mean_share(a_ns, b_ns)


def mean_share(a_ns: float, b_ns: float) -> float:
    """Return one nanosecond as a share of ``a_ns`` and ``b_ns``: the root mean square, as errors add up."""
    return math.hypot(1 / a_ns, 1 / b_ns) / math.sqrt(2)


def timer_step_ns(samples: Iterable[Reals]) -> float:
    """Return the smallest distance between two times: the timer's step, or nearly nothing if it has none."""
    # The cost of launching may have been subtracted, and differ between samples.
    aligned = [sample - sample.min(initial=np.inf) for sample in samples]
    steps = np.diff(np.unique(np.concatenate(aligned).round()))
    return float(steps.min(initial=_MAX_STEP_NS))


def change_between(
    a: Sequence[Reals],
    b: Sequence[Reals],
    *,
    floor: float,
    comparisons: int = 1,
    step: float = 0.0,
    is_one_kernel: bool = False,
) -> Change | None:
    """Compare two sides, each given as one array per process with the values of its launches in their order.

    ``floor`` is the ``noise_floor``, ``step`` the timer's step as a share of the values. None if a side has neither
    ``MIN_LAUNCHES`` in each process nor several processes, or has a value that is not positive.

    The verdict on records compares ``is_one_kernel``, without records and with them, in one process each. The floor was
    measured between such runs: it is assumed to be known, and has no part proportional to the launch's time
    (``run_noise``). ``diff`` compares any two captures, many times at once, and does not trust the floor.
    """
    first, second = (_side(processes, is_doubted=not is_one_kernel) for processes in (a, b))
    if first is None or second is None:
        return None
    # The error of each side is uniform within a step.
    of_processes: list[_Part] = [(step**2 / 6, math.inf)]
    of_launches: list[_Part] = []
    for side in (first, second):
        if side.few_launches:
            of_processes.append((side.scatter / side.repeats / len(side.processes), side.repeats))
    full_sides = [side for side in (first, second) if not side.few_launches]
    (variance, degrees), is_measured = _between(floor, full_sides, math.inf if is_one_kernel else _FLOOR_DEGREES)
    # Both sides share one estimate, so it counts as one part.
    of_processes.append((variance * sum(1 / len(side.processes) for side in full_sides), degrees))
    for side in full_sides:
        if not (is_measured and side.repeats):
            count = len(side.processes)
            of_launches += [(process.variance / count**2, process.degrees) for process in side.processes]
    tail = (1 - CONFIDENCE) / 2 / comparisons
    return Change(
        second.location - first.location, _error([*of_processes, *of_launches], tail), _error(of_processes, tail)
    )


def change_in_pairs(a: Reals, b: Reals, *, step: float) -> Change | None:
    """Compare interleaved times of one process in pairs; ``step`` is the timer's, as a share of the values."""
    if len(a) < MIN_LAUNCHES:
        return None
    ratio = median(b / a, is_doubted=False)
    # Times that scatter by less than a step are all equal, however many there are; and so is their median.
    timer: _Part = (step**2 / 6, math.inf)
    tail = (1 - CONFIDENCE) / 2
    return Change(ratio.log_ns, _error([timer, (ratio.variance, ratio.degrees)], tail), _error([timer], tail))


_Part = tuple[float, float]  # independent part of the log ratio's variance, with its degrees of freedom


def _error(parts: Iterable[_Part], tail: float) -> float:
    """Return the half width of the interval of the parts' sum that leaves ``tail`` on either side."""
    known = [(variance, degrees) for variance, degrees in parts if variance]
    variance = sum(part for part, _ in known)
    uncertainty = sum(part**2 / degrees for part, degrees in known)
    degrees = max(round(variance**2 / uncertainty, 2), 1.0) if uncertainty else math.inf
    return t_quantile(tail, degrees) * math.sqrt(variance)


class _Side(Struct, frozen=True):
    """Processes of one side; with ``few_launches`` in some, they are the sample."""

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
        """Sum of squares of the processes about their mean."""
        return float(np.sum([(process.log_ns - self.location) ** 2 for process in self.processes]))


def _side(processes: Sequence[Reals], *, is_doubted: bool) -> _Side | None:
    samples = [values for values in processes if values.size]
    if not samples or any(not np.isfinite(values).all() or values.min() <= 0 for values in samples):
        return None
    locations = tuple(median(values, is_doubted=is_doubted) for values in samples)
    side = _Side(locations, any(not process.degrees for process in locations))
    return None if side.few_launches and not side.repeats else side


def _between(floor: float, sides: Sequence[_Side], floor_degrees: float) -> tuple[_Part, bool]:
    """Return the variance between processes, and whether it is their own scatter, which includes their launches'."""
    repeats = sum(side.repeats for side in sides)
    if not repeats or math.isinf(floor_degrees):
        return (floor**2, floor_degrees), False
    shown = sum(side.scatter for side in sides) / repeats
    if repeats >= _ENOUGH_REPEATS:
        return (shown, repeats), True
    explained = float(np.mean([process.variance for side in sides for process in side.processes]))
    shown = max(shown - explained, 0.0)
    degrees = floor_degrees + repeats
    return (max((floor_degrees * floor**2 + repeats * shown) / degrees, shown), degrees), False

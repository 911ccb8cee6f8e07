"""Fit a kernel's time against added delay: the initial slope, and the delay at which it changes.

The slope is the mean over the shortest delay that determines it precisely. A line that may bend is fitted to all
delays; it bends where a delay stops being hidden. The bend minimises the weighted squares, and its interval has all
bends that are not much worse.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

QUANTILE = 1.96  # the quantile of the normal distribution for 95 % confidence

# A delay ends when its loop next reads the clock, which is half a round later on average. How much of that is in the
# delay's length as measured by itself is random: the error that all delays but the first share. A round takes 33 cycles
# by itself and 31 in many kernels (measured on an H200), so each delay is rounded up by a different part of a round.
OFFSET_ERROR_CYCLES, DELAY_ERROR_CYCLES = 12.0, 10.0

# How much a bend must improve the fit. It has two more unknowns, which improve the squares by 9.2 by chance in one case
# of a hundred, and its position is free.
_CLEARLY = 12.0
_NOT_LINEAR = 0.03  # relative error of long delays: a kernel that takes twice as long behaves differently
# Half-width of an interval that is precise enough, without the differences between processes; otherwise a longer delay
# is used.
_PRECISE = 0.08
# Standard deviation of one kernel's slopes between processes (matmul on an H200): the same builds at other addresses,
# and at another temperature.
_PROCESS_ERROR = 0.03
_MIN_OFFSETS = 8  # a shorter delay, in units of the offset's error, is dominated by noise
_BENDS = 50
_MIN_SHOWN = 0.05

Column = NDArray[np.float64]


class Interval(Struct, frozen=True):
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @classmethod
    def about(cls, value: float, standard_error: float) -> Interval:
        """Return the symmetric interval around a value with this standard error."""
        return cls(value, value - QUANTILE * standard_error, value + QUANTILE * standard_error)

    @property
    def error(self) -> float:
        """The larger of the interval's halves."""
        return max(self.high - self.value, self.value - self.low)


class Response(Struct, frozen=True):
    """A kernel's response to delays at one place.

    ``slope`` is the mean up to a delay of ``up_to``. ``slack`` is the delay at which the slope increases, and
    ``beyond`` the slope after it; both are None if long delays show no more than short ones.
    """

    slope: Interval
    up_to: float
    slack: Interval | None = None
    beyond: float | None = None


def response(delays: Column, longer: Column, errors: Column, used: float = 0.0) -> Response | None:
    """Return the response to ascending delays in cycles, the first of which is 0; None for a single one.

    ``longer`` is how many cycles longer the kernel takes with each delay, ``errors`` its standard error. The kernel has
    ``used`` more cycles of slack than a build with a delay of no cycles.
    """
    if len(delays) < 2:
        return None
    slope, up_to = _slope(delays, longer, errors)
    # The local slope at each delay is that of the flatter side, as a bend is rarely at a delay; the first one is exact.
    sides = np.clip(np.abs(np.diff(longer) / np.diff(delays)), 0, 1)
    own = DELAY_ERROR_CYCLES * np.concatenate([[0.0], np.minimum(sides, np.append(sides[1:], sides[-1]))])
    errors = np.sqrt(errors**2 + own**2 + (_NOT_LINEAR * (longer - longer[0])) ** 2)

    def bent_at(places: Column) -> NDArray[np.void]:
        found = _fitted(delays, longer, errors, places)
        return found[found["bend"] > 0]

    def refined(bent: NDArray[np.void], best: np.void) -> NDArray[np.void]:
        # Between the neighbours of the best fit.
        places = np.sort(bent["slack"])
        index = int(np.searchsorted(places, best["slack"]))
        return bent_at(np.linspace(places[max(index - 1, 0)], places[min(index + 1, len(places) - 1)], _BENDS)[1:-1])

    bent = bent_at(np.linspace(delays[1], delays[-1], _BENDS, endpoint=False) if len(delays) > 2 else np.empty(0))
    if not bent.size:
        return Response(slope, up_to)
    bent = np.concatenate([bent, refined(bent, bent[bent["squares"].argmin()])])
    straight, least = float(_fitted(delays, longer, errors, np.array([np.inf]))["squares"][0]), bent["squares"].min()
    # By how much the points scatter more than their errors.
    degrees = len(delays) - 3
    scale = max(min(least, straight) / degrees, 1.0) if degrees > 0 else 1.0
    if straight - least < _CLEARLY * scale:
        return Response(slope, up_to)
    # A single delay after the bend does not determine the bend. A cycle that is not hidden costs the kernel a cycle.
    near = bent[bent["squares"] - least <= QUANTILE**2 * scale]
    finer = refined(bent, _likely(near))
    near = np.append(near, finer[finer["squares"] - least <= QUANTILE**2 * scale])
    likely = _likely(near)
    if slope.high >= likely["beyond"]:
        return Response(slope, up_to)
    low, high = max(near["slack"].min() - OFFSET_ERROR_CYCLES, 0.0), near["slack"].max() + OFFSET_ERROR_CYCLES
    slack = Interval(*(float(one) + used for one in (likely["slack"], low, high)))
    return Response(slope, up_to, slack, float(likely["beyond"]))


def _likely(fits: NDArray[np.void]) -> np.void:
    found: np.void = fits[np.lexsort((fits["squares"], np.abs(fits["beyond"] - 1)))[0]]
    return found


def _slope(delays: Column, longer: Column, errors: Column) -> tuple[Interval, float]:
    """Return the slope and the delay that determines it: the shortest precise one, or else the most precise one."""
    # An error of a delay's length shows with the local slope: after a bend, not with the mean one.
    steepness = np.abs(np.diff(longer) / np.diff(delays))
    slopes = (longer[1:] - longer[0]) / delays[1:]
    shown = np.clip(np.maximum(np.abs(slopes), steepness), _MIN_SHOWN, 1.0)
    length_errors = shown * np.hypot(OFFSET_ERROR_CYCLES, DELAY_ERROR_CYCLES)
    standard_errors = np.hypot(np.hypot(errors[1:], errors[0]), length_errors) / delays[1:]
    is_precise = (delays[1:] >= _MIN_OFFSETS * OFFSET_ERROR_CYCLES) & (QUANTILE * standard_errors <= _PRECISE)
    chosen = int(is_precise.argmax() if is_precise.any() else standard_errors.argmin())
    whole_error = float(np.hypot(standard_errors[chosen], _PROCESS_ERROR))
    return Interval.about(float(slopes[chosen]), whole_error), float(delays[1 + chosen])


_FIT = np.dtype([("slack", "f8"), ("squares", "f8"), ("bend", "f8"), ("beyond", "f8")])


def _fitted(delays: Column, longer: Column, errors: Column, bends: Column) -> NDArray[np.void]:
    """Fit a line with each bend: the offset of all points, that of all but the first, the slope, and its change.

    Errors of the delays' lengths show only as far as delays show at all.
    """
    matrix = np.zeros((len(bends), len(delays) + 1, 4))
    matrix[:, :-1, 0], matrix[:, :-1, 1], matrix[:, :-1, 2] = 1, delays > 0, delays
    matrix[:, :-1, 3] = np.maximum(delays - bends[:, None], 0)
    matrix[:, :-1] /= errors[:, None]
    observed = np.append(longer / errors, 0.0)
    shown = np.ones(len(bends))
    for _ in range(2):
        # The prior that the offset is about 0 is one more observation.
        matrix[:, -1, 1] = 1 / (np.maximum(shown, _MIN_SHOWN) * OFFSET_ERROR_CYCLES)
        inverse = np.linalg.pinv(matrix)
        fitted = inverse @ observed
        shown = np.minimum(np.abs(fitted[:, 2]) + 2 * np.linalg.norm(inverse[:, 2], axis=1), 1.0)
    found = np.empty(len(bends), _FIT)
    found["slack"], found["bend"], found["beyond"] = bends, fitted[:, 3], fitted[:, 2] + fitted[:, 3]
    found["squares"] = ((np.einsum("kij,kj->ki", matrix, fitted) - observed) ** 2).sum(axis=1)
    return found

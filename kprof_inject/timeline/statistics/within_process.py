"""Where the launches of one process lie, and how sure that is.

The 20 % trimmed mean, and its variance from the Winsorised values: Yuen, "The two-sample trimmed t for unequal
population variances" (Biometrika 1974). A first launch that is slow moves neither by much.

Launches resemble those before them (a clock that falls): the variance is raised by what the first autocorrelation says,
which is estimated too low from few values and corrected for that: Marriott and Pope, "Bias in the estimation of
autocorrelations" (Biometrika 1954).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

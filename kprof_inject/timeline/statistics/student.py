"""Quantiles of Student's t distribution."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

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

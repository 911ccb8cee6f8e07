"""Clock values whose halves do not belong together.

Records read the lower half of the counter, then the upper one: PTX ``%clock`` and ``%clock_hi`` (Proton's lowering),
of which ptxas makes ``CS2R.32 SR_CLOCKLO`` and ``CS2R.32 SR_CLOCKHI``. Every two to three seconds the lower half
overflows; if that is between the two reads, the value is 2^32 too large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_HALF = 1 << 32
# The two reads stand behind each other; other warps may run in between.
_MOST_BETWEEN_CYCLES = 1 << 12


def torn_by_cycles(
    cycles: NDArray[np.int64], distance: NDArray[np.int64], most: NDArray[np.int64]
) -> NDArray[np.int64]:
    """By how much values are too large: those whose lower half was about to overflow, and which without it are no
    further than ``most`` from where they are ``distance`` away from. 0 for all others."""
    about_to_overflow = cycles % _HALF >= _HALF - _MOST_BETWEEN_CYCLES
    return np.where(about_to_overflow & (np.abs(distance - _HALF) <= most), _HALF, 0)

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


def may_be_torn(cycles: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values have a lower half that was about to overflow."""
    return cycles % _HALF >= _HALF - _MOST_BETWEEN_CYCLES


def put_together(cycles: NDArray[np.int64]) -> NDArray[np.int64]:
    """What torn values were at the first read."""
    return cycles - _HALF

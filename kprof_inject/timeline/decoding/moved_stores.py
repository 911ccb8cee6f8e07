"""Rings whose stores were moved: in which order they are written, and what that tells.

Proton's pass moves the store of a scope's start to right before the store of its end (``ScheduleBufferStorePass``;
Triton 3.6's PTX shows the same). So a ring holds whole scopes, start and end side by side, in the order of their ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def parted_starts(
    group: NDArray[np.int64],
    scope: NDArray[np.int16],
    is_end: NDArray[np.bool_],
    cycles: NDArray[np.int64],
    usable: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Which of the ``usable`` entries are starts that their end does not follow. The entries are in the order of
    writing."""
    is_followed = (
        (group[1:] == group[:-1]) & (scope[1:] == scope[:-1]) & (cycles[1:] >= cycles[:-1]) & (usable & is_end)[1:]
    )
    parted = usable & ~is_end
    parted[:-1] &= ~is_followed
    return parted


def order_in_time(group: NDArray[np.int64], is_end: NDArray[np.bool_], cycles: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the entries, which are in the order of writing, in the order of time."""
    place = np.arange(len(group))
    # At one clock value, of two scopes that begin the outer one was stored last. One that also ends there stands by
    # itself, between the scopes before and those behind it.
    lasts = ~is_end
    lasts[:-1] &= cycles[1:] != cycles[:-1]
    turn = np.where(lasts, 2 * len(group) - place, place)
    order: NDArray[np.int64] = np.lexsort((turn, cycles, group))
    return order

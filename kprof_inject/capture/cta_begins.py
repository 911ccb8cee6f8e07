"""Estimate when CTAs began that only left their end and their SM.

An SM begins its CTAs in the order of their program ids, and each one that does not fit at once when an earlier one has
ended. How many fit, and how long the SM takes to begin one, is known from the CTAs that record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MAX_SLOTS = 32
"""CTAs that an SM holds at most (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""


def estimated_begins(recorded: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when the other CTAs of a launch began, in ns.

    ``recorded`` has the number, SM, begin and end of some CTAs, ``others`` the number, SM and end of all others; shapes
    (4, CTA) and (3, CTA). There must be a recorded one, and begins are positive.
    """
    known = recorded.shape[1]
    cta, sm, end_ns = np.concatenate((recorded[[0, 1, 3]], others), axis=1)
    begin_ns = np.concatenate((recorded[2], np.zeros(others.shape[1], np.int64)))
    order = np.lexsort((cta, sm))
    ends_ns = end_ns[np.lexsort((end_ns, sm))]
    begun_ns = begin_ns[order]
    at = np.flatnonzero(begun_ns > 0)
    place = np.arange(len(order))
    number = place - np.searchsorted(sm[order], sm[order], side="left")
    first_ns = _first_begins(number, begun_ns)

    def begins(slots: int, rows: NDArray[np.int64], gap_ns: int = 0) -> NDArray[np.int64]:
        # The n-th CTA of an SM begins when the (n - slots)-th of its CTAs has ended.
        return np.where(number[rows] >= slots, ends_ns[np.maximum(rows - slots, 0)] + gap_ns, first_ns[rows])

    fits: list[tuple[float, int, int]] = []
    for slots in range(1, min(int(number.max()) + 1, _MAX_SLOTS) + 1):
        late_ns = (begun_ns[at] - begins(slots, at))[number[at] >= slots]
        gap_ns = int(np.median(late_ns)) if late_ns.size else 0
        fits.append((float(np.abs(begins(slots, at, gap_ns) - begun_ns[at]).mean()), slots, gap_ns))
    _, slots, gap_ns = min(fits)
    found_ns = np.empty_like(begin_ns)
    found_ns[order] = begins(slots, place, gap_ns)
    others_ns: NDArray[np.int64] = np.minimum(found_ns, end_ns)[known:]
    return others_ns


def _first_begins(number: NDArray[np.int64], begin_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the median of the known begins of the n-th CTAs of all SMs, for each CTA; of all CTAs if none is known."""
    known = begin_ns > 0
    order = np.lexsort((begin_ns[known], number[known]))
    numbers, values_ns = number[known][order], begin_ns[known][order]
    distinct, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    medians_ns = np.full(int(number.max()) + 1, int(values_ns.min()))
    medians_ns[distinct] = values_ns[first + counts // 2]
    return medians_ns[number]

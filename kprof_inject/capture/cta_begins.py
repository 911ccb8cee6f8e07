"""Estimate when CTAs began that only left their SM and their end.

An SM begins its CTAs in the order of their program ids, and each one that does not fit at once when an earlier one has
ended. How many fit, and how long the SM takes to begin one, is known from CTAs that left their begin as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MAX_SLOTS = 32
"""CTAs that an SM holds at most (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""


def estimated_begins(
    cta: NDArray[np.int64], sm: NDArray[np.int64], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return when each CTA began, with an estimate for those with a ``begin_ns`` of 0.

    The CTAs are all of the launch. Without any begin that is known, a CTA begins when it ends.
    """
    known = begin_ns > 0
    if known.all() or not known.any():
        return np.where(known, begin_ns, end_ns)
    order = np.lexsort((cta, sm))
    ends_ns = end_ns[np.lexsort((end_ns, sm))]
    begun_ns = begin_ns[order]
    at = np.flatnonzero(begun_ns > 0)
    place = np.arange(len(order))
    number = place - np.searchsorted(sm[order], sm[order], side="left")
    first_ns = _first_begins(number, begun_ns)
    tries = []
    for slots in range(1, min(int(number.max()) + 1, _MAX_SLOTS) + 1):
        # The n-th CTA of an SM with so many slots begins when the (n - slots)-th of its CTAs has ended.
        waits = number >= slots
        freed_ns = ends_ns[np.maximum(place - slots, 0)]
        gaps_ns = (begun_ns - freed_ns)[at][waits[at]]
        found_ns = np.where(waits, freed_ns + (int(np.median(gaps_ns)) if gaps_ns.size else 0), first_ns)
        tries.append((float(np.abs(found_ns - begun_ns)[at].mean()), slots, found_ns))
    _, _, best_ns = min(tries, key=lambda one: one[:2])
    found = np.empty_like(begin_ns)
    found[order] = np.where(begun_ns > 0, begun_ns, best_ns)
    return np.minimum(found, end_ns)


def _first_begins(number: NDArray[np.int64], begin_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the median of the known begins of the n-th CTAs of all SMs, for each CTA; of all CTAs if none is known."""
    known = begin_ns > 0
    order = np.lexsort((begin_ns[known], number[known]))
    numbers, values_ns = number[known][order], begin_ns[known][order]
    distinct, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    medians_ns = np.full(int(number.max()) + 1, int(values_ns.min()))
    medians_ns[distinct] = values_ns[first + counts // 2]
    return medians_ns[number]

"""In how many cycles of the SMs each scope ran: CTAs that share an SM share its units, too."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.ranges import merged

_SCOPES = 1 << 16  # more than any table has


class SmCycles:
    """Adds up a launch's blocks of scopes (``SCOPE_COLUMNS``). What warps run at once on an SM counts once."""

    def __init__(self, scopes: int) -> None:
        self._scopes = scopes
        self._spans = [np.empty((0, 3), np.int64)]

    def add(self, block: NDArray[np.void]) -> None:
        place = block["sm"].astype(np.int64) * _SCOPES + block["scope"]
        spans = np.stack([place, block["start_cycles"], block["end_cycles"]], axis=1)
        self._spans.append(_merged(spans))

    def cycles(self) -> NDArray[np.int64]:
        """Of each scope of the table, summed over the SMs."""
        spans = _merged(np.concatenate(self._spans))
        found = np.zeros(self._scopes, np.int64)
        np.add.at(found, spans[:, 0] % _SCOPES, spans[:, 2] - spans[:, 1])
        return found


def cycles_with_ctas(ctas: NDArray[np.void], clock_hz: float, end: str = "pre_final_ns") -> int:
    """In how many cycles SMs had a CTA that was at work, by the timers of the CTAs (``CTA_COLUMNS``): summed over the
    SMs. Needs no record. With ``post_final_ns`` as the end, CTAs also write out their records."""
    ends_ns = np.maximum(ctas[end], ctas["init_ns"])
    spans = _merged(np.stack([ctas["sm"].astype(np.int64), ctas["init_ns"], ends_ns], axis=1))
    return round(int((spans[:, 2] - spans[:, 1]).sum()) * clock_hz / 1e9)


def _merged(spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of place, begin and end, without those of a place that touch each other, in order."""
    if not len(spans):
        return spans
    places, number = np.unique(spans[:, 0], return_inverse=True)
    least = spans[:, 1].min()
    # Places are put so far from each other that no span of one reaches the next.
    far = spans[:, 2].max() - least + 1
    begins, ends = merged(*(spans[:, side] - least + number * far for side in (1, 2)))
    number = begins // far
    moved = number * far - least
    return np.stack([places[number], begins - moved, ends - moved], axis=1)

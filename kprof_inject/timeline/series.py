"""How an iteration's time goes from the first of its loop to the last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.by_scope import take_quantiles

_KEY_BITS = 63


@dataclass(frozen=True, slots=True, eq=False)
class IterationSeries:
    """The iterations of one loop whose number is known, over all runs of the loop: a run is from its begin to its end in
    one warp.

    ``numbers`` are those that occur, ascending from 0; ``counts``, ``mean_ns`` and ``p50_ns`` belong to them. The
    ``runs`` had from ``fewest`` to ``most`` iterations, the middle one ``median``. ``first_ns`` is the median of the
    iterations with number 0; of runs of at least two, ``last_ns`` that of the last ones and ``steady_ns`` that of all
    between. None where there are none.
    """

    numbers: NDArray[np.int64]
    counts: NDArray[np.int64]
    mean_ns: NDArray[np.float64]
    p50_ns: NDArray[np.float64]
    runs: int
    fewest: int
    median: float
    most: int
    first_ns: float | None
    steady_ns: float | None
    last_ns: float | None

    @property
    def first_over_steady(self) -> float | None:
        return _ratio(self.first_ns, self.steady_ns)

    @property
    def last_over_steady(self) -> float | None:
        return _ratio(self.last_ns, self.steady_ns)


def turns_of(
    scope: NDArray[np.int16], cta: NDArray[np.int32], warp: NDArray[np.int16], iteration: NDArray[np.int32]
) -> NDArray[np.int32]:
    """One number for each iteration, its *turn*: from 1 up, negative if no later one of its run follows, 0 if its number
    is unknown. The iterations are ordered by scope, CTA, warp and start, those of a CTA's warp complete."""
    goes_on = np.zeros(len(scope), dtype=bool)
    goes_on[:-1] = (
        (scope[1:] == scope[:-1])
        & (cta[1:] == cta[:-1])
        & (warp[1:] == warp[:-1])
        & (iteration[1:] > iteration[:-1])
    )
    turn: NDArray[np.int32] = np.where(goes_on, iteration + 1, -(iteration + 1))
    return turn


def series_of(turn: NDArray[np.int32], duration_ns: NDArray[np.signedinteger]) -> IterationSeries | None:
    """The series of one scope from its iterations' turns and durations; None if no number is known."""
    if (turn == 0).any():
        known = turn != 0
        turn, duration_ns = turn[known], duration_ns[known]
    if not turn.size:
        return None
    is_last = turn < 0
    lengths = -turn[is_last]
    last_ns = _median(duration_ns[is_last & (turn < -1)])
    steady_ns = _median(duration_ns[turn > 1])
    numbers, counts, mean_ns, p50_ns = _by_number(turn, duration_ns)
    return IterationSeries(
        numbers,
        counts,
        mean_ns,
        p50_ns,
        len(lengths),
        int(lengths.min()),
        float(np.median(lengths)),
        int(lengths.max()),
        float(p50_ns[0]) if numbers[0] == 0 else None,
        steady_ns,
        last_ns,
    )


def _by_number(turn: NDArray[np.int32], duration_ns: NDArray[np.signedinteger]) -> tuple[NDArray[Any], ...]:
    """The numbers that occur, and of each the count, the mean and the median of its durations."""
    keys = np.abs(turn).astype(np.int64)
    keys -= 1
    most = int(keys.max())
    # Number and duration in one key, which sorts in place and fast. What has no room below 2^63 lasts for minutes and
    # is a damaged record's: it is cut.
    shift = _KEY_BITS - most.bit_length()
    keys <<= shift
    keys |= np.minimum(duration_ns, (1 << shift) - 1)
    keys.sort()
    begins = np.searchsorted(keys, np.arange(most + 1) << shift)
    keys &= (1 << shift) - 1
    counts = np.diff(begins, append=len(keys))
    numbers = np.flatnonzero(counts)
    begins, counts = begins[numbers], counts[numbers]
    mean_ns = np.add.reduceat(keys, begins) / counts
    p50_ns = (keys[begins + (counts - 1) // 2] + keys[begins + counts // 2]) / 2
    return numbers, counts, mean_ns, p50_ns


def _median(values: NDArray[np.signedinteger]) -> float | None:
    return take_quantiles(values, [0.5])[0] if values.size else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None

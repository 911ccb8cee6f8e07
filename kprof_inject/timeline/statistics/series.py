"""How an iteration's time goes from the first of its loop to the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.statistics.by_scope import take_quantiles

_KEY_BITS = 63


@dataclass(frozen=True, slots=True, eq=False)
class IterationSeries:
    """The iterations of one loop whose number is known, over all runs of the loop; a run is from its begin to its end
    in one warp.

    ``numbers`` are those that occur, ascending from 0; ``counts``, ``mean_ns`` and ``p50_ns`` belong to them. The
    ``runs`` had from ``fewest`` to ``most`` iterations, the middle one ``median``. ``first_ns`` is the median of the
    iterations with number 0; of runs of at least two, ``last_ns`` that of the last ones and ``steady_ns`` that of all
    between; the ratios are to the latter. None where there are none.
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
    first_over_steady: float | None
    last_over_steady: float | None


def turns_of(
    scope: NDArray[np.int16], cta: NDArray[np.int32], warp: NDArray[np.int16], iteration: NDArray[np.int32]
) -> NDArray[np.int32]:
    """One number for each iteration, its *turn*: from 1 up, negative if it is the last of its run, 0 if its number is
    unknown. The iterations are ordered by scope, CTA, warp and start, those of a CTA's warp complete.

    One that is followed by an unknown number may go on: it is not called the last."""
    goes_on = np.zeros(len(scope), dtype=bool)
    is_same_warp = (scope[1:] == scope[:-1]) & (cta[1:] == cta[:-1]) & (warp[1:] == warp[:-1])
    goes_on[:-1] = is_same_warp & ((iteration[1:] > iteration[:-1]) | (iteration[1:] < 0))
    turn: NDArray[np.int32] = np.where(goes_on, iteration + 1, -(iteration + 1))
    return turn


def series_of(
    turns: Sequence[NDArray[np.int32]], durations_ns: Sequence[NDArray[np.signedinteger]]
) -> IterationSeries | None:
    """The series of one scope from its iterations' turns and durations, both in the same parts; None if no number is
    known. Takes 8 bytes for each iteration beside what it is given."""
    parts = list(zip(turns, durations_ns, strict=True))
    lengths = np.concatenate([-turn[turn < 0] for turn in turns])
    if not lengths.size:
        return None
    numbers, counts, mean_ns, p50_ns = _by_number(parts, int(lengths.max()))
    first_ns = float(p50_ns[0]) if numbers[0] == 0 else None
    steady_ns = _median([durations[turn > 1] for turn, durations in parts])
    last_ns = _median([durations[turn < -1] for turn, durations in parts])
    return IterationSeries(
        numbers,
        counts,
        mean_ns,
        p50_ns,
        len(lengths),
        int(lengths.min()),
        float(np.median(lengths)),
        int(lengths.max()),
        first_ns,
        steady_ns,
        last_ns,
        _ratio(first_ns, steady_ns),
        _ratio(last_ns, steady_ns),
    )


def _by_number(
    parts: Sequence[tuple[NDArray[np.int32], NDArray[np.signedinteger]]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The numbers that occur, and of each the count, the mean and the median of its durations."""
    # Number and duration in one key, which sorts in place and fast. What has no room below 2^63 lasts for minutes and
    # is a damaged record's: it is cut.
    shift = _KEY_BITS - most.bit_length()
    longest_ns = np.int64((1 << shift) - 1)
    keys = np.empty(sum(np.count_nonzero(turn) for turn, _ in parts), dtype=np.int64)
    filled = 0
    for turn, durations_ns in parts:
        known = np.flatnonzero(turn)
        number = np.abs(turn[known]).astype(np.int64) - 1
        keys[filled : filled + len(known)] = number << shift | np.minimum(durations_ns[known], longest_ns)
        filled += len(known)
    keys.sort()
    begins = np.searchsorted(keys, np.arange(most) << shift)
    keys &= longest_ns
    counts = np.diff(begins, append=len(keys))
    numbers = np.flatnonzero(counts)
    begins, counts = begins[numbers], counts[numbers]
    mean_ns = np.add.reduceat(keys, begins) / counts
    p50_ns = (keys[begins + (counts - 1) // 2] + keys[begins + counts // 2]) / 2
    return numbers, counts, mean_ns, p50_ns


def _median(parts: Sequence[NDArray[np.signedinteger]]) -> float | None:
    values = np.concatenate(parts)
    return take_quantiles(values, [0.5])[0] if values.size else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None

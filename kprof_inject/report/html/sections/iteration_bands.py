"""How an iteration's time goes over its loop: the middle and the outer tenths, by the number of the iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.report.summary import ScopeSummary
from kprof_inject.timeline.statistics.series import IterationSeries

_MOST_POINTS = 512
# The first iterations fill the pipeline: they keep a point each.
_SINGLE = 64
_QUANTILES = {"p10_ns": 0.1, "p50_ns": 0.5, "p90_ns": 0.9}
# A point's number and a duration make one key, which sorts in place and fast. What is longer is a damaged record's.
_DURATION_BITS = 50
_LONGEST_NS = (1 << _DURATION_BITS) - 1


class IterationBands:
    """The iterations of each scope of a launch, gathered block by block: 8 bytes each."""

    def __init__(self, scopes: Sequence[ScopeSummary]) -> None:
        self._series = [scope.iterations for scope in scopes]
        self._keys = [_Keys(series) if series else None for series in self._series]

    def add(self, scope: int, iterations: NDArray[np.int32], durations_ns: NDArray[np.int64]) -> None:
        """Of one scope. Iterations without a number are passed over."""
        if keys := self._keys[scope]:
            keys.add(iterations, durations_ns)

    def of(self, scope: int) -> dict[str, Any] | None:
        """Points of ascending numbers: each of iterations ``first`` to ``last``, ``count`` of them. None if the scope
        has no iterations with a number. To be called once: what was gathered is given back."""
        keys, series = self._keys[scope], self._series[scope]
        if keys is None or series is None:
            return None
        self._keys[scope] = None
        return {
            **keys.points(),
            "runs": series.runs,
            "fewest": series.fewest,
            "most": series.most,
            "first_ns": series.first_ns,
            "steady_ns": series.steady_ns,
            "last_ns": series.last_ns,
        }


class _Keys:
    def __init__(self, series: IterationSeries) -> None:
        most = int(series.numbers[-1]) + 1
        self._width = max(-(-(most - _SINGLE) // (_MOST_POINTS - _SINGLE)), 1)
        self._greatest = most - 1
        self._parts: list[NDArray[np.int64]] = []

    def add(self, iterations: NDArray[np.int32], durations_ns: NDArray[np.int64]) -> None:
        known = iterations >= 0
        number = iterations[known].astype(np.int64)
        point = np.where(number < _SINGLE, number, _SINGLE + (number - _SINGLE) // self._width)
        self._parts.append(point << _DURATION_BITS | np.minimum(durations_ns[known], _LONGEST_NS))

    def points(self) -> dict[str, Any]:
        keys = np.concatenate(self._parts)
        keys.sort()
        point = keys >> _DURATION_BITS
        begins = np.flatnonzero(np.append(True, point[1:] != point[:-1]))
        numbers = point[begins]
        keys &= _LONGEST_NS
        first = np.where(numbers < _SINGLE, numbers, _SINGLE + (numbers - _SINGLE) * self._width)
        last = np.where(numbers < _SINGLE, numbers, np.minimum(first + self._width - 1, self._greatest))
        counts = np.diff(begins, append=len(keys))
        quantiles = {name: _quantile(keys, begins, counts, part) for name, part in _QUANTILES.items()}
        return {"first": first.tolist(), "last": last.tolist(), "counts": counts.tolist(), **quantiles}


def _quantile(
    values: NDArray[np.int64], begins: NDArray[np.int64], counts: NDArray[np.int64], part: float
) -> list[float]:
    """Exact, linear between neighbours, of each group; a group's values are sorted."""
    at = part * (counts - 1)
    below = np.floor(at).astype(np.int64)
    low, high = values[begins + below], values[begins + np.ceil(at).astype(np.int64)]
    quantiles: list[float] = np.round(low + (high - low) * (at - below), 1).tolist()
    return quantiles

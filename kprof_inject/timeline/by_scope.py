"""Values of a launch's scopes, gathered scope by scope, and their quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NARROW = np.iinfo(np.int32)


class ByScope:
    """Parts of a column for each scope of the table, until somebody takes them."""

    def __init__(self, scope_count: int) -> None:
        self._parts: list[list[NDArray[Any]]] = [[] for _ in range(scope_count)]

    def add(self, values: NDArray[Any], bounds: NDArray[np.int64]) -> None:
        """The values of one block, ordered by scope: those of scope ``i`` stand in ``bounds[i]:bounds[i + 1]``."""
        for scope in np.flatnonzero(np.diff(bounds)).tolist():
            # A copy, so that each scope's memory can be given back by itself.
            self._parts[scope].append(values[bounds[scope] : bounds[scope + 1]].copy())

    def take(self, scope: int) -> NDArray[Any]:
        """All values of a scope, in the order of the blocks; they are the caller's and no longer held here."""
        parts, self._parts[scope] = self._parts[scope], []
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)


def narrow(values: NDArray[np.int64]) -> NDArray[np.signedinteger]:
    """The same values in 4 bytes each, if they fit."""
    fits = not values.size or (values.min() >= _NARROW.min and values.max() <= _NARROW.max)
    return values.astype(np.int32) if fits else values


def take_quantiles(values: NDArray[np.signedinteger], points: Sequence[float]) -> list[float]:
    """Exact quantiles (``points`` from 0 to 1) of at least one value, linear between neighbours. Takes linear time and
    no further memory, for which it reorders the values."""
    at = np.asarray(points, dtype=np.float64) * (len(values) - 1)
    below, above = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
    values.partition(np.unique(np.concatenate((below, above))))
    low, high = (values[found].astype(np.float64) for found in (below, above))
    quantiles: list[float] = (low + (high - low) * (at - below)).tolist()
    return quantiles

"""One column of a launch's scopes, kept scope by scope, and its quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NARROW = np.iinfo(np.int32)
# From 32 MiB on, memory goes back to the system whenever it is given back (mallopt(3), M_MMAP_THRESHOLD).
_LARGEST_PIECE = 1 << 23


class ByScope:
    """A column that grows block by block, of which each scope's part can be asked for."""

    def __init__(self, scope_count: int) -> None:
        self._numbers = np.arange(scope_count + 1)
        self._blocks: list[tuple[NDArray[Any], NDArray[np.int64]]] = []
        self._room: dict[np.dtype[Any], NDArray[Any]] = {}
        self._size = 0

    def add(self, scope: NDArray[np.int16], values: NDArray[Any]) -> None:
        """The values of one block with their scopes, in the order of scopes."""
        room = self._room.get(values.dtype, values[:0])
        if len(room) < len(values):
            # As much again as there is: what is left unused is never more.
            room = np.empty(max(len(values), min(self._size, _LARGEST_PIECE)), dtype=values.dtype)
        room[: len(values)] = values
        self._room[values.dtype] = room[len(values) :]
        self._size += len(values)
        self._blocks.append((room[: len(values)], np.searchsorted(scope, self._numbers)))

    def parts(self, scope: int) -> list[NDArray[Any]]:
        """A scope's values, block by block; one empty part if there was no block."""
        parts = [values[bounds[scope] : bounds[scope + 1]] for values, bounds in self._blocks]
        return parts or [np.empty(0, dtype=np.int32)]

    def joined(self, scope: int) -> NDArray[Any]:
        """A copy of all of a scope's values, in the order of the blocks."""
        return np.concatenate(self.parts(scope))


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

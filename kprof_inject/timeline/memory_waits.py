"""Time in which CTAs wait until others change memory."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.timeline import Timeline


class MemoryWait(Struct, frozen=True):
    """Time of ``ctas`` in a scope that does nothing but wait until memory changes; ``index`` is in the scope table.

    ``median_ns``, ``min_ns`` and ``max_ns`` are of the CTAs' total times, of each the mean of its warps, without
    records.
    """

    index: int
    ctas: int
    median_ns: float
    min_ns: float
    max_ns: float


class MemoryWaitSums:
    """Accumulator of a launch's waits for memory, block by block."""

    def __init__(self, timeline: Timeline) -> None:
        """Prepare for the scopes of ``timeline``."""
        self._spins = [index for index, scope in enumerate(timeline.table.scopes) if scope.kind == ScopeKind.SPIN]
        self._totals_ns: dict[int, list[NDArray[np.float64]]] = {index: [] for index in self._spins}

    def add(self, block: NDArray[np.void]) -> None:
        """Add a block that has all scopes of its CTAs, by CTA and warp, and by start."""
        for index in self._spins:
            rows = block[block["scope"] == index]
            if not rows.size:
                continue
            is_new_cta = np.diff(rows["cta"], prepend=-1) != 0
            is_new_warp = is_new_cta | (np.diff(rows["warp"], prepend=-1) != 0)
            begins = np.flatnonzero(is_new_cta)
            warps = np.add.reduceat(is_new_warp.astype(np.int64), begins)
            self._totals_ns[index].append(np.add.reduceat(rows["duration_ns"], begins) / warps)

    def waits(self) -> tuple[MemoryWait, ...]:
        """Return the waits for memory, in the order of the scope table; without those that never ran."""
        return tuple(self._wait(index) for index in self._spins if self._totals_ns[index])

    def _wait(self, index: int) -> MemoryWait:
        totals_ns = np.concatenate(self._totals_ns[index])
        return MemoryWait(
            index=index,
            ctas=len(totals_ns),
            median_ns=float(np.median(totals_ns)),
            min_ns=float(totals_ns.min()),
            max_ns=float(totals_ns.max()),
        )

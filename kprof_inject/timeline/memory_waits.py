"""Time in which CTAs wait until others change memory, and the CTA for which all others wait."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline

# The last CTA arrives with an atomic. Others may see it, and leave, before that CTA has its result and begins to wait:
# by a trip to L2, for which this is ample.
_MAX_EARLY_NS = 1_000
# If the first CTA leaves later after the last arrival, all of them waited for something else, such as another GPU.
MAX_LATE_NS = 2_000
"""How long after the last arrival a wait for it may end."""
_MIN_CTAS = 2


class Barrier(Struct, frozen=True):
    """Arrivals of all CTAs at a barrier, over its ``rounds``.

    ``cta`` on ``sm`` is last in most of them, in ``last_in``. In these, it arrives ``after_median_ns`` after the median
    CTA and ``after_next_ns`` after the last but one (medians). ``spread_ns`` is the time from the first arrival to the
    last (median).
    """

    rounds: int
    cta: int
    sm: int
    last_in: int
    after_median_ns: float
    after_next_ns: float
    spread_ns: float

    @property
    def in_rounds(self) -> str:
        """Words on how often the CTA is last, after a blank; empty for a single round."""
        return "" if self.rounds == 1 else f" in {self.last_in} of {self.rounds} rounds"


class MemoryWait(Struct, frozen=True):
    """Time of ``ctas`` in a scope that does nothing but wait until memory changes; ``index`` is in the scope table.

    ``median_ns``, ``min_ns`` and ``max_ns`` are of the CTAs' total times, of each the mean of its warps, without
    records. ``barrier`` is None unless in each round all CTAs of the launch wait, and leave once the last has arrived.
    """

    index: int
    ctas: int
    median_ns: float
    min_ns: float
    max_ns: float
    barrier: Barrier | None


_VISIT = np.dtype([("cta", "i4"), ("sm", "i4"), ("round", "i8"), ("arrives_ns", "i8"), ("leaves_ns", "i8")])
"""A CTA's wait: its last warp arrives, and its first one leaves."""


class MemoryWaitSums:
    """Accumulator of a launch's waits for memory, block by block."""

    def __init__(self, timeline: Timeline) -> None:
        """Prepare for the scopes of ``timeline``."""
        self._spins = _spins(timeline)
        self._ctas = len(timeline.ctas) if has_all(timeline) else 0
        self._totals_ns: dict[int, list[NDArray[np.float64]]] = {index: [] for index in self._spins}
        self._visits: dict[int, list[NDArray[np.void]]] = {index: [] for index in self._spins}

    def add(self, block: NDArray[np.void]) -> None:
        """Add a block that has all scopes of its CTAs, by CTA and warp, and by start."""
        for index in self._spins:
            rows = block[block["scope"] == index]
            if not rows.size:
                continue
            is_new_cta, is_new_warp = _begins(rows)
            begins = np.flatnonzero(is_new_cta)
            warps = np.add.reduceat(is_new_warp.astype(np.int64), begins)
            self._totals_ns[index].append(np.add.reduceat(rows["duration_ns"], begins) / warps)
            if self._ctas:
                self._visits[index].append(_visits(rows))

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
            barrier=_barrier(np.concatenate(self._visits[index]), self._ctas) if self._ctas else None,
        )


def _spins(timeline: Timeline) -> list[int]:
    return [index for index, scope in enumerate(timeline.table.scopes) if scope.kind == ScopeKind.SPIN]


def _begins(rows: NDArray[np.void]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where the rows of another CTA begin, and where those of another warp do."""
    is_new_cta = np.diff(rows["cta"], prepend=-1) != 0
    return is_new_cta, is_new_cta | (np.diff(rows["warp"], prepend=-1) != 0)


def has_all(timeline: Timeline) -> bool:
    """Return whether all CTAs of the launch are there with all their records, on one time axis."""
    missing = timeline.unrecorded.size or timeline.ctas_damaged or timeline.incomplete.size
    is_whole = len(timeline.ctas) == len(timeline.ctas_that_ran)
    return is_whole and not missing and timeline.clock.source != ClockSource.NOMINAL


def visits_in(rows: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Group the rows of one scope into visits of CTAs: all warps of a CTA make one together.

    Returns the order of the rows by CTA, visit and warp, where in it each visit begins, and the visit's number in its
    CTA. The rows are by CTA and warp, and by start.
    """
    warp_at = np.flatnonzero(_begins(rows)[1])
    counts = np.diff(np.append(warp_at, len(rows)))
    number = np.arange(len(rows)) - np.repeat(warp_at, counts)
    order = np.lexsort((number, rows["cta"]))
    cta, number = rows["cta"][order], number[order]
    begins = np.flatnonzero((np.diff(cta, prepend=-1) != 0) | (np.diff(number, prepend=-1) != 0))
    return order, begins, number[begins]


def _visits(rows: NDArray[np.void]) -> NDArray[np.void]:
    """Return the waits of each CTA (``_VISIT``)."""
    order, begins, rounds = visits_in(rows)
    visits = np.empty(len(begins), dtype=_VISIT)
    visits["cta"], visits["sm"] = rows["cta"][order][begins], rows["sm"][order][begins]
    visits["round"] = rounds
    visits["arrives_ns"] = np.maximum.reduceat(rows["start_ns"][order], begins)
    visits["leaves_ns"] = np.minimum.reduceat(rows["end_ns"][order], begins)
    return visits


def _barrier(visits: NDArray[np.void], ctas: int) -> Barrier | None:
    """Return the arrivals if this is a barrier of all CTAs; ``ctas`` is their number, 0 if not all are known."""
    if ctas < _MIN_CTAS:
        return None
    rounds = int(visits["round"].max()) + 1
    if len(visits) != rounds * ctas:
        return None
    visits = visits[np.lexsort((visits["arrives_ns"], visits["round"]))].reshape(rounds, ctas)
    arrives_ns, leaves_ns = visits["arrives_ns"], visits["leaves_ns"]
    until_first_leaves_ns = leaves_ns.min(axis=1) - arrives_ns[:, -1]
    if until_first_leaves_ns.min() < -_MAX_EARLY_NS or until_first_leaves_ns.max() > MAX_LATE_NS:
        return None
    last, times = np.unique(visits["cta"][:, -1], return_counts=True)
    cta = int(last[times.argmax()])
    is_last = visits["cta"][:, -1] == cta
    mine_ns = arrives_ns[is_last, -1]
    return Barrier(
        rounds=rounds,
        cta=cta,
        sm=int(visits["sm"][is_last, -1][0]),
        last_in=int(is_last.sum()),
        after_median_ns=float(np.median(mine_ns - np.median(arrives_ns[is_last], axis=1))),
        after_next_ns=float(np.median(mine_ns - arrives_ns[is_last, -2])),
        spread_ns=float(np.median(arrives_ns[:, -1] - arrives_ns[:, 0])),
    )

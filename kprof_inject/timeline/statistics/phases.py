"""How the CTAs' time is split by their loops: before the first, from there to the end of the last, and after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.timeline import Timeline

# Whose iterations alone were recorded shows by them where its loop begins and ends.
_LOOPS = ("loop", "iter")
_WARP_BITS = 16


@dataclass(frozen=True, slots=True)
class Phases:
    """The time of the ``warps`` that ran a loop, each counted in each CTA, as it was recorded: from begin to end of
    their CTAs it is ``whole_ns``. Of that they were ``before_ns`` on their way to the first loop, and ``after_ns``
    behind the last; the rest goes from the begin of the first to the end of the last. Most came to ``first_loop``
    first and to ``last_loop`` last, which index the scope table."""

    warps: int
    whole_ns: int
    before_ns: int
    after_ns: int
    first_loop: int
    last_loop: int

    @property
    def before_share(self) -> float:
        return self.before_ns / self.whole_ns

    @property
    def after_share(self) -> float:
        return self.after_ns / self.whole_ns


class PhaseSums:
    """Gathers the phases of a launch from its blocks."""

    def __init__(self, timeline: Timeline) -> None:
        self._is_outermost = _outermost_loops(timeline.table)
        ctas = timeline.ctas[np.argsort(timeline.ctas["cta"], kind="stable")]
        self._cta, self._begin_ns, self._end_ns = (ctas[name].copy() for name in ("cta", "init_ns", "pre_final_ns"))
        # Of a warp that lacks records, nobody knows which loop was its first.
        self._incomplete = _warp_keys(timeline.incomplete)
        self._sums = np.zeros(4, dtype=np.int64)
        self._first = np.zeros(len(self._is_outermost), dtype=np.int64)
        self._last = np.zeros(len(self._is_outermost), dtype=np.int64)

    def add(self, block: NDArray[np.void]) -> None:
        """A block with all scopes of its CTAs."""
        loops = block[self._is_outermost[block["scope"]]]
        loops = loops[~np.isin(_warp_keys(loops), self._incomplete)]
        if not loops.size:
            return
        key = _warp_keys(loops)
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        ends = np.append(begins[1:], len(key)) - 1
        row = np.searchsorted(self._cta, loops["cta"][begins])
        whole_ns = np.maximum(self._end_ns[row] - self._begin_ns[row], 0)
        # The clock's fit may put a record outside of its CTA.
        before_ns = np.clip(loops["start_ns"][begins] - self._begin_ns[row], 0, whole_ns)
        after_ns = np.clip(self._end_ns[row] - np.maximum.reduceat(loops["end_ns"], begins), 0, whole_ns - before_ns)
        self._sums += (len(begins), whole_ns.sum(), before_ns.sum(), after_ns.sum())
        self._first += np.bincount(loops["scope"][begins], minlength=len(self._first))
        self._last += np.bincount(loops["scope"][ends], minlength=len(self._last))

    def phases(self) -> Phases | None:
        """None if no complete warp ran a loop."""
        warps, whole_ns, before_ns, after_ns = self._sums.tolist()
        if not whole_ns:
            return None
        return Phases(warps, whole_ns, before_ns, after_ns, int(self._first.argmax()), int(self._last.argmax()))


def _outermost_loops(table: ScopeTable) -> NDArray[np.bool_]:
    in_loop: list[bool] = []
    outermost: list[bool] = []
    for scope in table.scopes:
        inside = scope.parent >= 0 and in_loop[scope.parent]
        outermost.append(scope.kind in _LOOPS and not inside)
        in_loop.append(scope.kind in _LOOPS or inside)
    return np.array(outermost, dtype=bool)


def _warp_keys(rows: NDArray[np.void]) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = rows["cta"].astype(np.int64) << _WARP_BITS | rows["warp"]
    return keys

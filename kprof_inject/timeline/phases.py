"""Phases of the CTAs' time: before their first loop, in loops, and after the last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable
from kprof_inject.timeline.columns import NO_LARGEST, NO_SMALLEST, Numbers, Rows, outermost_rows
from kprof_inject.timeline.timeline import Timeline

# Iterations show where their loop begins and ends if only they were recorded.
LOOPS = (ScopeKind.LOOP, ScopeKind.ITERATION)
_WARP_BITS = 16  # warp ids are 16 bits (``SCOPE_COLUMNS``)


class Phases(Struct, frozen=True):
    """Time of the ``warps`` that ran a loop, counted once in each CTA.

    From begin to end of their CTAs it is ``whole_ns``, of which records take ``records_ns``, as far as that is known.
    All other times exclude records: the time until the first loop (``before_ns``), in the outermost loops
    (``loops_ns``), and since all warps of the CTA had left the last one (``after_ns``). The rest is between loops, or a
    warp waited for others to leave the last loop. ``first_loop`` and ``last_loop`` are the first and the last loop of
    most warps, and index the scope table.

    Of the scopes in the time before, ``before_scope`` takes the most, ``before_scope_ns``; likewise ``after_scope`` in
    the time after. They are None and 0 if nothing was recorded there.
    """

    warps: int
    whole_ns: int
    before_ns: int
    after_ns: int
    first_loop: int
    last_loop: int
    before_scope: int | None
    before_scope_ns: int
    after_scope: int | None
    after_scope_ns: int
    loops_ns: int
    records_ns: int

    @property
    def rest_ns(self) -> int:
        """Time between loops, or of waiting for other warps to leave the last loop."""
        return max(self.whole_ns - self.before_ns - self.loops_ns - self.after_ns - self.records_ns, 0)

    @property
    def before_share(self) -> float:
        """Share of the time before the first loop."""
        return self.before_ns / self.whole_ns

    @property
    def after_share(self) -> float:
        """Share of the time after the last loop."""
        return self.after_ns / self.whole_ns


class PhaseSums:
    """Accumulator of a launch's phases, block by block."""

    def __init__(self, timeline: Timeline) -> None:
        loops = outermost(timeline.table, lambda scope: scope.kind in LOOPS)
        self._is_outermost = loops == np.arange(len(loops))
        # Only the sum of a CTA's times before its first record and after its last is known: the clock's fit assigns
        # half of it to each side, unless records surround everything.
        self._is_known = timeline.table.spans_body
        ctas = timeline.ctas[np.argsort(timeline.ctas["cta"], kind="stable")]
        self._cta, self._begin_ns, self._end_ns = (ctas[name].copy() for name in ("cta", "init_ns", "pre_final_ns"))
        # The first loop of a warp that lacks records is unknown.
        self._incomplete = _warp_keys(timeline.incomplete)
        self._sums = np.zeros(4, dtype=np.int64)
        # Time of the loops without records, time of records inside and outside of them, and the number of records
        # outside: before the first loop, after the last, and all.
        self._net = np.zeros(6, dtype=np.int64)
        # By scope: how often it was the first loop, how often the last, and its time before and after all loops.
        self._first, self._last, self._before_ns, self._after_ns = np.zeros((4, len(loops)), dtype=np.int64)

    def add(self, block: Rows) -> None:
        """Add a block that has all scopes of its CTAs."""
        if not self._is_known:
            return
        rows = block[~np.isin(_warp_keys(block), self._incomplete)] if self._incomplete.size else block
        loops = np.flatnonzero(self._is_outermost[rows["scope"]])
        if not loops.size:
            return
        keys = _warp_keys(rows)
        warp = np.cumsum(np.append(False, keys[1:] != keys[:-1]))
        begins = np.flatnonzero(np.diff(warp[loops], prepend=-1))
        first, last = loops[begins], loops[np.append(begins[1:], len(loops)) - 1]
        cta = rows["cta"][first]
        first_ns = rows["start_ns"][first]
        # The latest time of all warps of a CTA, which are adjacent.
        ctas = np.flatnonzero(np.append(True, cta[1:] != cta[:-1]))
        latest_ns = np.maximum.reduceat(rows["end_ns"][loops], begins[ctas])
        last_ns = np.repeat(latest_ns, np.diff(ctas, append=len(cta)))
        row = np.searchsorted(self._cta, cta)
        whole_ns = np.maximum(self._end_ns[row] - self._begin_ns[row], 0)
        # The clock's fit may place a record outside of its CTA.
        before_ns = np.clip(first_ns - self._begin_ns[row], 0, whole_ns)
        after_ns = np.clip(self._end_ns[row] - last_ns, 0, whole_ns - before_ns)
        self._sums += (len(row), whole_ns.sum(), before_ns.sum(), after_ns.sum())
        self._add_net(rows, warp, loops, begins)
        self._first += np.bincount(rows["scope"][first], minlength=len(self._first))
        self._last += np.bincount(rows["scope"][last], minlength=len(self._last))
        # A warp without loops has nothing before or after them.
        until_ns, since_ns = np.full(warp[-1] + 1, NO_LARGEST), np.full(warp[-1] + 1, NO_SMALLEST)
        until_ns[warp[first]], since_ns[warp[first]] = first_ns, last_ns
        self._before_ns += self._by_scope_ns(rows[rows["end_ns"] <= until_ns[warp]])
        self._after_ns += self._by_scope_ns(rows[rows["start_ns"] >= since_ns[warp]])

    def _add_net(self, rows: Rows, warp: Numbers, loops: Numbers, begins: Numbers) -> None:
        """Add times without records; ``loops`` are the rows of outermost loops, ``begins`` where each warp's begin."""
        subtracted_ns = rows["end_ns"] - rows["start_ns"] - rows["duration_ns"]
        has_loop = np.zeros(warp[-1] + 1, dtype=bool)
        has_loop[warp[loops]] = True
        all_ns = int(subtracted_ns[outermost_rows(rows) & has_loop[warp]].sum())
        in_loops_ns = int(subtracted_ns[loops].sum())
        first_row = np.searchsorted(warp, warp[loops[begins]])
        last_row = np.searchsorted(warp, warp[loops[begins]], side="right") - 1
        latest = np.maximum.reduceat(rows["end_record"], np.flatnonzero(np.diff(warp, prepend=-1)))
        start, end = rows["start_record"][loops], rows["end_record"][loops]
        before = start[begins] - rows["start_record"][first_row]
        after = latest[warp[last_row]] - np.maximum.reduceat(end, begins)
        records = latest[warp[last_row]] - rows["start_record"][first_row]
        outside = records.sum() - (end - start).sum()
        loops_ns = rows["duration_ns"][loops].sum()
        self._net += (loops_ns, in_loops_ns, all_ns - in_loops_ns, before.sum(), after.sum(), outside)

    def _by_scope_ns(self, rows: Rows) -> Numbers:
        times_ns = np.bincount(rows["scope"], rows["duration_ns"], len(self._first))
        return times_ns.astype(np.int64)

    def phases(self) -> Phases | None:
        """Return the phases; None if no complete warp ran a loop, or no records surround the kernel's whole body."""
        warps, whole_ns, before_ns, after_ns = self._sums.tolist()
        if not whole_ns:
            return None
        loops_ns, in_loops_ns, outside_ns, before, after, outside = self._net.tolist()
        per_record_ns = outside_ns / max(outside, 1)
        return Phases(
            warps,
            whole_ns,
            max(before_ns - round(before * per_record_ns), 0),
            max(after_ns - round(after * per_record_ns), 0),
            int(self._first.argmax()),
            int(self._last.argmax()),
            *_longest(self._before_ns),
            *_longest(self._after_ns),
            loops_ns,
            in_loops_ns + outside_ns,
        )


def outermost(table: ScopeTable, is_such: Callable[[Scope], bool]) -> Numbers:
    """Return, for each scope of the table, the outermost matching scope that it is in, or is: its index, or -1."""
    found: list[int] = []
    for index, scope in enumerate(table.scopes):
        around = found[scope.parent] if scope.parent >= 0 else -1
        found.append(index if around < 0 and is_such(scope) else around)
    return np.array(found, dtype=np.int64)


def _longest(times_ns: Numbers) -> tuple[int | None, int]:
    """Return the scope with the longest time, or None and 0; of equal ones the outermost, which comes first."""
    index = int(times_ns.argmax())
    return (index, int(times_ns[index])) if times_ns[index] else (None, 0)


def _warp_keys(rows: Rows) -> Numbers:
    keys: Numbers = rows["cta"].astype(np.int64) << _WARP_BITS | rows["warp"]
    return keys

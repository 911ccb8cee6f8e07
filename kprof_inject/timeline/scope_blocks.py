"""The second pass over a launch's records: its scopes, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.clock import ClockFit
from kprof_inject.timeline.columns import SCOPE_COLUMNS, ScopeFlag
from kprof_inject.timeline.compensation import as_recorded, without_records
from kprof_inject.timeline.crossings import crossing
from kprof_inject.timeline.nesting import Nesting, iterations, nest
from kprof_inject.timeline.pairs import Pairs, pair_records
from kprof_inject.timeline.records import RecordDecoder, lost_records


@dataclass(frozen=True, slots=True)
class ScopeBlocks:
    """The scopes of a launch: iterable as often as wanted. ``record_cost_cycles`` is taken out of durations."""

    launch_index: int
    table: ScopeTable
    decoder: RecordDecoder
    clock: ClockFit
    record_cost_cycles: float

    def __iter__(self) -> Iterator[NDArray[np.void]]:
        lost = lost_records(self.decoder.ctas).reshape(-1)
        for rows in self.decoder.blocks():
            block = self._block(rows, lost)
            if block.size:
                yield block

    def _block(self, rows: slice, lost: NDArray[np.int64]) -> NDArray[np.void]:
        ctas = self.decoder.ctas
        records = self.decoder.decode(rows)
        pairs = pair_records(records)
        nesting = nest(pairs, len(records.scope))
        row, warp = np.divmod(records.group[pairs.start_at], len(ctas.warps))
        record_row = records.group // len(ctas.warps)
        ns = self.clock.to_ns(records.cycles, ctas.sm[record_row])
        elapsed = (
            without_records(records, ns, self.record_cost_cycles)
            if self.record_cost_cycles
            else as_recorded(records, ns)
        )

        scopes = np.empty(len(pairs.scope), dtype=SCOPE_COLUMNS)
        scopes["launch"] = self.launch_index
        scopes["cta"] = ctas.cta[row]
        scopes["sm"] = ctas.sm[row]
        scopes["warp"] = ctas.warps[warp]
        scopes["scope"] = pairs.scope
        scopes["depth"] = nesting.depth
        scopes["iteration"] = iterations(records, pairs, nesting.parent, self._iteration_scopes(), lost)
        for side, at in (("start", pairs.start_at), ("end", pairs.end_at)):
            scopes[f"{side}_record"] = records.number[at]
            scopes[f"{side}_cycles"] = records.cycles[at]
            scopes[f"{side}_ns"] = ns[at]
        scopes["duration_cycles"] = elapsed.cycles[pairs.end_at] - elapsed.cycles[pairs.start_at]
        duration_ns = elapsed.ns[pairs.end_at] - elapsed.ns[pairs.start_at]
        scopes["duration_ns"] = duration_ns
        scopes["self_ns"] = duration_ns - _in_children(duration_ns, nesting.parent)
        scopes["flags"] = _flags(pairs, nesting, scopes)
        return scopes

    def _iteration_scopes(self) -> Iterator[int]:
        return (index for index, scope in enumerate(self.table.scopes) if scope.kind == "iter")


def _in_children(duration_ns: NDArray[np.int64], parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """The time of the scopes directly in each scope. A double holds it exactly: it is far from 2 ** 53 ns, 104 days."""
    has_parent = parent >= 0
    in_children = np.bincount(parent[has_parent], duration_ns[has_parent], len(parent))
    return in_children.astype(np.int64)


def _flags(pairs: Pairs, nesting: Nesting, scopes: NDArray[np.void]) -> NDArray[np.uint16]:
    cut = (scopes["duration_cycles"] == 0) & (scopes["end_cycles"] > scopes["start_cycles"])
    flags = np.where(cut, ScopeFlag.CUT, 0).astype(np.uint16)
    if not nesting.is_proper:
        flags[np.concatenate(crossing(pairs.start_at, pairs.end_at))] |= ScopeFlag.CROSSES
    return flags

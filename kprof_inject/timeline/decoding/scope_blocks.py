"""The second pass over a launch's records: its scopes, block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.reader import Launch
from kprof_inject.capture.record_cost import RecordCost
from kprof_inject.timeline.clocks.clock import ClockFit
from kprof_inject.timeline.columns import SCOPE_COLUMNS, ScopeFlag
from kprof_inject.timeline.decoding.compensation import as_recorded, without_records
from kprof_inject.timeline.decoding.containment import parents_of
from kprof_inject.timeline.decoding.crossings import crossing
from kprof_inject.timeline.decoding.damage import most_cycles
from kprof_inject.timeline.decoding.nesting import Nesting, iterations, nest, within_children
from kprof_inject.timeline.decoding.pairs import Pairs, pair_records
from kprof_inject.timeline.decoding.records import RecordDecoder
from kprof_inject.timeline.decoding.unwrap import Counter
from kprof_inject.timeline.groups import never_falling
from kprof_inject.timeline.raw import read_raw


@dataclass(frozen=True, slots=True)
class ScopeBlocks:
    """The scopes of a launch, read from its buffer as often as they are iterated. ``scope_of_id`` and ``counter`` are
    those of its ``RecordDecoder``; ``record_cost`` is taken out of durations."""

    launch: Launch
    scope_of_id: NDArray[np.int16]
    counter: Counter
    clock: ClockFit
    record_cost: RecordCost | None

    def __iter__(self) -> Iterator[NDArray[np.void]]:
        ctas = read_raw(self.launch)
        mode = self.launch.kernel.mode
        decoder = RecordDecoder(
            ctas, self.scope_of_id, self.counter, most_cycles(ctas), mode.sched_stores, mode.clock_bits
        )
        for rows in decoder.blocks():
            block = self._block(decoder, rows)
            if block.size:
                yield block

    def _block(self, decoder: RecordDecoder, rows: slice) -> NDArray[np.void]:
        ctas = decoder.ctas
        records = decoder.decode(rows)
        pairs = pair_records(records, parents_of(self.launch.kernel.scopes))
        nesting = nest(pairs, len(records.scope))
        row, warp = np.divmod(records.group[pairs.start_at], len(ctas.warps))
        record_row = records.group // len(ctas.warps)
        # Where readings are damaged an SM may seem to have two counters, the later of which goes by an earlier time.
        ns = never_falling(self.clock.to_ns(records.cycles, ctas.sm[record_row]), records.group)
        elapsed = without_records(records, ns, self.record_cost) if self.record_cost else as_recorded(records, ns)

        scopes = np.empty(len(pairs.scope), dtype=SCOPE_COLUMNS)
        scopes["launch"] = self.launch.index
        scopes["cta"] = ctas.cta[row]
        scopes["sm"] = ctas.sm[row]
        scopes["warp"] = ctas.warps[warp]
        scopes["scope"] = pairs.scope
        scopes["depth"] = nesting.depth
        scopes["iteration"] = iterations(records, pairs, nesting.parent, self._iteration_scopes())
        for side, at in (("start", pairs.start_at), ("end", pairs.end_at)):
            scopes[f"{side}_record"] = records.number[at]
            scopes[f"{side}_cycles"] = records.cycles[at]
            scopes[f"{side}_ns"] = ns[at]
        scopes["duration_cycles"] = elapsed.cycles[pairs.end_at] - elapsed.cycles[pairs.start_at]
        duration_ns = elapsed.ns[pairs.end_at] - elapsed.ns[pairs.start_at]
        scopes["duration_ns"] = duration_ns
        scopes["self_ns"] = duration_ns - within_children(elapsed.ns, pairs, nesting)
        scopes["flags"] = _flags(pairs, nesting, scopes)
        return scopes

    def _iteration_scopes(self) -> Iterator[int]:
        return (index for index, scope in enumerate(self.launch.kernel.scopes.scopes) if scope.kind == "iter")


def _flags(pairs: Pairs, nesting: Nesting, scopes: NDArray[np.void]) -> NDArray[np.uint16]:
    cut = (scopes["duration_cycles"] == 0) & (scopes["end_cycles"] > scopes["start_cycles"])
    flags = np.where(cut, ScopeFlag.CUT, 0).astype(np.uint16)
    if not nesting.is_proper:
        flags[np.concatenate(crossing(pairs.start_at, pairs.end_at))] |= np.uint16(ScopeFlag.CROSSES)
    return flags

"""The timeline of one launch: its scopes as columns in real nanoseconds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas
from kprof_inject.capture.reader import Launch
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.clocks.clock import ClockFit, fit_clock
from kprof_inject.timeline.clocks.readings import readings_of
from kprof_inject.timeline.clocks.untimed import assumed_times
from kprof_inject.timeline.columns import CTA_COLUMNS, INCOMPLETE_COLUMNS, SCOPE_COLUMNS
from kprof_inject.timeline.decoding.containment import parents_of
from kprof_inject.timeline.decoding.records import WORDS_PER_ENTRY, record_decoder
from kprof_inject.timeline.decoding.scope_blocks import ScopeBlocks
from kprof_inject.timeline.decoding.tally import WarpTally, tally_launch
from kprof_inject.timeline.freed_memory import keep_freed_memory
from kprof_inject.timeline.groups import NO_LARGEST, NO_SMALLEST
from kprof_inject.timeline.partitions import PartitionScopes, partition_of_scope, partitions_of
from kprof_inject.timeline.raw import read_raw, recorded_warps

_IDS = 256
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Timeline:
    """A decoded launch: its scopes come block by block, so that their number does not decide how much memory it takes.

    ``records_written`` is what the count words tell, ``records_lost`` what the rings overwrote of it.
    ``open_starts`` and ``stray_ends`` count, for each scope of ``table``, the surviving records without a partner,
    ``records_damaged`` the entries that are none of a record's. ``incomplete`` has them by warp. ``lanes`` has a number
    for each scope of ``table``: those with the same one never cross. ``partitions`` are those of the launch; there are
    none unless the kernel is warp specialised. ``first_ns`` and ``last_ns`` are where the launch
    begins and ends: its CTAs and its records.
    """

    launch: Launch
    table: ScopeTable
    clock: ClockFit
    ctas: NDArray[np.void]
    incomplete: NDArray[np.void]
    lanes: NDArray[np.int64]
    records_written: int
    records_lost: int
    open_starts: NDArray[np.int64]
    stray_ends: NDArray[np.int64]
    records_damaged: int
    ctas_never_ran: int
    ctas_damaged: int
    scope_count: int
    first_ns: int
    last_ns: int
    _blocks: ScopeBlocks
    partitions: tuple[PartitionScopes, ...] = ()
    _choice: Choice = EVERYTHING

    def blocks(self) -> Iterator[NDArray[np.void]]:
        """The scopes (``SCOPE_COLUMNS``), ordered by CTA row, warp and start, an outer one before those in it. All of a
        CTA's are in one block. The buffer is read anew each time, and not held meanwhile."""
        for block in self._blocks:
            kept = self._choice.keep(block, self.table)
            if kept.any():
                yield block if kept.all() else block[kept]

    def chosen(self, choice: Choice) -> Timeline:
        """The same launch with only those scopes, CTAs and incomplete warps that ``choice`` keeps. What is known of the
        launch as a whole stays: its clock, its extent, and the counts of its records."""
        part = replace(
            self,
            ctas=self.ctas[choice.keep_ctas(self.ctas)],
            incomplete=self.incomplete[choice.keep_warps(self.incomplete)],
            _choice=choice,
        )
        if choice.warps is not None:
            part = replace(part, partitions=tuple(one.among(part.warps) for one in self.partitions))
        return replace(part, scope_count=sum(map(len, part.blocks())))

    def of(self, launch: Launch) -> Timeline:
        """The same with ``launch`` for the equal one that it has."""
        blocks = replace(self._blocks, launch=launch)
        return replace(self, launch=launch, table=launch.kernel.scopes, _blocks=blocks)

    @property
    def scopes(self) -> NDArray[np.void]:
        """All blocks in one array."""
        return np.concatenate([np.empty(0, dtype=SCOPE_COLUMNS), *self.blocks()])

    @property
    def warp_time_ns(self) -> int:
        """The time of all recorded warps from begin to end of their CTAs, summed: what shares are taken of."""
        return self.time_of_warps_ns(self.warps)

    def time_of_warps_ns(self, warps: Collection[int]) -> int:
        """The time of these warps of each CTA, from its begin to its end, summed."""
        durations = self.ctas["pre_final_ns"] - self.ctas["init_ns"]
        return int(durations.sum()) * len(warps)

    @property
    def warps(self) -> tuple[int, ...]:
        """The ids of the warps of a CTA that recorded and are chosen, ascending."""
        warps, chosen = recorded_warps(self.launch), self._choice.warps
        return warps if chosen is None else tuple(warp for warp in warps if warp in chosen)


def decode_launch(launch: Launch) -> Timeline:
    """Read one launch's buffer, count its records and fit its clock. Raises ``KprofError`` if the buffer is damaged as
    a whole."""
    keep_freed_memory()
    kernel, table = launch.kernel, launch.kernel.scopes
    raw = read_raw(launch)
    decoder = record_decoder(
        raw,
        _scope_of_id(kernel.scope_ids, table),
        clock_bits=kernel.mode.clock_bits,
        clock_hz=kernel.sm_clock_hz,
        stores_moved=kernel.mode.sched_stores,
    )
    groups = partition_of_scope(table) if table.partitions else None
    tally = tally_launch(decoder, len(table.scopes), parents_of(table), groups)
    if raw.timed:
        all_warps = len(raw.warps) == kernel.num_warps
        readings = readings_of(raw, tally.warps, spans_function=table.body is not None, all_warps=all_warps)
        clock = fit_clock(readings, kernel.sm_clock_hz)
    else:
        raw, clock = assumed_times(launch, raw, tally.warps)

    first_ns, last_ns = _extent(raw, tally.warps, clock)
    return Timeline(
        launch,
        table,
        clock,
        _cta_columns(raw),
        _incomplete(raw, tally.warps, clock),
        tally.lanes,
        int((raw.written_words // WORDS_PER_ENTRY).sum()),
        int(tally.warps.lost.sum()),
        tally.open_starts,
        tally.stray_ends,
        int(tally.warps.damaged.sum()),
        raw.never_ran,
        raw.damaged,
        tally.scopes,
        first_ns,
        last_ns,
        ScopeBlocks(
            launch,
            decoder.scope_of_id,
            decoder.counter,
            clock,
            kernel.record_cost,
        ),
        partitions_of(table, tally.groups, recorded_warps(launch)),
    )


def _scope_of_id(scope_ids: dict[int, str], table: ScopeTable) -> NDArray[np.int16]:
    """By name, not by id: where a scope has two returns, Triton gives its second end an id of its own."""
    index = {scope.record: position for position, scope in enumerate(table.scopes)}
    lookup = np.full(_IDS, -1, dtype=np.int16)
    for scope_id, record in scope_ids.items():
        lookup[scope_id] = index.get(record, -1)
    return lookup


def _extent(raw: RawCtas, warps: WarpTally, clock: ClockFit) -> tuple[int, int]:
    """Where the launch begins and ends; 0 and 0 if no CTA ran. A fitted clock may put a record before the timer reading
    that it followed."""
    rows = np.flatnonzero(warps.kept.any(axis=1))
    begins = clock.to_ns(warps.first_cycles[rows].min(axis=1, initial=NO_SMALLEST), raw.sm[rows])
    ends = clock.to_ns(warps.last_cycles[rows].max(axis=1, initial=NO_LARGEST), raw.sm[rows])
    if not len(raw.cta):
        return 0, 0
    return int(min(raw.init_ns.min(), *begins.min(initial=NO_SMALLEST, keepdims=True))), int(
        max(raw.pre_final_ns.max(), *ends.max(initial=NO_LARGEST, keepdims=True))
    )


def _cta_columns(raw: RawCtas) -> NDArray[np.void]:
    columns = np.empty(len(raw.cta), dtype=CTA_COLUMNS)
    columns["cta"] = raw.cta
    columns["sm"] = raw.sm
    columns["init_ns"] = raw.init_ns
    columns["pre_final_ns"] = raw.pre_final_ns
    columns["post_final_ns"] = raw.post_final_ns
    return columns


def _incomplete(raw: RawCtas, warps: WarpTally, clock: ClockFit) -> NDArray[np.void]:
    """A ring loses the records that were written first: the window goes from the CTA's begin to the oldest that is left
    in it."""
    lacks = (warps.lost > 0) | (warps.damaged > 0) | (warps.open_starts > 0) | (warps.stray_ends > 0)
    row, warp = np.nonzero(lacks)
    columns = np.empty(len(row), dtype=INCOMPLETE_COLUMNS)
    columns["cta"] = raw.cta[row]
    columns["sm"] = raw.sm[row]
    columns["warp"] = raw.warps[warp]
    columns["records_written"] = raw.written_words[lacks] // WORDS_PER_ENTRY
    columns["records_lost"] = warps.lost[lacks]
    columns["open_starts"] = warps.open_starts[lacks]
    columns["stray_ends"] = warps.stray_ends[lacks]
    columns["records_damaged"] = warps.damaged[lacks]
    columns["lost_start_ns"] = columns["lost_end_ns"] = raw.init_ns[row]
    for begin in range(0, len(row), _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        lost = begin + np.flatnonzero(columns["records_lost"][part])
        columns["lost_end_ns"][lost] = _lost_until(raw, warps, clock, row[lost], warp[lost])
    return columns


def _lost_until(
    raw: RawCtas, warps: WarpTally, clock: ClockFit, row: NDArray[np.int64], warp: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Without a sound record, a warp's window is the CTA's whole time."""
    until_ns = raw.pre_final_ns[row]
    kept = warps.kept[row, warp] > 0
    oldest_ns = clock.to_ns(warps.oldest_cycles[row[kept], warp[kept]], raw.sm[row[kept]])
    until_ns[kept] = np.maximum(oldest_ns, raw.init_ns[row[kept]])
    return until_ns

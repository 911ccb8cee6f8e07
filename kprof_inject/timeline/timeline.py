"""The timeline of one launch: its scopes as columns in real nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas, layout_named
from kprof_inject.capture.reader import Launch
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.clock import ClockFit, fit_clock
from kprof_inject.timeline.columns import CTA_COLUMNS, INCOMPLETE_COLUMNS, SCOPE_COLUMNS
from kprof_inject.timeline.groups import NO_LARGEST, NO_SMALLEST
from kprof_inject.timeline.readings import readings_of
from kprof_inject.timeline.records import WORDS_PER_ENTRY, record_decoder
from kprof_inject.timeline.scope_blocks import ScopeBlocks
from kprof_inject.timeline.tally import WarpTally, tally_launch
from kprof_inject.timeline.untimed import assumed_times

_IDS = 256


@dataclass(frozen=True, slots=True)
class Timeline:
    """A decoded launch: its scopes come block by block, so that their number does not decide how much memory it takes.

    ``records_written`` is what the count words tell, ``records_lost`` what the rings overwrote of it.
    ``open_starts`` and ``stray_ends`` count, for each scope of ``table``, the surviving records without a partner,
    ``records_damaged`` the entries that are none of a record's. ``incomplete`` has them by warp. ``lanes`` has a number
    for each scope of ``table``: those with the same one never cross. ``first_ns`` and ``last_ns`` are where the launch
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

    def blocks(self) -> Iterator[NDArray[np.void]]:
        """The scopes (``SCOPE_COLUMNS``), ordered by CTA row, warp and start, an outer one before those in it. All of a
        CTA's are in one block. They are decoded anew each time."""
        return iter(self._blocks)

    @property
    def scopes(self) -> NDArray[np.void]:
        """All blocks in one array."""
        return np.concatenate([np.empty(0, dtype=SCOPE_COLUMNS), *self.blocks()])

    @property
    def warp_time_ns(self) -> int:
        """The time of all recorded warps from begin to end of their CTAs, summed: what shares are taken of."""
        durations = self.ctas["pre_final_ns"] - self.ctas["init_ns"]
        return int(durations.sum()) * len(recorded_warps(self.launch))


def recorded_warps(launch: Launch) -> tuple[int, ...]:
    """The ids of the warps of a CTA that recorded, ascending."""
    return launch.kernel.mode.recorded_warps(launch.kernel.num_warps)


def read_raw(launch: Launch) -> RawCtas:
    """Read one launch's buffer and take it apart. Raises ``KprofError`` if it is damaged as a whole."""
    kernel = launch.kernel
    return layout_named(kernel.layout).read(launch.words(), kernel.num_warps, recorded_warps(launch))


def decode_launch(launch: Launch) -> Timeline:
    """Read one launch's buffer, count its records and fit its clock. Raises ``KprofError`` if the buffer is damaged as
    a whole."""
    kernel, table = launch.kernel, launch.kernel.scopes
    raw = read_raw(launch)
    decoder = record_decoder(
        raw,
        _scope_of_id(kernel.scope_ids, table),
        clock_bits=kernel.mode.clock_bits,
        clock_hz=kernel.sm_clock_hz,
        stores_moved=kernel.mode.sched_stores,
    )
    tally = tally_launch(decoder, len(table.scopes))
    if raw.timed:
        spans_function = any(scope.kind == "func" for scope in table.scopes)
        all_warps = len(raw.warps) == kernel.num_warps
        readings = readings_of(raw, tally.warps, spans_function=spans_function, all_warps=all_warps)
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
        ScopeBlocks(launch.index, table, decoder, clock, kernel.record_cost.cycles if kernel.record_cost else 0.0),
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
    """A ring loses its oldest records: the window goes from the CTA's begin to the first record that is left."""
    row, warp = np.nonzero(warps.lost + warps.damaged + warps.open_starts + warps.stray_ends)
    lost, kept, begin_ns = warps.lost[row, warp], warps.kept[row, warp], raw.init_ns[row]
    first_ns = clock.to_ns(np.where(kept > 0, warps.first_cycles[row, warp], 0), raw.sm[row])
    # Without a sound record, the window is the CTA's whole time.
    first_ns = np.where(kept > 0, np.maximum(first_ns, begin_ns), raw.pre_final_ns[row])
    columns = np.zeros(len(row), dtype=INCOMPLETE_COLUMNS)
    columns["cta"] = raw.cta[row]
    columns["sm"] = raw.sm[row]
    columns["warp"] = raw.warps[warp]
    columns["records_written"] = raw.written_words[row, warp] // WORDS_PER_ENTRY
    columns["records_lost"] = lost
    columns["open_starts"] = warps.open_starts[row, warp]
    columns["stray_ends"] = warps.stray_ends[row, warp]
    columns["records_damaged"] = warps.damaged[row, warp]
    columns["lost_start_ns"] = begin_ns
    columns["lost_end_ns"] = np.where(lost > 0, first_ns, begin_ns)
    return columns

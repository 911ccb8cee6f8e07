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
from kprof_inject.timeline.groups import smallest
from kprof_inject.timeline.nesting import depths, iterations
from kprof_inject.timeline.pairs import pair_records
from kprof_inject.timeline.readings import readings_of
from kprof_inject.timeline.records import Records, decode_records, lost_records
from kprof_inject.timeline.untimed import assumed_times


@dataclass(frozen=True, slots=True)
class Timeline:
    """A decoded launch: its scopes come block by block, so that their number does not decide how much memory it takes.

    ``records_written`` is what the count words tell, ``records_lost`` what the rings overwrote of it.
    ``open_starts`` and ``stray_ends`` count, for each scope of ``table``, the surviving records without a partner,
    ``records_damaged`` the entries that are none of a record's. ``incomplete`` has them by warp. ``lanes`` has a number
    for each scope of ``table``: those with the same one never cross. ``first_ns`` and ``last_ns`` are where the launch
    begins and ends: its CTAs and its scopes.
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
    _scopes: NDArray[np.void]

    def blocks(self) -> Iterator[NDArray[np.void]]:
        """The scopes (``SCOPE_COLUMNS``), ordered by CTA row, warp and start, an outer one before those in it. All of a
        CTA's warp are in one block."""
        yield self._scopes

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
    """Read and decode one launch's buffer. Raises ``KprofError`` if the buffer is damaged as a whole."""
    table = launch.kernel.scopes
    raw = read_raw(launch)
    records = decode_records(raw, launch.kernel.mode.clock_bits, launch.kernel.sm_clock_hz)
    pairs = pair_records(records, _scope_of_id(launch.kernel.scope_ids, table), len(table.scopes))
    lost = lost_records(raw)
    if raw.timed:
        spans_function = any(scope.kind == "func" for scope in table.scopes)
        all_warps = len(raw.warps) == launch.kernel.num_warps
        readings = readings_of(raw, records, spans_function=spans_function, all_warps=all_warps)
        clock = fit_clock(readings, launch.kernel.sm_clock_hz)
    else:
        raw, clock = assumed_times(launch, raw, records)

    sm = raw.sm[pairs.row]
    scopes = np.empty(len(pairs.row), dtype=SCOPE_COLUMNS)
    scopes["cta"] = raw.cta[pairs.row]
    scopes["sm"] = sm
    scopes["warp"] = raw.warps[pairs.warp]
    scopes["scope"] = pairs.scope
    scopes["depth"] = depths(pairs)
    scopes["iteration"] = iterations(
        pairs,
        np.array([scope.parent for scope in table.scopes], dtype=np.int64),
        np.array([scope.kind == "iter" for scope in table.scopes], dtype=bool),
        lost,
    )
    scopes["launch"] = launch.index
    scopes["flags"] = 0
    first = np.searchsorted(records.row * len(raw.warps) + records.warp, pairs.row * len(raw.warps) + pairs.warp)
    scopes["start_record"] = pairs.start_at - first
    scopes["end_record"] = pairs.end_at - first
    scopes["start_cycles"] = pairs.start_cycles
    scopes["end_cycles"] = pairs.end_cycles
    scopes["start_ns"] = clock.to_ns(pairs.start_cycles, sm)
    scopes["end_ns"] = clock.to_ns(pairs.end_cycles, sm)
    scopes["duration_cycles"] = pairs.end_cycles - pairs.start_cycles
    scopes["duration_ns"] = scopes["end_ns"] - scopes["start_ns"]
    scopes["self_ns"] = scopes["duration_ns"]

    ctas = _cta_columns(raw)
    return Timeline(
        launch,
        table,
        clock,
        ctas,
        _incomplete(raw, records, lost, clock),
        np.zeros(len(table.scopes), dtype=np.int64),
        int((raw.written_words // 2).sum()),
        int(lost.sum()),
        pairs.open_starts,
        pairs.stray_ends,
        pairs.unknown,
        raw.never_ran,
        raw.damaged,
        len(scopes),
        int(min((column.min() for column in (ctas["init_ns"], scopes["start_ns"]) if column.size), default=0)),
        int(max((column.max() for column in (ctas["pre_final_ns"], scopes["end_ns"]) if column.size), default=0)),
        scopes,
    )


def _scope_of_id(scope_ids: dict[int, str], table: ScopeTable) -> NDArray[np.int64]:
    """By name, not by id: where a scope has two returns, Triton gives its second end an id of its own."""
    index = {scope.record: position for position, scope in enumerate(table.scopes)}
    lookup = np.full(256, -1, dtype=np.int64)
    for scope_id, record in scope_ids.items():
        lookup[scope_id] = index.get(record, -1)
    return lookup


def _cta_columns(raw: RawCtas) -> NDArray[np.void]:
    columns = np.empty(len(raw.cta), dtype=CTA_COLUMNS)
    columns["cta"] = raw.cta
    columns["sm"] = raw.sm
    columns["init_ns"] = raw.init_ns
    columns["pre_final_ns"] = raw.pre_final_ns
    columns["post_final_ns"] = raw.post_final_ns
    return columns


def _incomplete(raw: RawCtas, records: Records, lost: NDArray[np.int64], clock: ClockFit) -> NDArray[np.void]:
    """A ring loses its oldest records: the window goes from the CTA's begin to the first record that is left."""
    row, warp = np.nonzero(lost)
    group = records.row * lost.shape[1] + records.warp
    first = smallest(group, records.cycles, lost.size).reshape(lost.shape)
    columns = np.zeros(len(row), dtype=INCOMPLETE_COLUMNS)
    columns["cta"] = raw.cta[row]
    columns["sm"] = raw.sm[row]
    columns["warp"] = raw.warps[warp]
    columns["records_written"] = raw.written_words[row, warp] // 2
    columns["records_lost"] = lost[row, warp]
    columns["lost_start_ns"] = raw.init_ns[row]
    columns["lost_end_ns"] = np.maximum(clock.to_ns(first[row, warp], raw.sm[row]), raw.init_ns[row])
    return columns

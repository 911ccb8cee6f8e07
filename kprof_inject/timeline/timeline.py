"""The timeline of one launch: its scopes as columns in real nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas, layout_named
from kprof_inject.capture.reader import Launch
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.clock import ClockFit, fit_clock
from kprof_inject.timeline.groups import smallest
from kprof_inject.timeline.nesting import depths, iterations
from kprof_inject.timeline.pairs import pair_records
from kprof_inject.timeline.readings import readings_of
from kprof_inject.timeline.records import Records, decode_records, lost_records
from kprof_inject.timeline.untimed import assumed_times

SCOPE_COLUMNS = np.dtype(
    [
        ("cta", "i4"),
        ("sm", "i4"),
        ("warp", "i2"),
        ("scope", "i2"),
        ("depth", "i2"),
        ("iteration", "i4"),
        ("start_cycles", "i8"),
        ("end_cycles", "i8"),
        ("start_ns", "i8"),
        ("end_ns", "i8"),
    ]
)
"""One scope that ran. ``scope`` indexes the scope table; ``iteration`` is -1 where there is none or it is unknown;
``*_cycles`` are of the SM's counter, ``*_ns`` of the device's globaltimer, as far as ``ClockFit.source`` goes."""

CTA_COLUMNS = np.dtype(
    [("cta", "i4"), ("sm", "i4"), ("init_ns", "i8"), ("pre_final_ns", "i8"), ("post_final_ns", "i8")]
)
"""One CTA that ran, by the device's globaltimer: its begin, the end of its work, the end of copying its records."""

LOST_COLUMNS = np.dtype(
    [("cta", "i4"), ("sm", "i4"), ("warp", "i2"), ("records", "i8"), ("start_ns", "i8"), ("end_ns", "i8")]
)
"""One warp that lost records: how many, and the window that they were in."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A decoded launch. ``scopes`` is ordered by CTA row, warp and start.

    ``records_written`` is what the count words tell, ``records_lost`` what the rings overwrote of it.
    ``open_starts`` and ``stray_ends`` count, for each scope of ``table``, the surviving records without a partner.
    """

    launch: Launch
    table: ScopeTable
    scopes: NDArray[np.void]
    ctas: NDArray[np.void]
    lost: NDArray[np.void]
    clock: ClockFit
    records_written: int
    records_lost: int
    open_starts: NDArray[np.int64]
    stray_ends: NDArray[np.int64]
    records_unknown: int
    ctas_never_ran: int
    ctas_damaged: int

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
    scopes["start_cycles"] = pairs.start_cycles
    scopes["end_cycles"] = pairs.end_cycles
    scopes["start_ns"] = clock.to_ns(pairs.start_cycles, sm)
    scopes["end_ns"] = clock.to_ns(pairs.end_cycles, sm)

    return Timeline(
        launch,
        table,
        scopes,
        _cta_columns(raw),
        _lost_columns(raw, records, lost, clock),
        clock,
        int((raw.written_words // 2).sum()),
        int(lost.sum()),
        pairs.open_starts,
        pairs.stray_ends,
        pairs.unknown,
        raw.never_ran,
        raw.damaged,
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


def _lost_columns(raw: RawCtas, records: Records, lost: NDArray[np.int64], clock: ClockFit) -> NDArray[np.void]:
    """A ring loses its oldest records: the window goes from the CTA's begin to the first record that is left."""
    row, warp = np.nonzero(lost)
    group = records.row * lost.shape[1] + records.warp
    first = smallest(group, records.cycles, lost.size).reshape(lost.shape)
    columns = np.empty(len(row), dtype=LOST_COLUMNS)
    columns["cta"] = raw.cta[row]
    columns["sm"] = raw.sm[row]
    columns["warp"] = raw.warps[warp]
    columns["records"] = lost[row, warp]
    columns["start_ns"] = raw.init_ns[row]
    columns["end_ns"] = np.maximum(clock.to_ns(first[row, warp], raw.sm[row]), raw.init_ns[row])
    return columns

"""Events of a launch: the launch as a whole, its scopes, and what was lost of them; and the counter of its CTAs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeInfo, ScopeKind, ScopeTable
from kprof_inject.export.drawing.hook_parts import LaunchHooks, arrows_of_rows
from kprof_inject.export.drawing.scene import (
    Arg,
    Arrow,
    Arrows,
    Counters,
    EventKind,
    Events,
    Mask,
    Nested,
    Numbers,
    Part,
    Threads,
    TraceProcess,
    TrackGroups,
)
from kprof_inject.export.drawing.tracks import LAUNCH, NamedTracks, Tracks, runs_of_warps, sm_label
from kprof_inject.scope_colours import ScopeColour, scope_colours
from kprof_inject.timeline.axis import DeviceClock, PlacedLaunch
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.columns import NO_TAG, ScopeFlag
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.tag_entries import tag_column, tag_columns
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import judge

_CHUNK_WARPS = 1 << 16
_LOST = EventKind("lost records", "lost")
_INCOMPLETE = EventKind("incomplete", "lost", is_instant=True)

SharedArgs = tuple[tuple[str, str | int | float], ...]
"""Arguments of a launch and all of its scopes, in addition to their own."""


def launch_facts(placed: PlacedLaunch) -> dict[str, Any]:
    """Return the facts of a launch that a trace does not show, as JSON values by name."""
    timeline = placed.timeline
    return {
        "kernel": timeline.launch.kernel.name,
        "variant": timeline.launch.kernel.variant,
        "launch": timeline.launch.index,
        "clock_mhz": round(timeline.clock.clock_hz / 1e6, 3),
        "clock_residual_ns": round(timeline.clock.residual_ns, 1),
        "clock_source": timeline.clock.source,
        **missing_facts(timeline),
        "trust": judge(timeline.launch.kernel).to_json(),
        **_place_facts(placed),
    }


def missing_facts(timeline: Timeline) -> dict[str, int]:
    """Return the numbers of records and CTAs that the drawing of the launch lacks, and of all records written."""
    return {
        "records_written": timeline.records_written,
        "records_lost": timeline.records_lost,
        "records_damaged": timeline.records_damaged,
        "open_starts": int(timeline.open_starts.sum()),
        "stray_ends": int(timeline.stray_ends.sum()),
        "ctas_never_ran": timeline.ctas_never_ran,
        "ctas_damaged": timeline.ctas_damaged,
    }


def _place_facts(placed: PlacedLaunch) -> dict[str, Any]:
    """Return the process and device of a launch, and the accuracy of the device's times.

    Launches with the same ``axis`` can be compared within their two errors. If there is a drift, the offset is that of
    the first reading.
    """
    if not placed.place_name:
        return {}
    launch, clock, relation = placed.timeline.launch, placed.clock, placed.clock.relation
    return {
        "host": launch.origin.host,
        "rank": launch.origin.rank,
        "pid": launch.origin.pid,
        "device": launch.device,
        "axis": clock.axis.number,
        "aligned_by": clock.alignment,
        "globaltimer_to_axis_ns": (relation.offset_ns if relation else 0) - clock.axis.zero_ns,
        "globaltimer_drift_ppm": round(relation.drift * 1e6, 3) if relation else 0.0,
        "alignment_error_ns": clock.error_ns,
    }


OWN_THREAD = "kernel launch"
"""The name of the thread that shows the launch as a whole."""


def launch_events(
    placed: PlacedLaunch,
    tracks: Tracks,
    arrow: Arrow | None,
    shared_args: SharedArgs,
    hooks: LaunchHooks,
    process: TraceProcess,
    first_tid: int,
) -> Iterator[Part]:
    """Yield the threads of a launch and their events, with the arrows of hooks.

    The process's own thread shows the launch as a whole, to which ``arrow`` points, unless no CTA ran; those of
    ``tracks`` follow, from ``first_tid`` on.
    """
    if span_ns := placed.span_ns():
        yield _whole(placed, span_ns, process, arrow or Arrow(0, span_ns[0]), shared_args)
    yield from _WarpEvents(placed, process, first_tid, tracks, shared_args, hooks).parts()


def _column(value: int) -> Numbers:
    return np.array([value], dtype=np.int64)


def _whole(
    placed: PlacedLaunch, span_ns: tuple[int, int], process: TraceProcess, arrow: Arrow, shared_args: SharedArgs
) -> Events:
    timeline = placed.timeline
    begin_ns, end_ns = span_ns
    return Events(
        pid=process.pid,
        tids=_column(process.track),
        kinds=[EventKind(timeline.launch.kernel.name, "launch", (*shared_args, *_launch_args(timeline)))],
        kind=_column(0),
        start_ns=_column(begin_ns),
        end_ns=_column(end_ns),
        group=_column(0),
        start_order=_column(0),
        end_order=_column(1),
        arrows=(Arrows(_column(arrow.id), arrive=True, at_ns=_column(max(begin_ns, arrow.leaves_ns))),),
    )


def _launch_args(timeline: Timeline) -> Iterator[tuple[str, str | int | float]]:
    launch, clock = timeline.launch, timeline.clock
    yield "grid", "x".join(map(str, launch.grid))
    yield "ctas", len(timeline.ctas)
    yield "warps_per_cta", launch.kernel.num_warps
    yield from missing_facts(timeline).items()
    yield "clock_mhz", round(clock.clock_hz / 1e6, 3)
    yield "clock_source", clock.source
    yield "clock_residual_ns", round(clock.residual_ns, 1)
    yield "trust", judge(launch.kernel).sentence
    yield "variant", launch.kernel.variant
    yield "launch", launch.index
    if cost := launch.kernel.record_cost:
        yield "record_cost_cycles", round(cost.cycles, 2)
        yield "record_cost_error_cycles", round(cost.error_cycles, 2)


class _WarpEvents:
    def __init__(
        self,
        placed: PlacedLaunch,
        process: TraceProcess,
        first_tid: int,
        tracks: Tracks,
        shared_args: SharedArgs,
        hooks: LaunchHooks,
    ) -> None:
        self._timeline, self._clock = placed.timeline, placed.clock
        self._hooks, self._arrows = hooks, hooks.arrows(placed)
        self._pid = process.pid
        self._launch_track = process.track
        self._first_tid = first_tid
        self._tracks = tracks
        self._drawn_groups = np.zeros(tracks.count - tracks.first_group, dtype=bool)
        partitions = partition_names(placed.timeline.table)
        scopes = placed.timeline.table.scopes
        colours = scope_colours(scope.kind for scope in scopes)
        self._scope_kinds = [
            _scope_kind(scope, partitions.get(index, ""), shared_args, colours[index])
            for index, scope in enumerate(scopes)
        ]
        self._taken = {name for kind in self._scope_kinds for name, _ in kind.args}
        self._is_mark = np.array([kind.is_instant for kind in self._scope_kinds], dtype=bool)
        self._has_cycles = placed.timeline.clock.source != ClockSource.TIMER

    def parts(self) -> Iterator[Part]:
        """Yield the parts; lost records come first because they were the oldest."""
        incomplete = self._timeline.incomplete
        tracks = self._tracks.of_incomplete(incomplete)
        named = np.unique(tracks)
        for first in range(0, len(incomplete), _CHUNK_WARPS):
            part = slice(first, first + _CHUNK_WARPS)
            yield from self._threads(np.unique(tracks[part]))
            yield self._incomplete_warps(incomplete[part], tracks[part])
        first_row = 0
        for block in self._timeline.blocks():
            tracks = self._tracks.of_scopes(block)
            # A thread's events, except for lost records, are all in one block.
            yield from self._threads(_without(np.unique(tracks), named))
            yield self._scopes(block, tracks, first_row)
            first_row += len(block)

    def _threads(self, tracks: Numbers) -> Iterator[TrackGroups | Threads]:
        """Yield these threads, after those of their groups that have not been drawn yet."""
        for groups in self._tracks.groups(tracks, self._drawn_groups):
            if groups.numbers.size:
                yield TrackGroups(self._pid, self._first_tid + groups.numbers, groups.numbers, self._nested(groups))
                self._drawn_groups[groups.numbers - self._tracks.first_group] = True
        for threads in self._tracks.threads(tracks):
            ids = self._first_tid + threads.numbers
            yield Threads(self._pid, ids, 1 + threads.numbers, threads.full_names, self._nested(threads))

    def _nested(self, tracks: NamedTracks) -> Nested:
        around = np.where(tracks.within == LAUNCH, self._launch_track, self._first_tid + tracks.within)
        return Nested(around, tracks.labels)

    def _scopes(self, block: NDArray[np.void], tracks: Numbers, first_row: int) -> Events:
        first, lengths = runs_of_warps(block)
        kind = block["scope"].astype(np.int64)
        own = (
            *_scope_args(block, ~self._is_mark[kind] if self._is_mark.any() else None, self._has_cycles),
            *_tag_args(block, self._timeline.table),
        )
        return Events(
            pid=self._pid,
            tids=self._first_tid + tracks,
            kinds=self._scope_kinds,
            kind=kind,
            start_ns=self._clock.on_axis(block["start_ns"]),
            end_ns=self._clock.on_axis(block["end_ns"]),
            group=np.repeat(np.arange(len(first)), lengths),
            start_order=block["start_record"].astype(np.int64),
            end_order=block["end_record"].astype(np.int64),
            args=(*own, *self._hooks.args(self._timeline, block, self._taken | {arg.name for arg in own})),
            arrows=tuple(arrows_of_rows(self._arrows, first_row, len(block))),
        )

    def _incomplete_warps(self, warps: NDArray[np.void], tracks: Numbers) -> Events:
        """Return an event for each warp: a window where records were lost, else an instant with what is missing."""
        has_window = warps["records_lost"] > 0
        counts = ("open_starts", "stray_ends", "records_damaged")
        return Events(
            pid=self._pid,
            tids=self._first_tid + tracks,
            kinds=[_LOST, _INCOMPLETE],
            kind=(~has_window).astype(np.int64),
            start_ns=self._clock.on_axis(warps["lost_start_ns"]),
            end_ns=self._clock.on_axis(warps["lost_end_ns"]),
            group=np.arange(len(warps)),
            start_order=np.zeros(len(warps), dtype=np.int64),
            end_order=np.ones(len(warps), dtype=np.int64),
            args=(
                Arg("records_written", warps["records_written"]),
                Arg("records", warps["records_lost"], has_window),
                *(Arg(count, warps[count], warps[count] > 0) for count in counts),
            ),
        )


def _without(numbers: Numbers, others: Numbers) -> Numbers:
    """Return the numbers that are not among the others, which ascend."""
    place = np.searchsorted(others, numbers)
    return numbers[others.take(place, mode="clip") != numbers] if others.size else numbers


def _scope_kind(scope: ScopeInfo, partition: str, shared_args: SharedArgs, colour: ScopeColour) -> EventKind:
    args = [("partition", partition), ("source", scope.source), ("called_from", " < ".join(scope.called_from))]
    known = tuple((name, text) for name, text in args if text)
    return EventKind(scope.name, scope.kind, (*shared_args, *known), scope.kind == ScopeKind.INSTANT, colour)


def _tag_args(block: NDArray[np.void], table: ScopeTable) -> Iterator[Arg]:
    for column, name in tag_columns([table]).items():
        values = tag_column(block, table, name)
        is_known = values != NO_TAG
        yield Arg(column, np.where(is_known, values, 0), is_known)


def _scope_args(block: NDArray[np.void], is_slice: Mask | None, has_cycles: bool) -> Iterator[Arg]:
    """Yield the arguments of scopes.

    A mark only has its start: the time to its end is that of the record itself. ``net_ns`` and ``self_ns`` exclude the
    cost of records; ``self_ns`` is omitted if no inner scope took any of the time. Without an SM's counter, there are
    no cycles.
    """
    start_cycles: Numbers = block["start_cycles"]
    iteration = block["iteration"].astype(np.int64)
    has_inner = block["self_ns"] != block["duration_ns"]
    if has_cycles:
        yield Arg("start_cycles", start_cycles)
    yield Arg("iteration", iteration, iteration >= 0)
    if has_cycles:
        yield Arg("cycles", block["end_cycles"] - start_cycles, is_slice)
    yield Arg("net_ns", block["duration_ns"], is_slice)
    yield Arg("self_ns", block["self_ns"], has_inner if is_slice is None else has_inner & is_slice)
    for name, flag in (("crosses", ScopeFlag.CROSSES), ("cut", ScopeFlag.CUT)):
        has_flag = (block["flags"] & flag) != 0
        if has_flag.any():
            yield Arg(name, has_flag.astype(np.int64), has_flag)


_CHUNK_CTAS = 1 << 16


def active_ctas(ctas: NDArray[np.void], pid: int, clock: DeviceClock) -> Iterator[Counters]:
    """Yield the number of active CTAs over time: a counter for all SMs, then one for each known SM.

    A CTA (of ``CTA_COLUMNS``) is active from its start until its records are copied. Yields nothing without CTAs.
    """
    if not ctas.size:
        return
    yield _active(ctas, pid, ["all SMs"], np.zeros(len(ctas), dtype=np.int64), clock)
    ctas = ctas[ctas["sm"] >= 0]
    if not ctas.size:
        return
    order = np.argsort(ctas["sm"], kind="stable")
    begins = np.flatnonzero(np.diff(ctas["sm"][order], prepend=-1))
    # Each part has whole SMs, as many as make up a chunk, and at least one.
    cuts = begins[np.flatnonzero(np.diff(begins // _CHUNK_CTAS, prepend=-1))]
    for start, end in zip(cuts.tolist(), [*cuts[1:].tolist(), len(ctas)], strict=True):
        part = ctas[order[start:end]]
        sms, counter = np.unique(part["sm"], return_inverse=True)
        yield _active(part, pid, [sm_label(sm) for sm in sms.tolist()], counter, clock)


def _active(ctas: NDArray[np.void], pid: int, names: list[str], counter: Numbers, clock: DeviceClock) -> Counters:
    # A CTA that was stopped wrote no end.
    end_ns = clock.on_axis(np.maximum(ctas["post_final_ns"], ctas["init_ns"]))
    amount = np.ones(len(ctas), dtype=np.int64)
    return Counters.of_spans(pid, names, "CTAs", counter, clock.on_axis(ctas["init_ns"]), end_ns, amount)

"""Draw launches: turn them, and what else is known of them, into the columns of ``events``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.async_work.flights import (
    FlightLanes,
    InFlight,
    flight_lanes,
    group_numbers,
    numbers_in_group,
)
from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.export.events import (
    Arg,
    Arrows,
    Counters,
    EventKind,
    Events,
    KindArgs,
    Part,
    Picked,
    Process,
    Scene,
    Tracks,
    sections,
)
from kprof_inject.export.hooks import CounterValues, Hook, args_of, arrows_of_rows, counters_of, hook_arrows
from kprof_inject.export.tracks import LaunchTracks, numbers_in, runs_of_warps
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.columns import NO_TAG, Mask, Numbers, Rows, ScopeFlag
from kprof_inject.timeline.nesting import free_lanes
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.tags import tag_column, tag_columns
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import judge


class DrawnLaunch(Struct, frozen=True):
    """A launch to draw, with the facts that a trace does not show.

    An arrow with its ``number`` as its ID leads from its call, if known, to it. ``shared_args`` are arguments of the
    launch and of each of its scopes; ``position`` orders its processes.
    """

    number: int
    placed: PlacedLaunch
    facts: dict[str, Any]
    called_ns: int | None
    shared_args: KindArgs = ()
    position: int | None = None


def draw(timelines: Sequence[Timeline], layout: str, hooks: Sequence[Hook] = ()) -> Scene:
    """Return the scene of launches, in one of the ``LAYOUT_NAMES``.

    Each launch is a process, followed by processes for its counters and its asynchronous work, which are inside it in
    viewers that nest. Before the first launch of each of the program's processes comes one with the calls that made its
    launches, if their times are known; it contains these launches.
    """
    launches = []
    for number, placed in enumerate(place_launches(timelines), 1):
        call = placed.call if placed.timeline.ctas.size else None
        called_ns = placed.clock.ns_on_axis(call.start_ns) if call else None
        launches.append(DrawnLaunch(number, placed, launch_facts(placed), called_ns))
    names = program_names([launch.placed for launch in launches])
    programs: dict[Hashable, Process] = {}
    groups: list[list[Process]] = []
    for launch in launches:
        process = process_of(launch.placed)
        if process in names and process not in programs:
            of_process = [each for each in launches if process_of(each.placed) == process]
            programs[process] = _program(names[process], of_process)
            groups.append([programs[process]])
        groups.append(list(launch_processes(launch, layout, hooks, programs.get(process))))
    return Scene([launch.facts for launch in launches], list(sections(groups)))


def launch_facts(placed: PlacedLaunch) -> dict[str, Any]:
    """Return the facts of a launch that a trace does not show, as JSON values by name."""
    timeline, clock, relation = placed.timeline, placed.clock, placed.clock.relation
    launch = timeline.launch
    facts = {
        "kernel": launch.kernel.name,
        "variant": launch.kernel.variant,
        "launch": launch.index,
        "clock_mhz": round(timeline.clock.clock_hz / 1e6, 3),
        "clock_residual_ns": round(timeline.clock.residual_ns, 1),
        "clock_source": timeline.clock.source,
        "records_written": timeline.records_written,
        "records_lost": timeline.records_lost,
        "records_damaged": timeline.records_damaged,
        "open_starts": int(timeline.open_starts.sum()),
        "stray_ends": int(timeline.stray_ends.sum()),
        "ctas_never_ran": timeline.ctas_never_ran,
        "ctas_damaged": timeline.ctas_damaged,
        "trust": judge(launch.kernel).to_json(),
    }
    if placed.place_name:
        facts |= {
            "host": launch.process.host,
            "rank": launch.process.rank,
            "pid": launch.process.pid,
            "device": launch.device,
            "axis": clock.axis.number,
            "aligned_by": clock.alignment,
            "globaltimer_to_axis_ns": (relation.offset_ns if relation else 0) - clock.axis.zero_ns,
            "globaltimer_drift_ppm": round(relation.drift * 1e6, 3) if relation else 0.0,
            "alignment_error_ns": clock.error_ns,
        }
    return facts


# The host's calls.


def program_names(placed: Sequence[PlacedLaunch]) -> dict[Hashable, str]:
    """Return the names of the program's processes with known calls, by ``process_of`` their launches."""
    several_hosts = len({launch.timeline.launch.process.host for launch in placed}) > 1
    names = {}
    for launch in placed:
        if launch.call:
            origin = launch.timeline.launch.process
            rank = "" if origin.rank is None else f"rank {origin.rank}, "
            host = f" of {origin.host}" if several_hosts else ""
            names[process_of(launch)] = f"{rank}host process {origin.pid}{host}"
    return names


def process_of(placed: PlacedLaunch) -> Hashable:
    """Return the identity of the program's process that made a launch."""
    origin = placed.timeline.launch.process
    return origin.host_clock, origin.name


def _program(name: str, launches: Sequence[DrawnLaunch]) -> Process:
    calls = [(launch, call) for launch in launches if (call := launch.placed.call)]
    spans_ns = []
    for launch, call in calls:
        call_ns = call.start_ns, call.start_ns if call.end_ns is None else call.end_ns
        spans_ns.append([launch.placed.clock.ns_on_axis(ns) for ns in call_ns])
    start_ns, end_ns = np.array(spans_ns, dtype=np.int64).T
    # An arrow needs a slice of some length to leave from.
    end_ns = np.maximum(end_ns, start_ns + 1)
    thread = free_lanes(np.zeros_like(start_ns), start_ns, end_ns)
    order = np.lexsort((start_ns, thread))
    start_ns, end_ns, thread = start_ns[order], end_ns[order], thread[order]
    calls = [calls[row] for row in order.tolist()]
    kinds = []
    for launch, call in calls:
        made = launch.placed.timeline.launch
        args: KindArgs = (("variant", made.kernel.variant), ("launch", made.index))
        args = (*args, ("device", made.device), ("stream", made.stream))
        if call.end_ns is None:
            args = (*args, ("end", "the return of the call was not recorded"))
        kinds.append(EventKind(made.kernel.name, "host", args))
    further = int(thread.max())  # threads of the program that make calls at the same time

    def drawn(process: Process) -> Iterator[Part]:
        if further:
            extra = np.arange(1, further + 1)
            names = ("launches at the same time (", extra, ")")
            yield Tracks(process.pid, process.track + extra, extra, np.full_like(extra, process.track), names, names)
        rows = np.arange(len(calls))
        arrow_ids = [0 if launch.called_ns is None else launch.number for launch, _ in calls]
        yield Events(
            pid=process.pid,
            tids=process.track + thread,
            kinds=kinds,
            kind=rows,
            start_ns=start_ns,
            end_ns=end_ns,
            group=thread,
            start_order=2 * rows,
            end_order=2 * rows + 1,
            args=(Arg("error_ns", np.array([call.error_ns for _, call in calls], dtype=np.int64)),),
            arrows=(Arrows(np.array(arrow_ids, dtype=np.int64), arrive=False, at_ns=start_ns),),
        )

    return Process(name, drawn, own="launches", tracks=further)


# A launch, its scopes and what is missing.

# Warps with lost records, and CTAs, in one part.
_CHUNK_WARPS = _CHUNK_CTAS = 1 << 16
_LOST = EventKind("lost records", "lost")
_INCOMPLETE = EventKind("incomplete", "lost", is_instant=True)


def launch_processes(
    launch: DrawnLaunch, layout: str, hooks: Sequence[Hook] = (), within: Process | None = None
) -> Iterator[Process]:
    """Yield the processes of a launch and, inside it, of its counters and its asynchronous work."""
    placed, found = launch.placed, recorded_in_flight(launch.placed.timeline)
    tracks = LaunchTracks(placed.timeline, layout)
    drawn = partial(_launch, launch, tracks, hooks)
    own = "kernel launch" if placed.timeline.ctas.size else ""
    yield (whole := Process(placed.title, drawn, own, tracks.count, within, position=launch.position))
    inside: list[tuple[str, int, Callable[[Process], Iterator[Part]]]] = []
    if placed.timeline.ctas.size:
        inside.append(("active CTAs", 0, partial(active_ctas, placed)))
    inside += [(hook.name, 0, partial(counters_of, hook, placed)) for hook in hooks if isinstance(hook, CounterValues)]
    if found is not None and found.groups.size:
        if (found.groups["bytes"] > 0).any():
            inside.append(("bytes in flight", 0, partial(_bytes_in_flight, placed, found)))
        lanes = flight_lanes(found)
        # Lanes, then their CTAs and SMs.
        inside.append(("in flight", 3 * lanes.count, partial(_flights, placed, lanes)))
    for label, count, parts in inside:
        yield Process(f"{placed.title}: {label}", parts, "", count, whole, label, launch.position)


def _launch(launch: DrawnLaunch, tracks: LaunchTracks, hooks: Sequence[Hook], process: Process) -> Iterator[Part]:
    # The process's own thread shows the launch as a whole, unless no CTA ran.
    placed, timeline = launch.placed, launch.placed.timeline
    if span_ns := placed.span_ns():
        yield _whole(launch, span_ns, process)
    drawn = np.zeros(tracks.count - tracks.groups_from, dtype=bool)
    kinds, incomplete = _scope_kinds(timeline, launch.shared_args), timeline.incomplete
    arrows = list(hook_arrows(hooks, placed, launch.number))
    # Lost records come before scopes because they were older.
    threads = tracks.of_incomplete(incomplete)
    named = np.unique(threads)
    for first in range(0, len(incomplete), _CHUNK_WARPS):
        part = slice(first, first + _CHUNK_WARPS)
        yield from _named_tracks(tracks, process, np.unique(threads[part]), drawn)
        yield _incomplete(placed, incomplete[part], process.pid, process.first_track + threads[part])
    first_row = 0
    for block in timeline.blocks():
        threads = tracks.of_scopes(block)
        new = np.setdiff1d(threads, named)  # A thread's events, except for lost records, are all in one block
        yield from _named_tracks(tracks, process, new, drawn)
        own_arrows = tuple(arrows_of_rows(arrows, first_row, len(block)))
        yield _scopes(placed, block, process.pid, process.first_track + threads, kinds, hooks, own_arrows)
        first_row += len(block)


def _named_tracks(tracks: LaunchTracks, process: Process, numbers: Numbers, drawn: Mask) -> Iterator[Tracks]:
    """Yield these threads, after those of their groups that have not been drawn yet."""
    yield from (groups for groups in tracks.groups(process, numbers, drawn) if groups.ids.size)
    yield from tracks.threads(process, numbers)


def _column(value: int) -> Numbers:
    return np.array([value], dtype=np.int64)


_FACTS_SHOWN = (
    *("records_written", "records_lost", "records_damaged", "open_starts", "stray_ends"),
    *("ctas_never_ran", "ctas_damaged", "clock_mhz", "clock_source", "clock_residual_ns"),
)


def _whole(launch: DrawnLaunch, span_ns: tuple[int, int], process: Process) -> Events:
    timeline, (begin_ns, end_ns), called_ns = launch.placed.timeline, span_ns, launch.called_ns
    arrow_id, at_ns = (0, begin_ns) if called_ns is None else (launch.number, max(begin_ns, called_ns))
    made, facts = timeline.launch, launch.facts
    args = [
        *launch.shared_args,
        ("grid", "x".join(map(str, made.grid))),
        ("ctas", len(timeline.ctas)),
        ("warps_per_cta", made.kernel.num_warps),
        *((name, facts[name]) for name in _FACTS_SHOWN),
        ("trust", f"{facts['trust']['level']}: {facts['trust']['text']}"),
        ("variant", made.kernel.variant),
        ("launch", made.index),
    ]
    if cost := made.kernel.record_cost:
        args.append(("record_cost_cycles", round(cost.cycles, 2)))
        args.append(("record_cost_error_cycles", round(cost.error_cycles, 2)))
    return Events(
        pid=process.pid,
        tids=_column(process.track),
        kinds=[EventKind(made.kernel.name, "launch", tuple(args))],
        kind=_column(0),
        start_ns=_column(begin_ns),
        end_ns=_column(end_ns),
        group=_column(0),
        start_order=_column(0),
        end_order=_column(1),
        arrows=(Arrows(_column(arrow_id), arrive=True, at_ns=_column(at_ns)),),
    )


def _incomplete(placed: PlacedLaunch, warps: Rows, pid: int, tids: Numbers) -> Events:
    """Return an event for each warp: a window where records were lost, else an instant with what is missing."""
    has_window = warps["records_lost"] > 0
    counts = ("open_starts", "stray_ends", "records_damaged")
    return Events(
        pid=pid,
        tids=tids,
        kinds=[_LOST, _INCOMPLETE],
        kind=(~has_window).astype(np.int64),
        start_ns=placed.clock.on_axis(warps["lost_start_ns"]),
        end_ns=placed.clock.on_axis(warps["lost_end_ns"]),
        group=np.arange(len(warps)),
        start_order=np.zeros(len(warps), dtype=np.int64),
        end_order=np.ones(len(warps), dtype=np.int64),
        args=(
            Arg("records_written", warps["records_written"]),
            Arg("records", warps["records_lost"], has_window),
            *(Arg(count, warps[count], warps[count] > 0) for count in counts),
        ),
    )


def _scope_kinds(timeline: Timeline, shared_args: KindArgs) -> list[EventKind]:
    partitions, scopes = partition_names(timeline.table), timeline.table.scopes
    kinds = []
    for index, (scope, colour) in enumerate(zip(scopes, scope_colours(scope.kind for scope in scopes), strict=True)):
        texts = (
            ("partition", partitions.get(index, "")),
            ("source", scope.source),
            ("called_from", " < ".join(scope.called_from)),
        )
        args = (*shared_args, *((name, text) for name, text in texts if text))
        kinds.append(EventKind(scope.name, scope.kind, args, scope.kind == ScopeKind.INSTANT, colour))
    return kinds


def _scopes(
    placed: PlacedLaunch,
    block: Rows,
    pid: int,
    tids: Numbers,
    kinds: Sequence[EventKind],
    hooks: Sequence[Hook],
    arrows: tuple[Arrows, ...],
) -> Events:
    timeline, clock = placed.timeline, placed.clock
    first, lengths = runs_of_warps(block)
    kind = numbers_in(block, "scope")
    is_instant = np.array([each.is_instant for each in kinds], dtype=bool)
    has_cycles = timeline.clock.source != ClockSource.TIMER
    args = list(_scope_args(block, ~is_instant[kind] if is_instant.any() else None, has_cycles))
    for column, name in tag_columns([timeline.table]).items():
        values = tag_column(block, timeline.table, name)
        args.append(Arg(column, np.where(values != NO_TAG, values, 0), values != NO_TAG))
    taken = {name for each in kinds for name, _ in each.args} | {arg.name for arg in args}
    args += args_of(hooks, timeline, block, taken)
    return Events(
        pid=pid,
        tids=tids,
        kinds=kinds,
        kind=kind,
        start_ns=clock.on_axis(block["start_ns"]),
        end_ns=clock.on_axis(block["end_ns"]),
        group=np.repeat(np.arange(len(first)), lengths),
        start_order=numbers_in(block, "start_record"),
        end_order=numbers_in(block, "end_record"),
        args=tuple(args),
        arrows=arrows,
    )


def _scope_args(block: Rows, is_slice: Mask | None, has_cycles: bool) -> Iterator[Arg]:
    # A slice is as long as recorded: ``recorded_ns``. ``duration_ns`` and ``self_ns`` are those of tables, without the
    # cost of records; ``self_ns`` is omitted if no inner scope took any of the time. A mark only has its start: the
    # time to its end is that of the record itself. Without an SM's counter, there are no cycles.
    start_cycles: Numbers = block["start_cycles"]
    iteration = numbers_in(block, "iteration")
    has_inner = block["self_ns"] != block["duration_ns"]
    if has_cycles:
        yield Arg("start_cycles", start_cycles)
    yield Arg("iteration", iteration, iteration >= 0)
    if has_cycles:
        yield Arg("recorded_cycles", block["end_cycles"] - start_cycles, is_slice)
    yield Arg("recorded_ns", block["end_ns"] - block["start_ns"], is_slice)
    yield Arg("duration_ns", block["duration_ns"], is_slice)
    yield Arg("self_ns", block["self_ns"], has_inner if is_slice is None else has_inner & is_slice)
    for name, flag in (("crosses", ScopeFlag.CROSSES), ("cut", ScopeFlag.CUT)):
        has_flag = (block["flags"] & flag) != 0
        if has_flag.any():
            yield Arg(name, has_flag.astype(np.int64), has_flag)


# Counters of spans, and asynchronous work.


def _counters_of_spans(
    pid: int, names: Sequence[str], unit: str, counter: Numbers, start_ns: Numbers, end_ns: Numbers, amount: Numbers
) -> Counters:
    at_ns, counter = np.concatenate((start_ns, end_ns)), np.tile(counter, 2)
    order = np.lexsort((at_ns, counter))
    at_ns, counter, values = at_ns[order], counter[order], np.cumsum(np.concatenate((amount, -amount))[order])
    # Starts and ends at the same time make one change, or none. A counter starts and ends at 0.
    is_last = np.append((at_ns[1:] != at_ns[:-1]) | (counter[1:] != counter[:-1]), True)
    kept = np.flatnonzero(is_last)
    kept = kept[np.diff(values[kept], prepend=0) != 0]
    return Counters(pid, names, unit, counter[kept], at_ns[kept], values[kept])


def active_ctas(placed: PlacedLaunch, process: Process) -> Iterator[Counters]:
    """Yield the number of active CTAs, until their records are copied: a counter for all SMs, then one for each SM."""

    def active(ctas: Rows, names: Sequence[str], counter: Numbers) -> Counters:
        start_ns = placed.clock.on_axis(ctas["init_ns"])
        # A CTA that was stopped wrote no end.
        end_ns = placed.clock.on_axis(np.maximum(ctas["post_final_ns"], ctas["init_ns"]))
        return _counters_of_spans(process.pid, names, "CTAs", counter, start_ns, end_ns, np.ones_like(start_ns))

    ctas = placed.timeline.all_ctas
    if ctas.size:
        yield active(ctas, ["all SMs"], np.zeros(len(ctas), dtype=np.int64))
    ctas = ctas[ctas["sm"] >= 0]
    order = np.argsort(ctas["sm"], kind="stable")
    begins = np.flatnonzero(np.diff(ctas["sm"][order], prepend=-1))
    # Each part has whole SMs, as many as make up a chunk, and at least one.
    cuts = begins[np.flatnonzero(np.diff(begins // _CHUNK_CTAS, prepend=-1))].tolist()
    for start, end in zip(cuts, [*cuts[1:], len(ctas)], strict=False):
        part = ctas[order[start:end]]
        sms, counter = np.unique(part["sm"], return_inverse=True)
        yield active(part, [f"SM {sm}" for sm in sms.tolist()], counter)


def _bytes_in_flight(placed: PlacedLaunch, found: InFlight, process: Process) -> Iterator[Counters]:
    groups, clock = found.groups[found.groups["bytes"] > 0], placed.clock
    sms, counter = np.unique(groups["sm"], return_inverse=True)
    start_ns, end_ns = clock.on_axis(groups["start_ns"]), clock.on_axis(groups["end_ns"])
    names = [f"SM {sm}" for sm in sms.tolist()]
    yield _counters_of_spans(process.pid, names, "bytes", counter, start_ns, end_ns, groups["bytes"])


def _flights(placed: PlacedLaunch, lanes: FlightLanes, process: Process) -> Iterator[Part]:
    # Each lane is a thread. Each group has two events: one for the time when it was certainly in flight, the other for
    # the time when it may have been.
    first = np.flatnonzero(np.diff(lanes.lane, prepend=-1))
    lane, work = lanes.lane[first], lanes.work[first]
    ctas, cta_begins, cta = np.unique(lanes.groups["cta"][first], return_index=True, return_inverse=True)
    sms, sm = np.unique(lanes.groups["sm"][first], return_inverse=True)
    ctas, sms = ctas.astype(np.int64), sms.astype(np.int64)
    cta_ids = process.first_track + lanes.count + np.arange(len(ctas))
    sm_ids = cta_ids[-1] + 1 + np.arange(len(sms))
    in_process = np.full(len(sms), process.track)
    yield Tracks(process.pid, sm_ids, np.arange(len(sms)), in_process, ("SM ", sms))
    yield Tracks(process.pid, cta_ids, np.arange(len(ctas)), sm_ids[sm[cta_begins]], ("CTA ", ctas))
    label = (Picked(lanes.kinds, work), ", lane ", numbers_in_group(group_numbers(cta, work)) - 1)
    place = ("SM ", sms[sm], " CTA ", ctas[cta], ": ")
    yield Tracks(process.pid, process.first_track + lane, lane, cta_ids[cta], label, (*place, *label))

    rows = np.arange(len(lanes.groups))
    order = np.argsort(np.concatenate([2 * rows, 2 * rows + 1]), kind="stable")
    starts_ns = np.concatenate([lanes.groups["start_ns"], lanes.known_ns])[order]
    ends_ns = np.concatenate([lanes.known_ns, lanes.end_ns])[order]
    kind = np.concatenate([2 * lanes.work, 2 * lanes.work + 1])[order]
    kept = ends_ns > starts_ns
    twice = np.repeat(rows, 2)[kept]
    lane, groups = lanes.lane[twice], lanes.groups[twice]
    yield Events(
        pid=process.pid,
        tids=process.first_track + lane,
        kinds=[EventKind(name, "in flight") for work in lanes.kinds for name in (work, f"{work}, possibly complete")],
        kind=kind[kept],
        start_ns=placed.clock.on_axis(starts_ns[kept]),
        end_ns=placed.clock.on_axis(ends_ns[kept]),
        group=lane,
        start_order=2 * np.arange(len(twice)),
        end_order=2 * np.arange(len(twice)) + 1,
        args=(
            Arg("in_flight_ns", groups["end_ns"] - groups["start_ns"]),
            Arg("blocked_ns", groups["blocked_ns"]),
            Arg("depth", numbers_in(groups, "depth")),
            Arg("bytes", groups["bytes"], groups["bytes"] > 0),
        ),
    )

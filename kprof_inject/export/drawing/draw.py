"""Make the scene of launches: their processes, in order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial

import numpy as np
from msgspec import Struct

from kprof_inject.capture.model import Origin
from kprof_inject.export.drawing.flight_events import FlightEvents
from kprof_inject.export.drawing.hook_parts import NO_HOOKS, LaunchHooks, hook_counters
from kprof_inject.export.drawing.launch_events import OWN_THREAD, SharedArgs, active_ctas, launch_events, launch_facts
from kprof_inject.export.drawing.scene import (
    Arg,
    Arrow,
    Arrows,
    EventKind,
    Events,
    Numbers,
    OwnThread,
    Part,
    Scene,
    Section,
    Threads,
    TraceProcess,
)
from kprof_inject.export.drawing.tracks import TrackLayout, by_sm, cta_label, sm_label
from kprof_inject.export.hooks import Hook
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.host_clock import HostCall
from kprof_inject.timeline.nesting import free_lanes
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.timeline import Timeline

_NO_END = "the return of the call was not recorded"


class HostLaunch(Struct, frozen=True):
    """A call on the host that made a launch."""

    placed: PlacedLaunch
    call: HostCall
    arrow: int
    """The ID of the arrow from the call to the launch; 0 for none."""


def program_names(placed: Sequence[PlacedLaunch]) -> dict[Hashable, str]:
    """Return the names of the program's processes with known calls, by ``process_of`` their launches."""
    several_hosts = len({launch.timeline.launch.origin.host for launch in placed}) > 1
    origins = {process_of(launch): launch.timeline.launch.origin for launch in placed if launch.call}
    return {process: _program_name(origin, several_hosts) for process, origin in origins.items()}


def _program_name(origin: Origin, of_several_hosts: bool) -> str:
    rank = "" if origin.rank is None else f"rank {origin.rank}, "
    return f"{rank}host process {origin.pid}" + (f" of {origin.host}" if of_several_hosts else "")


def process_of(placed: PlacedLaunch) -> Hashable:
    """Return the identity of the program's process that made a launch."""
    origin = placed.timeline.launch.origin
    return origin.host_clock, origin.name


class HostLaunches(Struct, frozen=True):
    """The calls of one process, with their starts and ends on its axis and the number of the thread to draw each on.

    There are several threads only if calls overlap, because the program's own threads may make them.
    """

    calls: Sequence[HostLaunch]
    start_ns: Numbers
    end_ns: Numbers
    thread: Numbers

    @classmethod
    def of(cls, calls: Sequence[HostLaunch]) -> HostLaunches:
        """Place the calls on the axis, and choose their threads."""
        start_ns = np.array([launch.placed.clock.ns_on_axis(launch.call.start_ns) for launch in calls], dtype=np.int64)
        ends = (launch.call.start_ns if launch.call.end_ns is None else launch.call.end_ns for launch in calls)
        on_axis = [launch.placed.clock.ns_on_axis(end) for launch, end in zip(calls, ends, strict=True)]
        end_ns = np.array(on_axis, dtype=np.int64)
        # An arrow needs a slice of some length to leave from.
        end_ns = np.maximum(end_ns, start_ns + 1)
        return cls(calls, start_ns, end_ns, free_lanes(np.zeros_like(start_ns), start_ns, end_ns))

    @property
    def threads(self) -> int:
        """The number of threads needed."""
        return int(self.thread.max()) + 1

    def parts(self, process: TraceProcess, first_tid: int) -> Iterator[Part]:
        """Yield the calls in order of time on each thread; the first thread is the process's own."""
        extra = np.arange(1, self.threads)
        if extra.size:
            names = ("launches at the same time (", extra, ")")
            yield Threads(process.pid, first_tid - 1 + extra, extra, names)
        order = np.lexsort((self.start_ns, self.thread))
        ordered = [self.calls[row] for row in order.tolist()]
        rows = np.arange(len(ordered))
        start_ns, thread = self.start_ns[order], self.thread[order]
        yield Events(
            pid=process.pid,
            tids=np.where(thread, first_tid - 1 + thread, process.track),
            kinds=[_kind(launch) for launch in ordered],
            kind=rows,
            start_ns=start_ns,
            end_ns=self.end_ns[order],
            group=thread,
            start_order=2 * rows,
            end_order=2 * rows + 1,
            args=(Arg("error_ns", np.array([launch.call.error_ns for launch in ordered], dtype=np.int64)),),
            arrows=(
                Arrows(np.array([launch.arrow for launch in ordered], dtype=np.int64), arrive=False, at_ns=start_ns),
            ),
        )


def _kind(call: HostLaunch) -> EventKind:
    launch = call.placed.timeline.launch
    args: dict[str, str | int] = {
        "variant": launch.kernel.variant,
        "launch": launch.index,
        "device": launch.device,
        "stream": launch.stream,
    }
    if call.call.end_ns is None:
        args["end"] = _NO_END
    return EventKind(launch.kernel.name, "host", tuple(args.items()))


class DrawnProcess(Struct, frozen=True, eq=False):
    """A process to draw.

    ``own`` is the name of the thread that shows it as a whole, empty for none; ``tracks`` is the number of further
    tracks that its parts may take; ``drawn`` makes its parts from it and the ID of the first of these tracks. It may be
    ``within`` another process, under the name ``label``. ``position`` orders it (None: by its ID).
    """

    name: str
    own: str
    tracks: int
    drawn: Callable[[TraceProcess, int], Iterator[Part]]
    within: DrawnProcess | None = None
    label: str = ""
    position: int | None = None

    @property
    def ids(self) -> int:
        """The number of IDs that it takes with its threads and groups."""
        return 1 + bool(self.own) + self.tracks


def draw(timelines: Sequence[Timeline], layout: TrackLayout = by_sm, hooks: Sequence[Hook] = ()) -> Scene:
    """Return the scene of these launches.

    Each launch is a process, followed by processes for its counters and its asynchronous work, which are inside it in
    viewers that nest. Before the first launch of each of the program's processes comes one with the calls that made its
    launches, if their times are known; it contains these launches.

    An axis's zero is the start of its first process, because Perfetto drops events before zero.
    """
    placed = place_launches(timelines)
    groups = list(_grouped_processes(placed, layout, hooks))
    return Scene([launch_facts(launch) for launch in placed], list(sections(groups)))


def sections(groups: Sequence[Sequence[DrawnProcess]], first_id: int = 1) -> Iterator[Section]:
    """Yield each group of processes as a section, with IDs for them and their threads from ``first_id`` on."""
    # Process IDs come first, so that no thread's ID equals one: some viewers take such a thread for the main one.
    pid, first_tid = first_id, first_id + sum(map(len, groups))
    numbered: dict[DrawnProcess, TraceProcess] = {}
    for processes in groups:
        section = []
        for process in processes:
            own = OwnThread(first_tid, process.own) if process.own else None
            within = numbered[process.within].track if process.within else 0
            numbered[process] = TraceProcess(pid, process.name, own, within, process.label, process.position)
            first_tid += bool(own)
            section.append((numbered[process], partial(process.drawn, numbered[process], first_tid)))
            pid, first_tid = pid + 1, first_tid + process.tracks
        yield partial(_section, section)


def _section(processes: Sequence[tuple[TraceProcess, Callable[[], Iterator[Part]]]]) -> Iterator[Part]:
    for process, parts in processes:
        yield process
        yield from parts()


def _grouped_processes(
    placed: Sequence[PlacedLaunch], layout: TrackLayout, hooks: Sequence[Hook]
) -> Iterator[list[DrawnProcess]]:
    """Yield the processes of each section: all of a launch, so that sections take similar time."""
    calls, names = _calls(placed), program_names(placed)
    programs: dict[Hashable, DrawnProcess] = {}
    for number, launch in enumerate(placed, 1):
        process = process_of(launch)
        if process in calls and process not in programs:
            made = HostLaunches.of(calls[process])
            programs[process] = DrawnProcess(names[process], "launches", made.threads - 1, made.parts)
            yield [programs[process]]
        arrow = None
        if launch.call is not None and _has_arrow(launch):
            arrow = Arrow(number, launch.clock.ns_on_axis(launch.call.start_ns))
        within = programs.get(process)
        yield list(launch_processes(launch, layout, arrow, within=within, hooks=LaunchHooks(hooks, number)))


def launch_processes(
    placed: PlacedLaunch,
    layout: TrackLayout,
    arrow: Arrow | None,
    shared_args: SharedArgs = (),
    position: int | None = None,
    within: DrawnProcess | None = None,
    hooks: LaunchHooks = NO_HOOKS,
) -> Iterator[DrawnProcess]:
    """Yield the processes of a launch, to which ``arrow`` points.

    Its counters come before the other processes inside it. ``shared_args`` are arguments of the launch and of each of
    its scopes; ``position`` orders all of its processes.
    """
    tracks = layout(placed.timeline)
    own = OWN_THREAD if placed.span_ns() else ""
    drawn = partial(launch_events, placed, tracks, arrow, shared_args, hooks)
    yield (launch := DrawnProcess(placed.title, own, tracks.count, drawn, within, position=position))

    def part(label: str, tracks: int, drawn: Callable[[TraceProcess, int], Iterator[Part]]) -> DrawnProcess:
        return DrawnProcess(f"{placed.title}: {label}", "", tracks, drawn, launch, label, position)

    if placed.timeline.ctas.size:
        yield part("active CTAs", 0, partial(_active_ctas, placed))
    for counted in hooks.counters:
        yield part(counted.name, 0, partial(hook_counters, counted, placed))
    if flights := FlightEvents.of(placed):
        if flights.has_bytes:
            yield part("bytes in flight", 0, flights.counters)
        yield part("in flight", flights.tracks, flights.parts)


def _calls(placed: Sequence[PlacedLaunch]) -> dict[Hashable, list[HostLaunch]]:
    """Return the host's calls with known times, by process. Each launch's arrow has its number, from 1."""
    calls: dict[Hashable, list[HostLaunch]] = {}
    for number, launch in enumerate(placed, 1):
        if launch.call:
            of_process = calls.setdefault(process_of(launch), [])
            of_process.append(HostLaunch(launch, launch.call, number if _has_arrow(launch) else 0))
    return calls


def _has_arrow(launch: PlacedLaunch) -> bool:
    return launch.call is not None and launch.timeline.ctas.size > 0


def _active_ctas(placed: PlacedLaunch, process: TraceProcess, _first_tid: int) -> Iterator[Part]:
    return active_ctas(placed.timeline.all_ctas, process.pid, placed.clock)


# About as many as fit on a screen.
_WARPS = 16


class Opening(Struct, frozen=True):
    """The slice of a launch, and the names of the tracks to expand.

    With these, the launch's first warps are visible where tracks nest by SM, CTA and warp.
    """

    start_ns: int
    duration_ns: int
    tracks: tuple[str, ...]


def last_launch(timelines: Sequence[Timeline]) -> Opening | None:
    """Return the opening for the launch that began last; None if no CTA of any launch ran.

    A launch may be so far from the host's call that made it that it is invisible in the trace as a whole.
    """
    placed = place_launches(timelines)
    spans = [(span, number) for number, launch in enumerate(placed) if (span := launch.span_ns())]
    if not spans:
        return None
    (begin_ns, end_ns), number = max(spans)
    launch = placed[number]
    program = program_names(placed).get(process_of(launch))
    around = (program, launch.title) if program else (launch.title,)
    return Opening(begin_ns, end_ns - begin_ns, (*around, *_first_groups(launch)))


def _first_groups(launch: PlacedLaunch) -> Iterator[str]:
    """SMs and CTAs of the first warps, one CTA at least."""
    ctas = np.sort(launch.timeline.ctas[["sm", "cta"]], order=["sm", "cta"])
    first = ctas[: max(_WARPS // len(recorded_warps(launch.timeline.launch)), 1)]
    yield from map(sm_label, np.unique(first["sm"]).tolist())
    yield from map(cta_label, first["cta"].tolist())

"""Makes the scene of launches: their processes, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kprof_inject.capture.model import Origin
from kprof_inject.export.drawing.counters import active_ctas
from kprof_inject.export.drawing.flight_events import FlightEvents
from kprof_inject.export.drawing.hooked import NO_HOOKS, LaunchHooks, hook_counters
from kprof_inject.export.drawing.launch_events import OWN_THREAD, Told, launch_events, launch_facts
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
from kprof_inject.export.drawing.tracks import BY_SM, TrackLayout
from kprof_inject.export.hooks import Hook
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.host_clock import HostCall
from kprof_inject.timeline.timeline import Timeline

_NO_END = "when the call returned was not recorded"


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """A host's call that made a launch."""

    placed: PlacedLaunch
    call: HostCall
    arrow: int
    """The id of the arrow from the call to the launch; 0 for none."""


def program_names(placed: Sequence[PlacedLaunch]) -> dict[Hashable, str]:
    """What the program's processes are called whose calls are drawn, by ``process_of`` their launches."""
    several_hosts = len({launch.timeline.launch.origin.host for launch in placed}) > 1
    origins = {process_of(launch): launch.timeline.launch.origin for launch in placed if launch.call}
    return {process: _program_name(origin, several_hosts) for process, origin in origins.items()}


def _program_name(origin: Origin, of_several_hosts: bool) -> str:
    rank = "" if origin.rank is None else f"rank {origin.rank}, "
    return f"{rank}host process {origin.pid}" + (f" of {origin.host}" if of_several_hosts else "")


def process_of(placed: PlacedLaunch) -> Hashable:
    """The program's process that made a launch."""
    origin = placed.timeline.launch.origin
    return origin.host_clock, origin.name


@dataclass(frozen=True, slots=True)
class HostLaunches:
    """The calls of one process, and the columns of them: when each began and ended, by its axis, and on which thread it
    stands. More than one only if calls overlap, as its own threads may make them."""

    calls: Sequence[HostLaunch]
    start_ns: Numbers
    end_ns: Numbers
    thread: Numbers

    @classmethod
    def of(cls, calls: Sequence[HostLaunch]) -> HostLaunches:
        start_ns = np.array([each.placed.clock.ns_on_axis(each.call.start_ns) for each in calls], dtype=np.int64)
        end_ns = np.array([each.placed.clock.ns_on_axis(_end_ns(each.call)) for each in calls], dtype=np.int64)
        # An arrow needs something to leave from.
        end_ns = np.maximum(end_ns, start_ns + 1)
        return cls(calls, start_ns, end_ns, _free_threads(start_ns, end_ns))

    @property
    def threads(self) -> int:
        return int(self.thread.max()) + 1

    def parts(self, process: TraceProcess, first_tid: int) -> Iterator[Part]:
        """In order of time, on each thread: the first is the process's own."""
        further = np.arange(1, self.threads)
        if further.size:
            names = ("launches at the same time (", further, ")")
            yield Threads(process.pid, first_tid - 1 + further, further, names)
        order = np.lexsort((self.start_ns, self.thread))
        ordered = [self.calls[at] for at in order.tolist()]
        rows = np.arange(len(ordered))
        start_ns, thread = self.start_ns[order], self.thread[order]
        yield Events(
            process.pid,
            np.where(thread, first_tid - 1 + thread, process.track),
            [_kind(each) for each in ordered],
            rows,
            start_ns,
            self.end_ns[order],
            group=thread,
            start_order=2 * rows,
            end_order=2 * rows + 1,
            args=(Arg("error_ns", np.array([each.call.error_ns for each in ordered], dtype=np.int64)),),
            arrows=(Arrows(np.array([each.arrow for each in ordered], dtype=np.int64), arrive=False, at_ns=start_ns),),
        )


def _end_ns(call: HostCall) -> int:
    return call.start_ns if call.end_ns is None else call.end_ns


def _free_threads(start_ns: Numbers, end_ns: Numbers) -> Numbers:
    """For each span, by the time of its start, the first thread that is free then."""
    thread = np.zeros(len(start_ns), dtype=np.int64)
    free_ns: list[int] = []
    for at in np.argsort(start_ns, kind="stable").tolist():
        chosen = next((number for number, free in enumerate(free_ns) if free <= start_ns[at]), len(free_ns))
        free_ns[chosen : chosen + 1] = [int(end_ns[at])]
        thread[at] = chosen
    return thread


def _kind(call: HostLaunch) -> EventKind:
    return EventKind(call.placed.timeline.launch.kernel.name, "host", tuple(_args(call)))


def _args(call: HostLaunch) -> Iterator[tuple[str, str | int]]:
    launch = call.placed.timeline.launch
    yield "variant", launch.kernel.variant
    yield "launch", launch.index
    yield "device", launch.device
    yield "stream", launch.stream
    if call.call.end_ns is None:
        yield "end", _NO_END


@dataclass(frozen=True, slots=True, eq=False)
class DrawnProcess:
    """A process that is to be drawn: its name; that of the thread that shows it as a whole, empty for none; how many
    further tracks its parts may take; what makes its parts, of it and of the id of the first of these. It may stand
    ``within`` another, by the name ``label``. ``position`` is where it stands (None: in the order of all)."""

    name: str
    own: str
    tracks: int
    drawn: Callable[[TraceProcess, int], Iterator[Part]]
    within: DrawnProcess | None = None
    label: str = ""
    position: int | None = None

    @property
    def ids(self) -> int:
        """How many ids it takes with its threads and groups."""
        return 1 + bool(self.own) + self.tracks


def draw(timelines: Sequence[Timeline], layout: TrackLayout = BY_SM, hooks: Sequence[Hook] = ()) -> Scene:
    """The scene of these launches: a process for each, followed by those for its counters and for what is in flight,
    which stand in it where a viewer nests; before the first launch of each of the program's processes, one with the
    calls that made its launches, where their time is known. Launches stand in that.

    An axis's zero is where the first of it begins, so that nothing stands before zero: Perfetto drops what does."""
    placed = place_launches(timelines)
    return Scene([launch_facts(launch) for launch in placed], list(sections(list(_together(placed, layout, hooks)))))


def sections(together: Sequence[Sequence[DrawnProcess]], first_id: int = 1) -> Iterator[Section]:
    """Each group of processes as a section. They and their threads have the ids from ``first_id`` on."""
    # Process ids come first, so that no thread's id equals one: some viewers take such a thread for the main one.
    pid, first_tid = first_id, first_id + sum(map(len, together))
    numbered: dict[DrawnProcess, TraceProcess] = {}
    for processes in together:
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


def _together(
    placed: Sequence[PlacedLaunch], layout: TrackLayout, hooks: Sequence[Hook]
) -> Iterator[list[DrawnProcess]]:
    """The processes of each section: a launch's are one, so that sections take about as long."""
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
    told: Told = (),
    position: int | None = None,
    within: DrawnProcess | None = None,
    hooks: LaunchHooks = NO_HOOKS,
) -> Iterator[DrawnProcess]:
    """The processes of a launch, to which ``arrow`` points: what is counted of it comes before all else that is drawn
    in it. ``told`` is what to tell with it and with each of its scopes, ``position`` where all of them stand."""
    tracks = layout.tracks(placed.timeline)
    own = OWN_THREAD if placed.span_ns() else ""
    drawn = partial(launch_events, placed, tracks, arrow, told, hooks)
    yield (launch := DrawnProcess(placed.title, own, tracks.count, drawn, within, position=position))

    def part(label: str, tracks: int, drawn: Callable[[TraceProcess, int], Iterator[Part]]) -> DrawnProcess:
        return DrawnProcess(f"{placed.title}: {label}", "", tracks, drawn, launch, label, position)

    if placed.timeline.ctas.size:
        yield part("active CTAs", 0, partial(_active_ctas, placed))
    for counted in hooks.counters:
        yield part(counted.name, 0, partial(hook_counters, counted, placed))
    if flew := FlightEvents.of(placed):
        if flew.has_bytes:
            yield part("bytes in flight", 0, flew.counters)
        yield part("in flight", flew.tracks, flew.parts)


def _calls(placed: Sequence[PlacedLaunch]) -> dict[Hashable, list[HostLaunch]]:
    """The host's calls whose time is known, by process. Each launch's arrow has its number, from 1."""
    calls: dict[Hashable, list[HostLaunch]] = {}
    for number, launch in enumerate(placed, 1):
        if launch.call:
            mine = calls.setdefault(process_of(launch), [])
            mine.append(HostLaunch(launch, launch.call, number if _has_arrow(launch) else 0))
    return calls


def _has_arrow(launch: PlacedLaunch) -> bool:
    return launch.call is not None and launch.timeline.ctas.size > 0


def _active_ctas(placed: PlacedLaunch, process: TraceProcess, _first_tid: int) -> Iterator[Part]:
    return active_ctas(placed.timeline.ctas, process.pid, placed.clock)

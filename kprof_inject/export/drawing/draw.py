"""Makes the scene of launches: their processes, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kprof_inject.capture.model import Origin
from kprof_inject.export.drawing.counters import active_ctas
from kprof_inject.export.drawing.flight_events import FlightEvents
from kprof_inject.export.drawing.launch_events import Told, launch_events, launch_facts
from kprof_inject.export.drawing.scene import (
    Arg,
    Arrow,
    Arrows,
    EventKind,
    Events,
    Numbers,
    Part,
    Scene,
    Section,
    Threads,
    TraceProcess,
)
from kprof_inject.export.drawing.tracks import BY_SM, TrackLayout
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


def host_process_name(origin: Origin, *, of_several_hosts: bool) -> str:
    rank = "" if origin.rank is None else f"rank {origin.rank}, "
    return f"{rank}host process {origin.pid}" + (f" of {origin.host}" if of_several_hosts else "")


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

    def parts(self, pid: int, first_tid: int) -> Iterator[Part]:
        """In order of time, on each thread."""
        numbers = np.arange(self.threads)
        yield Threads(pid, first_tid + numbers[:1], numbers[:1], ("launches",))
        if numbers.size > 1:
            yield Threads(pid, first_tid + numbers[1:], numbers[1:], ("launches at the same time (", numbers[1:], ")"))
        order = np.lexsort((self.start_ns, self.thread))
        ordered = [self.calls[at] for at in order.tolist()]
        rows = np.arange(len(ordered))
        start_ns, thread = self.start_ns[order], self.thread[order]
        yield Events(
            pid,
            first_tid + thread,
            [_kind(each) for each in ordered],
            rows,
            start_ns,
            self.end_ns[order],
            group=thread,
            start_order=2 * rows,
            end_order=2 * rows + 1,
            args=(Arg("error_ns", np.array([each.call.error_ns for each in ordered], dtype=np.int64)),),
            arrows=Arrows(np.array([each.arrow for each in ordered], dtype=np.int64), arrive=False, at_ns=start_ns),
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


@dataclass(frozen=True, slots=True)
class DrawnProcess:
    """A process that is to be drawn: how many thread ids it takes, its parts, of its own id and the first of its
    threads', and where it stands (None: in the order of all)."""

    name: str
    threads: int
    drawn: Callable[[int, int], Iterator[Part]]
    position: int | None = None


def draw(timelines: Sequence[Timeline], layout: TrackLayout = BY_SM) -> Scene:
    """The scene of these launches: a process for each, followed by one for its counters; before the first launch of
    each of the program's processes, one with the calls that made its launches, where their time is known.

    An axis's zero is where the first of it begins, so that nothing stands before zero: Perfetto drops what does."""
    placed = place_launches(timelines)
    return Scene([launch_facts(launch) for launch in placed], list(sections(list(_together(placed, layout)))))


def sections(together: Sequence[Sequence[DrawnProcess]], first_id: int = 1) -> Iterator[Section]:
    """Each group of processes as a section. They and their threads have the ids from ``first_id`` on."""
    # Process ids come first, so that no thread's id equals one: some viewers take such a thread for the main one.
    pid, first_tid = first_id, first_id + sum(map(len, together))
    for processes in together:
        numbered = []
        for process in processes:
            numbered.append((process, pid, first_tid))
            pid, first_tid = pid + 1, first_tid + process.threads
        yield partial(_section, numbered)


def _section(numbered: Sequence[tuple[DrawnProcess, int, int]]) -> Iterator[Part]:
    for process, pid, first_tid in numbered:
        yield TraceProcess(pid, process.name, process.position)
        yield from process.drawn(pid, first_tid)


def _together(placed: Sequence[PlacedLaunch], layout: TrackLayout) -> Iterator[list[DrawnProcess]]:
    """The processes of each section: a launch's are one, so that sections take about as long."""
    calls = _calls(placed)
    several_hosts = len({launch.timeline.launch.origin.host for launch in placed}) > 1
    for number, launch in enumerate(placed, 1):
        origin = launch.timeline.launch.origin
        if mine := calls.pop(_process_of(origin), None):
            made = HostLaunches.of(mine)
            yield [DrawnProcess(host_process_name(origin, of_several_hosts=several_hosts), made.threads, made.parts)]
        arrow = None
        if launch.call is not None and _has_arrow(launch):
            arrow = Arrow(number, launch.clock.ns_on_axis(launch.call.start_ns))
        yield launch_processes(launch, layout, arrow)


def launch_processes(
    placed: PlacedLaunch,
    layout: TrackLayout,
    arrow: Arrow | None,
    told: Told = (),
    position: int | None = None,
) -> list[DrawnProcess]:
    """The processes of a launch: itself, to which ``arrow`` points, its counters, and what was in flight. ``told`` is
    what to tell with it and with each of its scopes, ``position`` where all of them stand."""
    tracks = layout.tracks(placed.timeline)
    drawn = partial(launch_events, placed, tracks, arrow, told)
    processes = [DrawnProcess(placed.title, 1 + tracks.count, drawn, position)]
    if placed.timeline.ctas.size:
        processes.append(DrawnProcess(f"{placed.title}: active CTAs", 0, partial(_counters, placed), position))
    if flew := FlightEvents.of(placed):
        processes.append(DrawnProcess(f"{placed.title}: in flight", flew.lanes.count, flew.parts, position))
    return processes


def _calls(placed: Sequence[PlacedLaunch]) -> dict[Hashable, list[HostLaunch]]:
    """The host's calls whose time is known, by process. Each launch's arrow has its number, from 1."""
    calls: dict[Hashable, list[HostLaunch]] = {}
    for number, launch in enumerate(placed, 1):
        if launch.call:
            mine = calls.setdefault(_process_of(launch.timeline.launch.origin), [])
            mine.append(HostLaunch(launch, launch.call, number if _has_arrow(launch) else 0))
    return calls


def _process_of(origin: Origin) -> Hashable:
    return origin.host_clock, origin.name


def _has_arrow(launch: PlacedLaunch) -> bool:
    return launch.call is not None and launch.timeline.ctas.size > 0


def _counters(placed: PlacedLaunch, pid: int, _first_tid: int) -> Iterator[Part]:
    return active_ctas(placed.timeline.ctas, pid, placed.clock)

"""Makes the scene of launches: their processes, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kprof_inject.capture.origin import Origin
from kprof_inject.export.drawing.counters import active_ctas
from kprof_inject.export.drawing.host_launches import Call, HostLaunches, host_process_name
from kprof_inject.export.drawing.launch_events import launch_events
from kprof_inject.export.drawing.launch_facts import launch_facts
from kprof_inject.export.drawing.scene import Part, Process, Scene, Section
from kprof_inject.export.drawing.tracks import BY_SM, TrackLayout
from kprof_inject.timeline.clocks.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class _Process:
    """A process that is to be drawn: how many thread ids it takes, and its parts, of its own id and the first of its
    threads'."""

    name: str
    threads: int
    drawn: Callable[[int, int], Iterator[Part]]


def draw(timelines: Sequence[Timeline], layout: TrackLayout = BY_SM) -> Scene:
    """The scene of these launches: a process for each, followed by one for its counters; before the first launch of
    each of the program's processes, one with the calls that made its launches, where their time is known.

    An axis's zero is where the first of it begins, so that nothing stands before zero: Perfetto drops what does."""
    placed = place_launches(timelines)
    return Scene([launch_facts(launch) for launch in placed], list(_sections(list(_together(placed, layout)))))


def _sections(together: Sequence[Sequence[_Process]]) -> Iterator[Section]:
    # Process ids come first, so that no thread's id equals one: some viewers take such a thread for the main one.
    pid, first_tid = 1, sum(map(len, together)) + 1
    for processes in together:
        numbered = []
        for process in processes:
            numbered.append((process, pid, first_tid))
            pid, first_tid = pid + 1, first_tid + process.threads
        yield partial(_section, numbered)


def _section(numbered: Sequence[tuple[_Process, int, int]]) -> Iterator[Part]:
    for process, pid, first_tid in numbered:
        yield Process(pid, process.name)
        yield from process.drawn(pid, first_tid)


def _together(placed: Sequence[PlacedLaunch], layout: TrackLayout) -> Iterator[list[_Process]]:
    """The processes of each section: a launch's are one, so that sections take about as long."""
    calls = _calls(placed)
    several_hosts = len({launch.timeline.launch.origin.host for launch in placed}) > 1
    for number, launch in enumerate(placed, 1):
        origin = launch.timeline.launch.origin
        if mine := calls.pop(_process_of(origin), None):
            made = HostLaunches.of(mine)
            yield [_Process(host_process_name(origin, of_several_hosts=several_hosts), made.threads, made.parts)]
        name = _launch_name(launch)
        arrow = number if _has_arrow(launch) else 0
        tracks = layout.tracks(launch.timeline)
        processes = [_Process(name, 1 + tracks.count, partial(launch_events, launch, tracks, arrow))]
        if launch.timeline.ctas.size:
            processes.append(_Process(f"{name}: active CTAs", 0, partial(_counters, launch)))
        yield processes


def _calls(placed: Sequence[PlacedLaunch]) -> dict[Hashable, list[Call]]:
    """The host's calls whose time is known, by process. Each launch's arrow has its number, from 1."""
    calls: dict[Hashable, list[Call]] = {}
    for number, launch in enumerate(placed, 1):
        if launch.call:
            mine = calls.setdefault(_process_of(launch.timeline.launch.origin), [])
            mine.append(Call(launch, launch.call, number if _has_arrow(launch) else 0))
    return calls


def _process_of(origin: Origin) -> Hashable:
    return origin.host_clock, origin.name


def _has_arrow(launch: PlacedLaunch) -> bool:
    return launch.call is not None and launch.timeline.ctas.size > 0


def _launch_name(placed: PlacedLaunch) -> str:
    launch = placed.timeline.launch
    replay = " (last replay of a CUDA graph)" if launch.graph else ""
    name = f"{launch.kernel.name} launch {launch.index}{replay}, grid {'x'.join(map(str, launch.grid))}"
    return f"{placed.place_name}: {name}" if placed.place_name else f"{name}, device {launch.device}"


def _counters(placed: PlacedLaunch, pid: int, _first_tid: int) -> Iterator[Part]:
    return active_ctas(placed.timeline.ctas, pid, placed.clock)

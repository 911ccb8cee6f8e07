"""Which buffer each launch writes to, where the launches that are kept are known by their number.

A launch that is kept has a buffer of its own. What is not wanted goes to a scratch buffer that nobody reads.

Nothing here takes a lock. Ctrl-C, or what a signal handler raises, may end a launch at any line, and a handler may
launch in the midst of another launch: whatever they leave behind, the next launch finds its place, and at its end the
process says how many launches were interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from kprof_inject.capture.schema import KernelRecord, LaunchRecord
from kprof_inject.runtime.devices.device import Buffer, Device, Event
from kprof_inject.runtime.launch.arguments import ArgumentKinds, Numbers
from kprof_inject.runtime.launch.launch_choice import LaunchFilter


class AtomicCounts:
    """Counts by name what any thread and any signal handler does, where ``+= 1`` would lose some.

    Takes no lock: an exception in the midst of counting, or a fork, leaves nothing held."""

    def __init__(self) -> None:
        self._counters: dict[str, count[int]] = {}

    def add(self, name: str) -> int:
        """Count one more; returns how many there were before it."""
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters.setdefault(name, count())
        return next(counter)

    def add_many(self, name: str, number: int) -> None:
        for _ in range(number):
            self.add(name)

    def counts(self) -> dict[str, int]:
        """How many there are so far."""
        # A counter tells its next number, and does not take it, by its text alone: ``count(3)``.
        return {name: int(repr(counter)[len("count(") : -1]) for name, counter in self._counters.copy().items()}


Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class RecordingBuild:
    """One build of a kernel with records, once it is loaded: how to launch it, and what a capture says of it.

    It does not hold Triton's kernel: a launch that waits to be saved holds this, and would keep code on the device that
    the program has dropped. ``KernelRecord`` alone would not do: it has neither what a launch needs nor the texts."""

    variant: str
    """Names this build in the capture."""
    variant_of_program: str
    """What the program compiled: builds for large grids differ in the size of their rings alone, and launches are
    counted and chosen for all of them together."""
    launch: Callable[..., Any]
    """The launcher that Triton made, which takes ``function`` and ``packed_metadata`` of the same kernel."""
    function: Any
    packed_metadata: Any
    cta_bytes: int
    """The buffer's size for each CTA."""
    overlaps: bool
    """True if a launch may begin before the one before it ended (programmatic dependent launch)."""
    ttgir: str
    sources: dict[str, str]
    record: KernelRecord
    signature: dict[str, str]
    """The types of its arguments, by their names."""
    argument_kinds: ArgumentKinds
    """The same, to read those of a launch by."""


@dataclass(slots=True)  # not frozen: it is made in the launch path, and takes three times as long to make then
class LaunchInfo:
    """One launch. ``index`` counts the launches of the variant in this process; ``host_ns`` is when it was made, and
    ``host_end_ns`` when that had been done (0: not yet)."""

    build: RecordingBuild
    index: int
    grid: Grid
    device: int
    stream: int
    host_ns: int
    graph: bool
    arguments: Numbers = ()
    """``ArgumentKinds`` has what each is. Of a launch that nobody reads, there are none."""
    host_end_ns: int = 0
    is_taken: bool = False
    """True once the thread that writes has it."""

    @property
    def size_bytes(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2] * self.build.cta_bytes

    def record(self) -> LaunchRecord:
        """What a capture says of it; the writer adds what it knows of the buffer: its file and its checksum."""
        return LaunchRecord(
            variant=self.build.variant,
            index=self.index,
            grid=self.grid,
            device=self.device,
            stream=self.stream,
            host_ns=self.host_ns,
            host_end_ns=self.host_end_ns,
            buffer_bytes=self.size_bytes,
            file="",
            graph=self.graph,
            arguments=self.arguments,
        )


@dataclass(frozen=True, slots=True)
class FullBuffer:
    """A launch and the buffer that holds its records once ``done`` has happened."""

    launch: LaunchInfo
    buffer: Buffer
    done: Event


Save = Callable[[FullBuffer], None]


class Destination(Protocol):
    """Where one launch writes. ``launched`` or ``failed`` is called once, right after the launch; neither if an
    exception that is no failure of the launch comes between."""

    @property
    def buffer(self) -> Buffer: ...

    def launched(self) -> None: ...

    def failed(self) -> None: ...


class LaunchBuffers(Protocol):
    """Gives each launch its destination."""

    def destination_for(self, launch: LaunchInfo) -> Destination:
        """Raises ``NoDeviceMemory``; then nothing has changed."""

    def save_rest(self) -> None:
        """Save what is still in the buffers. Called once, when the devices have ended their work."""

    def unsaved(self) -> int:
        """How many launches that are to be kept are still in the buffers alone."""

    def newest(self) -> dict[str, int]:
        """The number of the last launch that was made and kept, of each variant of the program."""


@dataclass(slots=True)
class Scratch:
    """One buffer a device for launches that nobody reads: they may overwrite each other."""

    device: Device
    _buffers: dict[int, list[tuple[int, Buffer]]] = field(default_factory=dict)

    def destination_for(self, launch: LaunchInfo) -> Destination:
        # Smaller ones stay: a kernel in flight, or in a graph, may still write to them.
        buffers = self._buffers.setdefault(launch.device, [])
        if not buffers or buffers[-1][0] < launch.size_bytes:
            size = max(launch.size_bytes, 2 * buffers[-1][0] if buffers else 0)
            made = (size, self.device.zeros_outside_graphs(size))
            buffers.append(made)
            return _Unread(made[1])  # another thread may have made a smaller one meanwhile
        return _Unread(buffers[-1][1])


@dataclass(frozen=True, slots=True)
class _Unread:
    buffer: Buffer

    def launched(self) -> None:
        pass

    def failed(self) -> None:
        pass


class OwnBuffers:
    """A buffer for each launch alone, saved right behind it.

    ``newest`` is the number of the last launch that was made, of each variant of the program."""

    def __init__(self, device: Device, save: Save) -> None:
        self._device = device
        self._save = save
        self._open: dict[_Own, None] = {}
        self.newest: dict[str, int] = {}

    def destination_for(self, launch: LaunchInfo) -> Destination:
        """Raises ``NoDeviceMemory``."""
        own = _Own(launch, self._device.zeros(launch.size_bytes, launch.stream), self)
        self._open[own] = None
        return own

    def save_rest(self) -> None:
        """Those that an exception kept from being saved when they had been made."""
        for own in list(self._open):
            if own.launch.host_end_ns and not own.launch.is_taken:
                self.hand_over(own)

    def unsaved(self) -> int:
        return sum(own.launch.host_end_ns and not own.launch.is_taken for own in list(self._open))

    def hand_over(self, own: _Own) -> None:
        launch = own.launch
        self._save(FullBuffer(launch, own.buffer, self._device.mark(launch.stream)))
        variant = launch.build.variant_of_program
        if launch.index > self.newest.get(variant, -1):
            self.newest[variant] = launch.index

    def close(self, own: _Own) -> None:
        self._open.pop(own, None)


@dataclass(slots=True, eq=False)
class _Own:
    launch: LaunchInfo
    buffer: Buffer
    buffers: OwnBuffers

    def launched(self) -> None:
        self.launch.host_end_ns = time.time_ns()
        self.buffers.hand_over(self)
        self.buffers.close(self)

    def failed(self) -> None:
        self.buffers.close(self)


class ChosenLaunches:
    """Keeps the launches whose number the filter wants, at most ``max_launches`` of them (0: no limit)."""

    def __init__(
        self,
        device: Device,
        launch_filter: LaunchFilter,
        max_launches: int,
        max_graph_bytes: int,
        save: Save,
        left_out: AtomicCounts,
    ) -> None:
        self._device = device
        self._filter = launch_filter
        self._max_launches = max_launches
        self._room_in_graphs = max_graph_bytes
        self._save = save
        self._left_out = left_out
        self._scratch = Scratch(device)
        self._own = OwnBuffers(device, save)
        self._kept: dict[tuple[str, int], None] = {}
        self._in_graphs: list[_InGraph] = []

    def destination_for(self, launch: LaunchInfo) -> Destination:
        if not self._filter.keeps(launch.index):
            return self._scratch.destination_for(launch)
        if self._max_launches and len(self._kept) >= self._max_launches:
            return self._not_kept(launch, f"more than --max-launches {self._max_launches}")
        size_bytes = launch.size_bytes
        if launch.graph and size_bytes > self._room_in_graphs - sum(one.launch.size_bytes for one in self._in_graphs):
            return self._not_kept(launch, "the buffers of CUDA graphs reached the size limit")
        if launch.graph:
            in_graph = _InGraph(launch, self._device.zeros_outside_graphs(size_bytes))
            # From here on, and whatever becomes of the launch: a graph may have the buffer's address.
            self._in_graphs.append(in_graph)
            destination: Destination = in_graph
        else:
            destination = self._own.destination_for(launch)
        if self._max_launches:
            self._kept[launch.build.variant_of_program, launch.index] = None
        return destination

    def _not_kept(self, launch: LaunchInfo, reason: str) -> Destination:
        self._left_out.add(reason)
        return self._scratch.destination_for(launch)

    def save_rest(self) -> None:
        self._own.save_rest()
        for in_graph in self._in_graphs:
            if not in_graph.has_failed:
                with self._device.selected(in_graph.launch.device):
                    self._save(FullBuffer(in_graph.launch, in_graph.buffer, self._device.mark(in_graph.launch.stream)))

    def newest(self) -> dict[str, int]:
        return self._own.newest.copy()

    def unsaved(self) -> int:
        return self._own.unsaved() + sum(not in_graph.has_failed for in_graph in self._in_graphs)


@dataclass(slots=True)
class _InGraph:
    """Each replay writes to the same buffer, so the last one's records are there at the end."""

    launch: LaunchInfo
    buffer: Buffer
    has_failed: bool = False

    def launched(self) -> None:
        self.launch.host_end_ns = time.time_ns()

    def failed(self) -> None:
        self.has_failed = True

"""Which buffer each launch writes to, where the launches that are kept are known by their number.

A launch that is kept has a buffer of its own. What is not wanted goes to a scratch buffer that nobody reads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kprof_inject.runtime.devices.device import Buffer, Device, Event
from kprof_inject.runtime.launching.launches import LaunchFilter

Grid = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class CapturedKernel:
    """One kernel with records, as the capture describes it. ``cta_bytes`` is the buffer's size for each CTA.

    ``variant`` names this build, and ``variant_of_program`` what the program compiled: builds for large grids differ in
    the size of their rings alone, and launches are counted and chosen for all of them together."""

    variant: str
    variant_of_program: str
    cta_bytes: int
    overlaps: bool
    """True if a launch may begin before the one before it ended (programmatic dependent launch)."""
    ttgir: str
    sources: dict[str, str]
    description: dict[str, Any]


@dataclass(slots=True)  # not frozen: it is made in the launch path, and takes three times as long to make then
class LaunchInfo:
    """One launch. ``index`` counts the launches of the variant in this process; ``host_ns`` is when it was made, and
    ``host_end_ns`` when that had been done."""

    kernel: CapturedKernel
    index: int
    grid: Grid
    device: int
    stream: int
    host_ns: int
    graph: bool
    host_end_ns: int = 0

    @property
    def size_bytes(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2] * self.kernel.cta_bytes

    def to_json(self) -> dict[str, Any]:
        line = {
            "variant": self.kernel.variant,
            "index": self.index,
            "grid": list(self.grid),
            "device": self.device,
            "stream": self.stream,
            "host_ns": self.host_ns,
            "host_end_ns": self.host_end_ns,
            "buffer_bytes": self.size_bytes,
        }
        return {**line, "graph": True} if self.graph else line


@dataclass(frozen=True, slots=True)
class FullBuffer:
    """A launch and the buffer that holds its records once ``done`` has happened."""

    launch: LaunchInfo
    buffer: Buffer
    done: Event


Save = Callable[[FullBuffer], None]


class Place(Protocol):
    """Where one launch writes. ``launched`` or ``failed`` is called once, right after the launch."""

    @property
    def buffer(self) -> Buffer: ...

    def launched(self) -> None: ...

    def failed(self) -> None: ...


class LaunchBuffers(Protocol):
    """Gives each launch its place."""

    def place_for(self, launch: LaunchInfo) -> Place:
        """Raises ``NoDeviceMemory``; then nothing has changed."""

    def save_rest(self) -> None:
        """Save what is still in the buffers. Called once, when the devices have ended their work."""

    def unsaved(self) -> int:
        """How many launches that are to be kept are still in the buffers alone."""


@dataclass(slots=True)
class Scratch:
    """One buffer a device for launches that nobody reads: they may overwrite each other."""

    device: Device
    _buffers: dict[int, list[tuple[int, Buffer]]] = field(default_factory=dict)

    def place_for(self, launch: LaunchInfo) -> Place:
        # Smaller ones stay: a kernel in flight, or in a graph, may still write to them.
        buffers = self._buffers.setdefault(launch.device, [])
        if not buffers or buffers[-1][0] < launch.size_bytes:
            size = max(launch.size_bytes, 2 * buffers[-1][0] if buffers else 0)
            buffers.append((size, self.device.zeros_outside_graphs(size)))
        return _Unread(buffers[-1][1])


@dataclass(frozen=True, slots=True)
class _Unread:
    buffer: Buffer

    def launched(self) -> None:
        pass

    def failed(self) -> None:
        pass


class ChosenLaunches:
    """Keeps the launches whose number the filter wants, at most ``max_launches`` of them (0: no limit)."""

    def __init__(
        self,
        device: Device,
        launch_filter: LaunchFilter,
        max_launches: int,
        max_graph_bytes: int,
        save: Save,
        left_out: Counter[str],
    ) -> None:
        self._device = device
        self._filter = launch_filter
        self._max_launches = max_launches
        self._room_in_graphs = max_graph_bytes
        self._save = save
        self._left_out = left_out
        self._scratch = Scratch(device)
        self._kept = 0
        self._in_graphs: list[tuple[LaunchInfo, Buffer]] = []

    def place_for(self, launch: LaunchInfo) -> Place:
        if not self._filter.keeps(launch.index):
            return self._scratch.place_for(launch)
        if self._max_launches and self._kept >= self._max_launches:
            self._left_out[f"more than --max-launches {self._max_launches}"] += 1
            return self._scratch.place_for(launch)
        if launch.graph and launch.size_bytes > self._room_in_graphs:
            self._left_out["the buffers of CUDA graphs reached the size limit"] += 1
            return self._scratch.place_for(launch)
        if launch.graph:
            buffer = self._device.zeros_outside_graphs(launch.size_bytes)
            self._room_in_graphs -= launch.size_bytes
            place: Place = _InGraph(launch, buffer, self._in_graphs)
        else:
            place = own_place(launch, self._device, self._save)
        self._kept += 1
        return place

    def save_rest(self) -> None:
        for launch, buffer in self._in_graphs:
            with self._device.selected(launch.device):
                self._save(FullBuffer(launch, buffer, self._device.mark(launch.stream)))

    def unsaved(self) -> int:
        return len(self._in_graphs)


def own_place(launch: LaunchInfo, device: Device, save: Save) -> Place:
    """A buffer for one launch alone, saved right behind it. Raises ``NoDeviceMemory``."""
    return _Own(launch, device.zeros(launch.size_bytes, launch.stream), device, save)


@dataclass(frozen=True, slots=True)
class _Own:
    launch: LaunchInfo
    buffer: Buffer
    device: Device
    save: Save

    def launched(self) -> None:
        self.launch.host_end_ns = time.time_ns()
        self.save(FullBuffer(self.launch, self.buffer, self.device.mark(self.launch.stream)))

    def failed(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _InGraph:
    """Each replay writes to the same buffer, so the last one's records are there at the end."""

    launch: LaunchInfo
    buffer: Buffer
    kept: list[tuple[LaunchInfo, Buffer]]

    def launched(self) -> None:
        self.launch.host_end_ns = time.time_ns()
        self.kept.append((self.launch, self.buffer))

    def failed(self) -> None:
        pass

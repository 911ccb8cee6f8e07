"""Buffers of launches that are chosen by number.

A chosen launch has a buffer of its own. All others write to a scratch buffer, which is never read.

Nothing here takes a lock. Ctrl-C, or an exception of a signal handler, may end a launch at any line, and a handler may
launch in the middle of another launch. In whatever state they leave this, the next launch gets its buffer, and the
process reports at its end how many launches were interrupted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from kprof_inject.runtime.devices.device import Buffer, Device
from kprof_inject.runtime.launch.launch_choice import LaunchFilter
from kprof_inject.runtime.launch.lock_free import AtomicCounts
from kprof_inject.runtime.launch.recorded_launch import BufferOwner, RecordedLaunch, Save


@dataclass(slots=True)
class ScratchBuffers:
    """A buffer for each device, which launches that are not read share and overwrite."""

    device: Device
    _buffers: dict[int, list[tuple[int, Buffer]]] = field(default_factory=dict)

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer. Raises ``NoDeviceMemory``."""
        # Smaller buffers are kept: a kernel in flight, or in a graph, may still write to them.
        buffers = self._buffers.setdefault(launch.device, [])
        if not buffers or buffers[-1][0] < launch.size_bytes:
            size = max(launch.size_bytes, 2 * buffers[-1][0] if buffers else 0)
            made = (size, self.device.zeros_outside_graphs(size))
            buffers.append(made)
            launch.memory_bytes, launch.memory = made  # another thread may have made a smaller one meanwhile
        else:
            launch.memory_bytes, launch.memory = buffers[-1]


class OwnBuffers(BufferOwner):
    """A buffer for each launch, saved right after it.

    ``newest`` has the number of the last launch made, for each variant of the program.
    """

    def __init__(self, device: Device, save: Save) -> None:
        """Allocate buffers of ``device``, and pass launches that were made to ``save``."""
        self._device = device
        self._save = save
        self._open: dict[RecordedLaunch, None] = {}
        self.newest: dict[str, int] = {}

    def lend(self, launch: RecordedLaunch) -> None:
        """Make a buffer for a launch. Raises ``NoDeviceMemory``."""
        launch.memory = self._device.zeros(launch.size_bytes, launch.stream)
        launch.memory_bytes = launch.size_bytes
        launch.owner = self
        self._open[launch] = None

    def launched(self, launch: RecordedLaunch) -> None:
        """Save the launch."""
        launch.host_end_ns = time.time_ns()
        self._hand_over(launch)
        self._open.pop(launch, None)

    def failed(self, launch: RecordedLaunch) -> None:
        """Free the buffer."""
        self._open.pop(launch, None)

    def save_rest(self) -> None:
        """Save the launches that were made, but that an exception kept from being saved."""
        for launch in list(self._open):
            if launch.host_end_ns and not launch.is_taken:
                self._hand_over(launch)

    def unsaved(self) -> int:
        """Return the number of launches that ``save_rest`` would save."""
        return sum(launch.host_end_ns > 0 and not launch.is_taken for launch in list(self._open))

    def _hand_over(self, launch: RecordedLaunch) -> None:
        hand_over(launch, self._device, self._save)
        variant = launch.build.variant_of_program
        if launch.index > self.newest.get(variant, -1):
            self.newest[variant] = launch.index


def hand_over(launch: RecordedLaunch, device: Device, save: Save) -> None:
    """Have a launch saved when the work queued on its stream so far has ended."""
    launch.is_handed_over = True
    launch.done = device.mark(launch.stream)
    save(launch)


class _GraphLaunches(BufferOwner):
    """Launches in CUDA graphs, each with a buffer of its own.

    All replays of a launch write to its buffer, which at the end holds the records of the last one.
    """

    def __init__(self, device: Device, save: Save, max_bytes: int) -> None:
        self._device = device
        self._save = save
        self._max_bytes = max_bytes
        self._launches: list[RecordedLaunch] = []
        self._failed: set[RecordedLaunch] = set()

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a buffer of this size is within the limit."""
        return size_bytes <= self._max_bytes - sum(launch.memory_bytes for launch in self._launches)

    def lend(self, launch: RecordedLaunch) -> None:
        """Make a buffer for a launch. Raises ``NoDeviceMemory``."""
        launch.memory = self._device.zeros_outside_graphs(launch.size_bytes)
        launch.memory_bytes = launch.size_bytes
        launch.owner = self
        # Even if the launch fails from here on, a graph may have the buffer's address.
        self._launches.append(launch)

    def launched(self, launch: RecordedLaunch) -> None:
        launch.host_end_ns = time.time_ns()

    def failed(self, launch: RecordedLaunch) -> None:
        self._failed.add(launch)

    def save_rest(self) -> None:
        """Save all launches of graphs."""
        for launch in self._launches:
            if launch not in self._failed:
                with self._device.selected(launch.device):
                    hand_over(launch, self._device, self._save)

    def unsaved(self) -> int:
        """Return the number of launches that ``save_rest`` would save."""
        return sum(launch not in self._failed for launch in self._launches)


class ChosenLaunches:
    """Buffers for the launches that a filter chooses by number, at most ``max_launches`` (0: no limit)."""

    def __init__(
        self,
        device: Device,
        launch_filter: LaunchFilter,
        max_launches: int,
        max_graph_bytes: int,
        save: Save,
        left_out: AtomicCounts,
    ) -> None:
        """Pass launches to keep to ``save``, and count the others by reason in ``left_out``."""
        self._filter = launch_filter
        self._max_launches = max_launches
        self._left_out = left_out
        self._scratch = ScratchBuffers(device)
        self._own = OwnBuffers(device, save)
        self._in_graphs = _GraphLaunches(device, save, max_graph_bytes)
        self._kept: set[tuple[str, int]] = set()

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer and owner. Raises ``NoDeviceMemory``."""
        if not self._filter.keeps(launch.index):
            self._scratch.lend(launch)
        elif self._max_launches and len(self._kept) >= self._max_launches:
            self._leave_out(launch, f"more than --max-launches {self._max_launches}")
        elif launch.graph and not self._in_graphs.has_room(launch.size_bytes):
            self._leave_out(launch, "the buffers of CUDA graphs reached the size limit")
        else:
            (self._in_graphs if launch.graph else self._own).lend(launch)
            if self._max_launches:
                self._kept.add((launch.build.variant_of_program, launch.index))

    def _leave_out(self, launch: RecordedLaunch, reason: str) -> None:
        self._left_out.add(reason)
        self._scratch.lend(launch)

    def save_rest(self) -> None:
        """Save the launches that are still in the buffers."""
        self._own.save_rest()
        self._in_graphs.save_rest()

    def newest(self) -> dict[str, int]:
        """Return the number of the last launch made and kept, for each variant of the program."""
        return self._own.newest.copy()

    def unsaved(self) -> int:
        """Return the number of launches to keep that are not saved yet."""
        return self._own.unsaved() + self._in_graphs.unsaved()

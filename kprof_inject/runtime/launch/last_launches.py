"""``--launches last``: a few buffers for each kernel and stream, which its launches write to in turn.

What the last launch wrote stays where it is while the next one is made. Then its buffer is free again, so a launch
costs neither memory nor a copy. Nothing here takes a lock: a launch has its buffer to itself, whatever other threads or
signal handlers launch meanwhile, and one that an exception ends takes its buffer along and leaves the others.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from kprof_inject.runtime.devices.device import Buffer, Device, NoDeviceMemory
from kprof_inject.runtime.launch.launch_buffers import OwnBuffers, hand_over
from kprof_inject.runtime.launch.recorded_launch import BufferOwner, Grid, RecordedLaunch, Save

_SAVE_EVERY_NS = 1_000_000_000
"""How often a launch is saved though another may follow, for the case that the process is killed."""


class LastLaunches:
    """Keeps the last launch of each variant, in buffers of ``max_bytes`` together.

    It saves the first launch, and then one about once a second. In a CUDA graph, launches of different grids have
    buffers of their own: which of the graphs is replayed last is not known before the end.
    """

    def __init__(self, device: Device, save: Save, max_bytes: int) -> None:
        self._device = device
        self._save = save
        self._room = _Room(max_bytes, self._held_bytes)
        self._own = OwnBuffers(device, save)
        self._rotations: dict[tuple[str, int, int], _Rotation] = {}
        self._graph_buffers: dict[_GraphKey, _GraphBuffer] = {}

    def lend(self, launch: RecordedLaunch) -> None:
        """Set the buffer of a launch and its owner. Raises ``NoDeviceMemory``."""
        build = launch.build
        if launch.graph:
            self._graph_buffer(launch).lend(launch)
        elif build.overlaps:
            self._own.lend(launch)
        else:
            key = (build.variant, launch.device, launch.stream)
            rotation = self._rotations.get(key)
            if rotation is None:
                made = _Rotation(build.variant_of_program, self._device, self._save, self._room)
                rotation = self._rotations.setdefault(key, made)
            rotation.lend(launch)

    def _graph_buffer(self, launch: RecordedLaunch) -> _GraphBuffer:
        key = (launch.build.variant, launch.device, launch.stream, launch.grid)
        shared = self._graph_buffers.get(key)
        if shared is None:
            size_bytes = launch.size_bytes
            memory = self._room.take(size_bytes, lambda: self._device.zeros_outside_graphs(size_bytes))
            shared = self._graph_buffers.setdefault(key, _GraphBuffer(memory, size_bytes))
        return shared

    def _held_bytes(self) -> int:
        """Return the size of all buffers but those of launches that are being made.

        A launch that an exception cuts off takes its buffer along.
        """
        in_graphs = sum(shared.size_bytes for shared in list(self._graph_buffers.values()))
        return in_graphs + sum(rotation.held_bytes() for rotation in list(self._rotations.values()))

    def save_rest(self) -> None:
        """Save what is still in the buffers."""
        self._own.save_rest()
        for rotation in list(self._rotations.values()):
            rotation.save_rest()
        # After the others: the writer knows which of a graph and a launch was the last.
        for launch in self._last_in_graphs():
            with self._device.selected(launch.device):
                hand_over(launch, self._device, self._save)

    def newest(self) -> dict[str, int]:
        """Return the number of the last launch that was made and kept, of each variant of the program."""
        found = [(rotation.variant, rotation.newest()) for rotation in list(self._rotations.values())]
        found += self._own.newest.copy().items()
        found += [(launch.build.variant_of_program, launch.index) for launch in self._last_in_graphs()]
        return {variant: max(index for other, index in found if other == variant) for variant in dict(found)}

    def unsaved(self) -> int:
        """Return how many launches that are to be kept are still in the buffers alone."""
        in_rotations = sum(map(_Rotation.unsaved, list(self._rotations.values())))
        return self._own.unsaved() + in_rotations + len(list(self._last_in_graphs()))

    def _last_in_graphs(self) -> Iterator[RecordedLaunch]:
        for shared in list(self._graph_buffers.values()):
            if shared.last is not None:
                yield shared.last


_GraphKey = tuple[str, int, int, Grid]


class _Room:
    """Limits how many bytes all buffers take; ``held_bytes`` returns what they do take."""

    def __init__(self, max_bytes: int, held_bytes: Callable[[], int]) -> None:
        self._max_bytes = max_bytes
        self._held_bytes = held_bytes

    def take(self, size_bytes: int, make: Callable[[], Buffer]) -> Buffer:
        """Make a buffer. Raises ``NoDeviceMemory`` if there is no room here or on the device."""
        left_bytes = self._max_bytes - self._held_bytes()
        if size_bytes > left_bytes:
            raise NoDeviceMemory(f"all buffers together would exceed the limit by {size_bytes - left_bytes}")
        return make()


class _Rotation(BufferOwner):
    """The buffers of one kernel on one stream: those of the launches being made, that of the last one, and free ones.

    A launch that was made keeps its buffer here until a later launch takes it. ``variant`` is what the program
    compiled.
    """

    def __init__(self, variant: str, device: Device, save: Save, room: _Room) -> None:
        self.variant = variant
        self._device = device
        self._save = save
        self._room = room
        # Appending and popping are one step each: two launches never get one buffer.
        self._free: deque[RecordedLaunch] = deque()
        self._last: deque[RecordedLaunch] = deque()
        self._newest = -1
        self._saved_ns = 0
        self._has_room = True

    def lend(self, launch: RecordedLaunch) -> None:
        """Set the buffer of a launch and its owner. Raises ``NoDeviceMemory``."""
        launch.memory, launch.memory_bytes = _reused(self._free.pop, launch.size_bytes) or self._another(launch)
        launch.owner = self

    def launched(self, launch: RecordedLaunch) -> None:
        """Make it the last launch, and save it if that is due."""
        now_ns = launch.host_end_ns = time.time_ns()
        is_due = now_ns - self._saved_ns >= _SAVE_EVERY_NS and self._has_room
        if is_due:
            launch.is_handed_over = True  # before others can see it
            self._saved_ns = now_ns
        self._keep(launch)
        if launch.index > self._newest:
            self._newest = launch.index
        if is_due:
            hand_over(launch, self._device, self._save)

    def failed(self, launch: RecordedLaunch) -> None:
        """Free its buffer."""
        self._free.append(launch)

    def save_rest(self) -> None:
        """Save the last launch.

        What other threads launched at the same time may come with it, or what was saved: the writer keeps the newest.
        """
        for launch in list(self._last):
            launch.is_handed_over = True
            with self._device.selected(launch.device):
                hand_over(launch, self._device, self._save)

    def newest(self) -> int:
        """Return the number of the last launch that was made; -1: none yet."""
        return max(self._newest, *(launch.index for launch in self._last.copy()), -1)

    def held_bytes(self) -> int:
        """Return the size of the buffers that no launch is using."""
        return sum(launch.memory_bytes for launch in (*self._free.copy(), *self._last.copy()))

    def unsaved(self) -> int:
        """Return 1 if the last launch is still to be saved, else 0."""
        return int(any(not launch.is_handed_over for launch in list(self._last)))

    def _keep(self, launch: RecordedLaunch) -> None:
        """Make this the last launch unless there is a newer one; the other's buffer is free then."""
        while True:
            self._last.append(launch)
            if len(self._last) < 2:
                return
            try:
                other = self._last.popleft()
            except IndexError:  # other threads took them meanwhile, for want of room
                return
            if other is not launch and other.index < launch.index:
                if not other.is_handed_over:
                    self._free.append(other)
                return
            launch = other

    def _another(self, launch: RecordedLaunch) -> _SizedBuffer:
        """Make a buffer, or take that of the last launch where there is no room for one."""
        size_bytes = launch.size_bytes
        if not self._has_room and (reused := _reused(self._last.popleft, size_bytes)):
            return reused
        try:
            return self._new(launch)
        except NoDeviceMemory:
            self._has_room = False
            if reused := _reused(self._last.popleft, size_bytes, if_refused=self._save_early):
                return reused
        return self._new(launch)  # a buffer that was too small may have made room by now

    def _new(self, launch: RecordedLaunch) -> _SizedBuffer:
        size_bytes = launch.size_bytes
        return self._room.take(size_bytes, lambda: self._device.zeros(size_bytes, launch.stream)), size_bytes

    def _save_early(self, launch: RecordedLaunch) -> None:
        if not launch.is_handed_over:
            hand_over(launch, self._device, self._save)


_SizedBuffer = tuple[Buffer, int]


def _reused(
    take: Callable[[], RecordedLaunch], size_bytes: int, if_refused: Callable[[RecordedLaunch], None] | None = None
) -> _SizedBuffer | None:
    """Take the buffer of a former launch, if it is large enough and the copier does not read it."""
    try:
        former = take()
    except IndexError:
        return None
    if former.memory is not None and former.memory_bytes >= size_bytes and not former.is_handed_over:
        return former.memory, former.memory_bytes
    if if_refused is not None:
        if_refused(former)
    return None


class _GraphBuffer(BufferOwner):
    """The buffer of all launches of one grid in graphs, and the launch that was captured last."""

    def __init__(self, memory: Buffer, size_bytes: int) -> None:
        self._memory = memory
        self.size_bytes = size_bytes
        self.last: RecordedLaunch | None = None

    def lend(self, launch: RecordedLaunch) -> None:
        launch.memory, launch.memory_bytes = self._memory, self.size_bytes
        launch.owner = self

    def launched(self, launch: RecordedLaunch) -> None:
        launch.host_end_ns = time.time_ns()
        self.last = launch

"""Buffers of a capture's launches: those chosen by number, or the last of each kernel and stream.

A launch chosen by number has a buffer of its own. Launches that are not kept write to a scratch buffer, which is never
read.

For ``--launches last``, each kernel and stream has a few buffers, which the launches use in turn. The records of the
last launch stay in its buffer until the next launch is made; then that buffer is free again. So a launch costs neither
memory nor a copy.

Nothing here takes a lock: each launch has a buffer to itself, whatever other threads or signal handlers launch
meanwhile. Ctrl-C, or an exception of a signal handler, may end a launch at any line, and a handler may launch in the
middle of another launch. In whatever state they leave this, the next launch gets its buffer, and a launch that an
exception ends loses only its own.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.devices.device import Buffer, Device
from kprof_inject.runtime.launch.recorded_launch import BufferOwner, RecordedLaunch, Save


@dataclass(slots=True)
class ScratchBuffers:
    """A buffer for each device, which launches that are not read share and overwrite."""

    device: Device
    _buffers: dict[int, list[tuple[int, Buffer]]] = field(default_factory=dict)

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer. Raises ``NoDeviceMemory``."""
        # Smaller buffers are kept: a kernel in flight, or in a graph, may still write to them.
        buffers = self._buffers.setdefault(launch.record.device, [])
        if not buffers or buffers[-1][0] < launch.record.buffer_bytes:
            size = max(launch.record.buffer_bytes, 2 * buffers[-1][0] if buffers else 0)
            made = (size, self.device.zeros_outside_graphs(size))
            buffers.append(made)
            launch.memory_bytes, launch.memory = made  # another thread may have made a smaller one meanwhile
        else:
            launch.memory_bytes, launch.memory = buffers[-1]


@dataclass(slots=True, eq=False)
class _OwnBuffers(BufferOwner):
    """A buffer for each launch, saved right after it."""

    device: Device
    save: Save

    def lend(self, launch: RecordedLaunch) -> None:
        launch.memory = self.device.zeros(launch.record.buffer_bytes, launch.record.stream)
        launch.memory_bytes = launch.record.buffer_bytes
        launch.owner = self

    def launched(self, launch: RecordedLaunch) -> None:
        launch.host_end_ns = time.time_ns()
        _hand_over(launch, self.device, self.save)


def _hand_over(launch: RecordedLaunch, device: Device, save: Save) -> None:
    """Have a launch saved when the work queued on its stream so far has ended."""
    launch.is_handed_over = True
    launch.done = device.mark(launch.record.stream)
    save(launch)


@dataclass(slots=True, eq=False)
class _GraphLaunches(BufferOwner):
    """Launches in CUDA graphs, each with a buffer of its own.

    All replays of a launch write to its buffer, which at the end holds the records of the last one.
    """

    device: Device
    save: Save
    max_bytes: int
    _launches: list[RecordedLaunch] = field(default_factory=list)
    _failed: set[RecordedLaunch] = field(default_factory=set)

    def has_room(self, size_bytes: int) -> bool:
        return size_bytes <= self.max_bytes - sum(launch.memory_bytes for launch in self._launches)

    def lend(self, launch: RecordedLaunch) -> None:
        launch.memory = self.device.zeros_outside_graphs(launch.record.buffer_bytes)
        launch.memory_bytes = launch.record.buffer_bytes
        launch.owner = self
        # Even if the launch fails from here on, a graph may have the buffer's address.
        self._launches.append(launch)

    def launched(self, launch: RecordedLaunch) -> None:
        launch.host_end_ns = time.time_ns()

    def failed(self, launch: RecordedLaunch) -> None:
        self._failed.add(launch)

    def save_rest(self) -> None:
        for launch in self._launches:
            if launch not in self._failed:
                with self.device.selected(launch.record.device):
                    _hand_over(launch, self.device, self.save)

    def unsaved(self) -> int:
        return sum(launch not in self._failed for launch in self._launches)


class ChosenLaunches:
    """Buffers for the launches that the user chose by number, at most ``max_launches`` (0: no limit)."""

    def __init__(
        self,
        device: Device,
        scratch: ScratchBuffers,
        max_launches: int,
        max_graph_bytes: int,
        save: Save,
        left_out: Counter[str],
    ) -> None:
        """Pass launches to keep to ``save``, and count the others by reason in ``left_out``."""
        self._max_launches = max_launches
        self._left_out = left_out
        self._scratch = scratch
        self._own = _OwnBuffers(device, save)
        self._in_graphs = _GraphLaunches(device, save, max_graph_bytes)
        self._kept: set[tuple[str, int]] = set()

    def reuse(self, build: RecordingBuild, grid: Grid, device: int, stream: int) -> None:
        """Return None: each launch has a buffer of its own, or one that it shares."""
        return None

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer and owner. Raises ``NoDeviceMemory``."""
        if self._max_launches and len(self._kept) >= self._max_launches:
            self._leave_out(launch, f"more than --max-launches {self._max_launches}")
        elif launch.record.graph and not self._in_graphs.has_room(launch.record.buffer_bytes):
            self._leave_out(launch, "the buffers of CUDA graphs reached the size limit")
        else:
            (self._in_graphs if launch.record.graph else self._own).lend(launch)
            if self._max_launches:
                self._kept.add((launch.build.variant_of_program, launch.record.index))

    def _leave_out(self, launch: RecordedLaunch, reason: str) -> None:
        self._left_out[reason] += 1
        self._scratch.lend(launch)

    def save_rest(self) -> None:
        """Save the launches that are still in the buffers."""
        self._in_graphs.save_rest()

    def unsaved(self) -> int:
        """Return the number of launches in the buffers that are not saved yet."""
        return self._in_graphs.unsaved()


_SAVE_EVERY_NS = 1_000_000_000
"""Interval at which a launch is saved although another may follow: the process may be killed."""


class LastLaunches:
    """The last launch of each variant, in buffers of at most ``max_bytes`` in total.

    The first launch is saved, then one about every second. In CUDA graphs, each grid has a buffer of its own, because
    only the end shows which graph was replayed last.
    """

    def __init__(self, device: Device, save: Save, max_bytes: int) -> None:
        """Allocate buffers of ``device`` when launches need them, and pass those to save to ``save``."""
        self._device = device
        self._save = save
        self._max_bytes = max_bytes
        self._own = _OwnBuffers(device, save)
        self._rotations: dict[tuple[str, int, int], _Rotation] = {}
        self._graph_buffers: dict[_GraphKey, _GraphBuffer] = {}

    def reuse(self, build: RecordingBuild, grid: Grid, device: int, stream: int) -> RecordedLaunch | None:
        """Return a launch that the next one on a stream may replace, with its buffer; None if there is none."""
        rotation = self._rotations.get((build.variant, device, stream))
        return rotation.reuse(build, grid) if rotation is not None else None

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer and owner. Raises ``NoDeviceMemory``."""
        build = launch.build
        if launch.record.graph:
            self._graph_buffer(launch).lend(launch)
        elif build.overlaps:
            self._own.lend(launch)
        else:
            key = (build.variant, launch.record.device, launch.record.stream)
            rotation = self._rotations.get(key)
            if rotation is None:
                new = _Rotation(self._device, self._save, self._require_room)
                rotation = self._rotations.setdefault(key, new)
            rotation.lend(launch)

    def _graph_buffer(self, launch: RecordedLaunch) -> _GraphBuffer:
        key = (launch.build.variant, launch.record.device, launch.record.stream, launch.record.grid)
        shared = self._graph_buffers.get(key)
        if shared is None:
            size_bytes = launch.record.buffer_bytes
            self._require_room(size_bytes)
            made = _GraphBuffer(self._device.zeros_outside_graphs(size_bytes), size_bytes)
            shared = self._graph_buffers.setdefault(key, made)
        return shared

    def _require_room(self, size_bytes: int) -> None:
        """Raise ``NoDeviceMemory`` if another buffer exceeds the limit."""
        # Without the buffers of launches being made: a launch that an exception ends loses its buffer.
        in_graphs = sum(shared.size_bytes for shared in list(self._graph_buffers.values()))
        held_bytes = in_graphs + sum(rotation.held_bytes() for rotation in list(self._rotations.values()))
        left_bytes = self._max_bytes - held_bytes
        if size_bytes > left_bytes:
            raise NoDeviceMemory(f"all buffers together would exceed the limit by {size_bytes - left_bytes}")

    def save_rest(self) -> None:
        """Save the launches that are still in the buffers."""
        for rotation in list(self._rotations.values()):
            rotation.save_rest()
        # Graphs come last: the writer compares their start times with those of the launches it has.
        for launch in self._last_in_graphs():
            with self._device.selected(launch.record.device):
                _hand_over(launch, self._device, self._save)

    def unsaved(self) -> int:
        """Return the number of launches in the buffers that are not saved yet."""
        in_rotations = sum(map(_Rotation.unsaved, list(self._rotations.values())))
        return in_rotations + len(list(self._last_in_graphs()))

    def _last_in_graphs(self) -> Iterator[RecordedLaunch]:
        for shared in list(self._graph_buffers.values()):
            if shared.last is not None:
                yield shared.last


_GraphKey = tuple[str, int, int, Grid]
_SizedBuffer = tuple[Buffer, int]


@dataclass(slots=True, eq=False)
class _Rotation(BufferOwner):
    """Buffers of one kernel on one stream: in use by launches being made, of the last launch, and free.

    A launch that was made keeps its buffer until a later launch takes it.
    """

    device: Device
    save: Save
    require_room: Callable[[int], None]
    # Appending and popping are one step each: two launches never get the same buffer.
    _free: deque[RecordedLaunch] = field(default_factory=deque)
    _last: deque[RecordedLaunch] = field(default_factory=deque)
    _saved_ns: int = 0
    _has_room: bool = True

    def reuse(self, build: RecordingBuild, grid: Grid) -> RecordedLaunch | None:
        """Take a launch whose buffer is free, of the same kind as the next one; return None if there is none."""
        try:
            former = self._free.pop()
        except IndexError:
            return None
        if former.build is build and former.record.grid == grid and not former.is_handed_over:
            return former
        self._free.append(former)
        return None

    def lend(self, launch: RecordedLaunch) -> None:
        launch.memory, launch.memory_bytes = self._reuse(self._free.pop, launch) or self._make_or_take(launch)
        launch.owner = self

    def launched(self, launch: RecordedLaunch) -> None:
        now_ns = launch.host_end_ns = time.time_ns()
        is_due = now_ns - self._saved_ns >= _SAVE_EVERY_NS and self._has_room
        if is_due:
            launch.is_handed_over = True  # before other threads can see the launch
            self._saved_ns = now_ns
        self._keep(launch)
        if is_due:
            _hand_over(launch, self.device, self.save)

    def failed(self, launch: RecordedLaunch) -> None:
        self._free.append(launch)

    def save_rest(self) -> None:
        # These may be launches that other threads made at the same time, or one that is saved already: the writer keeps
        # the newest.
        for launch in list(self._last):
            launch.is_handed_over = True
            with self.device.selected(launch.record.device):
                _hand_over(launch, self.device, self.save)

    def held_bytes(self) -> int:
        return sum(launch.memory_bytes for launch in (*self._free.copy(), *self._last.copy()))

    def unsaved(self) -> int:
        return int(any(not launch.is_handed_over for launch in list(self._last)))

    def _keep(self, launch: RecordedLaunch) -> None:
        """Make this the last launch unless there is a newer one, and free the older one's buffer."""
        while True:
            self._last.append(launch)
            if len(self._last) < 2:
                return
            try:
                other = self._last.popleft()
            except IndexError:  # other threads without room took them meanwhile
                return
            if other is not launch and other.record.index < launch.record.index:
                if not other.is_handed_over:
                    self._free.append(other)
                return
            launch = other

    def _make_or_take(self, launch: RecordedLaunch) -> _SizedBuffer:
        """Make a buffer, or take the last launch's if there is no room for another."""
        if not self._has_room and (reused := self._reuse(self._last.popleft, launch)):
            return reused
        try:
            return self._new(launch)
        except NoDeviceMemory:
            self._has_room = False
            if reused := self._reuse(self._last.popleft, launch, else_save=True):
                return reused
        return self._new(launch)  # dropping a buffer that was too small may have made room

    def _new(self, launch: RecordedLaunch) -> _SizedBuffer:
        size_bytes = launch.record.buffer_bytes
        self.require_room(size_bytes)
        return self.device.zeros(size_bytes, launch.record.stream), size_bytes

    def _reuse(
        self, take: Callable[[], RecordedLaunch], launch: RecordedLaunch, *, else_save: bool = False
    ) -> _SizedBuffer | None:
        """Take the buffer of an earlier launch if it is large enough and the copier does not read it."""
        try:
            former = take()
        except IndexError:
            return None
        if (
            former.memory is not None
            and former.memory_bytes >= launch.record.buffer_bytes
            and not former.is_handed_over
        ):
            if former.record.grid != launch.record.grid and (
                ends_bytes := launch.build.sample(launch.record.grid).ends_bytes
            ):
                self.device.clear(former.memory, ends_bytes, launch.record.stream)
            return former.memory, former.memory_bytes
        if else_save and not former.is_handed_over:
            _hand_over(former, self.device, self.save)
        return None


@dataclass(slots=True, eq=False)
class _GraphBuffer(BufferOwner):
    """Buffer that all launches of one grid in graphs share, and the launch captured last."""

    memory: Buffer
    size_bytes: int
    last: RecordedLaunch | None = None

    def lend(self, launch: RecordedLaunch) -> None:
        launch.memory, launch.memory_bytes = self.memory, self.size_bytes
        launch.owner = self

    def launched(self, launch: RecordedLaunch) -> None:
        launch.host_end_ns = time.time_ns()
        self.last = launch

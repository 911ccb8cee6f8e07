"""Launches with records and their buffers: those chosen by number, or the last of each kernel and stream.

A launch chosen by number has a buffer of its own. Launches that are not read share a scratch buffer.

For ``--launches last``, each kernel and stream has a few buffers, which its launches use in turn. The records of the
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
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from kprof_inject.capture.capture_files import LaunchRecord
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.devices.device import Buffer, Device, Event


# This is in the launch path: without slots and not frozen, it takes half of the time to create.
@dataclass(eq=False)
class RecordedLaunch:
    """Launch with records, and the buffer that it writes to.

    The copier's thread saves the ``record``, which outlives the buffer.
    """

    build: RecordingBuild
    is_kept: bool  # false for a launch that is not read
    record: LaunchRecord
    """The capture's record, without the file that the writer adds; without arguments for a launch that is not read."""
    host_end_ns: int = field(default=0, init=False)  # time at which the launch was made; 0 before
    memory: Buffer | None = field(default=None, init=False)  # the buffer; None before it is lent
    memory_bytes: int = field(default=0, init=False)  # size of the buffer, at least the record's
    done: Event | None = field(default=None, init=False)
    """Event after the launch in its stream; once it has happened, the records are in the buffer."""
    is_handed_over: bool = field(default=False, init=False)
    """True if the copier may read the buffer, so no other launch may write to it."""


Save = Callable[[RecordedLaunch], None]  # function that saves a launch whose ``done`` is set


@dataclass(eq=False)
class LaunchBuffers:
    """Buffers of a capture's launches. ``lend`` gives a launch its buffer; ``made`` follows a launch that is kept."""

    _device: Device
    _save: Save
    _scratch: dict[int, list[tuple[Buffer, int]]] = field(default_factory=dict, init=False)
    _graph_buffers: dict[Hashable, tuple[Buffer, int]] = field(default_factory=dict, init=False)
    """Buffers of launches in CUDA graphs. All replays of a launch write to its buffer; the last one's records
    stay. If a launch fails while it is captured, the graph may have the buffer's address nevertheless."""
    _in_graphs: dict[Hashable, RecordedLaunch] = field(default_factory=dict, init=False)

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer. Raises ``NoDeviceMemory``."""
        # Smaller buffers are kept: a kernel in flight, or in a graph, may still write to them.
        buffers = self._scratch.setdefault(launch.record.device, [])
        lent = buffers[-1] if buffers else None
        if lent is None or lent[1] < launch.record.buffer_bytes:
            size = max(launch.record.buffer_bytes, 2 * lent[1] if lent else 0)
            lent = self._device.zeros_outside_graphs(size), size
            buffers.append(lent)  # another thread may have made a smaller one meanwhile
        launch.memory, launch.memory_bytes = lent

    def made(self, launch: RecordedLaunch) -> None:
        """Note that a launch was made, and have it saved now or later."""
        launch.host_end_ns = time.time_ns()
        self._hand_over(launch)

    def _hand_over(self, launch: RecordedLaunch) -> None:
        launch.is_handed_over = True
        launch.done = self._device.mark(launch.record.stream)
        self._save(launch)

    def save_rest(self) -> None:
        """Save the launches that are still in the buffers."""
        # The last launches in graphs: the copier compares their start times with those of the launches it has written.
        for launch in list(self._in_graphs.values()):
            self._save_now(launch)

    def unsaved(self) -> int:
        """Return the number of launches in the buffers that are not saved yet."""
        return len(self._in_graphs)

    def _save_now(self, launch: RecordedLaunch) -> None:
        with self._device.selected(launch.record.device):
            self._hand_over(launch)

    def _lend_own(self, launch: RecordedLaunch) -> None:
        size_bytes = launch.record.buffer_bytes
        launch.memory, launch.memory_bytes = self._device.zeros(size_bytes, launch.record.stream), size_bytes

    def _lend_in_graph(self, launch: RecordedLaunch, key: Hashable) -> None:
        if key not in self._graph_buffers:
            made = self._device.zeros_outside_graphs(launch.record.buffer_bytes), launch.record.buffer_bytes
            self._graph_buffers.setdefault(key, made)
        launch.memory, launch.memory_bytes = self._graph_buffers[key]

    def _graph_bytes(self) -> int:
        return sum(size_bytes for _, size_bytes in list(self._graph_buffers.values()))


@dataclass(eq=False)
class ChosenLaunches(LaunchBuffers):
    """Buffers for the launches that the user chose by number, at most ``max_launches`` (0: no limit).

    The others are counted by reason in ``left_out``. Buffers of launches in graphs have at most ``max_graph_bytes``.
    """

    _max_launches: int
    _max_graph_bytes: int
    _left_out: Counter[str]
    _kept: int = 0

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer; it is not kept if a limit is reached. Raises ``NoDeviceMemory``."""
        record, reason = launch.record, ""
        if self._max_launches and self._kept >= self._max_launches:
            reason = f"more than --max-launches {self._max_launches}"
        elif record.graph and self._graph_bytes() + record.buffer_bytes > self._max_graph_bytes:
            reason = "the buffers of CUDA graphs reached the size limit"
        if launch.is_kept and reason:
            self._left_out[reason] += 1
            launch.is_kept = False
        if not launch.is_kept:
            super().lend(launch)
            return
        if record.graph:
            self._lend_in_graph(launch, _number_of(launch))
        else:
            self._lend_own(launch)
        self._kept += 1

    def made(self, launch: RecordedLaunch) -> None:
        """Have a launch saved; one in a graph, at the end."""
        if launch.record.graph:
            launch.host_end_ns = time.time_ns()
            self._in_graphs[_number_of(launch)] = launch
        else:
            super().made(launch)


def _number_of(launch: RecordedLaunch) -> Hashable:
    return launch.record.variant, launch.record.index


_SAVE_EVERY_NS = 1_000_000_000
"""Interval at which a launch is saved although another may follow: the process may be killed."""


@dataclass(slots=True, eq=False)
class _StreamBuffers:
    """Buffers of one kernel's launches on one stream: that of the last launch, and free ones."""

    # Appending and popping are one step each: two launches never get the same buffer.
    free: deque[RecordedLaunch] = field(default_factory=deque)  # former launches, whose buffers may be used again
    last: deque[RecordedLaunch] = field(default_factory=deque)
    """The last launch made; more for a moment, if several threads launch."""
    saved_ns: int = 0
    has_room: bool = True  # false once the device or the limit has refused another buffer

    def keep(self, launch: RecordedLaunch) -> None:
        self.last.append(launch)
        former = _popped(self.last.popleft) if len(self.last) > 1 else None
        if former is not None and not former.is_handed_over:
            self.free.append(former)


@dataclass(eq=False)
class LastLaunches(LaunchBuffers):
    """Buffers for the last launch of each variant, of at most ``max_bytes`` in total.

    The first launch is saved, then one about every second. In CUDA graphs, each grid has a buffer of its own, because
    only the end shows which graph was replayed last.
    """

    _max_bytes: int
    _streams: dict[Hashable, _StreamBuffers] = field(default_factory=dict, init=False)

    def lend(self, launch: RecordedLaunch) -> None:
        """Give a launch its buffer. Raises ``NoDeviceMemory``."""
        if not launch.is_kept:
            super().lend(launch)
        elif launch.record.graph:
            key = _graph_of(launch)
            if key not in self._graph_buffers:
                self._require_room(launch.record.buffer_bytes)
            self._lend_in_graph(launch, key)
        elif launch.build.overlaps:
            self._lend_own(launch)
        else:
            self._lend_in_turn(launch)

    def made(self, launch: RecordedLaunch) -> None:
        """Keep a launch as the last one of its kernel and stream, and have it saved if that is due."""
        now_ns = launch.host_end_ns = time.time_ns()
        if launch.record.graph:
            self._in_graphs[_graph_of(launch)] = launch
        elif launch.build.overlaps:
            self._hand_over(launch)
        else:
            buffers = self._streams[_stream_of(launch)]
            is_due = now_ns - buffers.saved_ns >= _SAVE_EVERY_NS and buffers.has_room
            if is_due:
                launch.is_handed_over = True  # before other threads can see the launch
                buffers.saved_ns = now_ns
            buffers.keep(launch)
            if is_due:
                self._hand_over(launch)

    def save_rest(self) -> None:
        """Save the launches that are still in the buffers."""
        # One may be saved already, or could not be: the copier ignores what it has written.
        for launch in self._last_on_streams():
            self._save_now(launch)
        super().save_rest()

    def unsaved(self) -> int:
        """Return the number of launches in the buffers that are not saved yet."""
        return super().unsaved() + sum(not launch.is_handed_over for launch in self._last_on_streams())

    def _last_on_streams(self) -> list[RecordedLaunch]:
        return [launch for buffers in list(self._streams.values()) for launch in list(buffers.last)]

    def _lend_in_turn(self, launch: RecordedLaunch) -> None:
        """Lend a free buffer, a new one, or that of the last launch if there is no room for another."""
        key = _stream_of(launch)
        buffers = self._streams.get(key) or self._streams.setdefault(key, _StreamBuffers())
        former = _popped(buffers.free.pop)
        if former is not None and former.memory_bytes < launch.record.buffer_bytes:
            former = None
        if former is None and not buffers.has_room:
            former = self._last_of(buffers, launch)
        if former is None:
            try:
                self._lend_new(launch)
                return
            except NoDeviceMemory:
                buffers.has_room = False
                former = self._last_of(buffers, launch)
            if former is None:
                self._lend_new(launch)  # dropping a buffer that was too small may have made room
                return
        if former.record.grid != launch.record.grid and former.memory is not None:
            ends_bytes = launch.build.sample(launch.record.grid).ends_bytes
            if ends_bytes:
                self._device.clear(former.memory, ends_bytes, launch.record.stream)
        launch.memory, launch.memory_bytes = former.memory, former.memory_bytes

    def _lend_new(self, launch: RecordedLaunch) -> None:
        self._require_room(launch.record.buffer_bytes)
        self._lend_own(launch)

    def _last_of(self, buffers: _StreamBuffers, launch: RecordedLaunch) -> RecordedLaunch | None:
        former = _popped(buffers.last.popleft)
        if former is None or former.is_handed_over:
            return None
        if former.memory_bytes >= launch.record.buffer_bytes:
            return former
        self._hand_over(former)
        return None

    def _require_room(self, size_bytes: int) -> None:
        # Without the buffers of launches being made: a launch that an exception ends loses its buffer.
        held = [one for buffers in list(self._streams.values()) for one in (*buffers.free.copy(), *buffers.last.copy())]
        left_bytes = self._max_bytes - self._graph_bytes() - sum(launch.memory_bytes for launch in held)
        if size_bytes > left_bytes:
            raise NoDeviceMemory(f"all buffers together would exceed the limit by {size_bytes - left_bytes}")


def _stream_of(launch: RecordedLaunch) -> Hashable:
    return launch.record.variant, launch.record.device, launch.record.stream


def _graph_of(launch: RecordedLaunch) -> tuple[Hashable, Grid]:
    return _stream_of(launch), launch.record.grid


def _popped(pop: Callable[[], RecordedLaunch]) -> RecordedLaunch | None:
    try:
        return pop()
    except IndexError:  # there is none, or another thread has taken it
        return None

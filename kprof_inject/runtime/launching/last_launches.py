"""``--launches last``: a buffer for each kernel and stream, which all its launches write to.

They run one after the other, so it holds the records of the last, and a launch costs neither memory nor a copy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kprof_inject.runtime.devices.device import Buffer, Device, NoDeviceMemory
from kprof_inject.runtime.launching.launch_buffers import FullBuffer, Grid, LaunchInfo, Place, Save, own_place

_SAVE_EVERY_NS = 1_000_000_000
"""How often the last launch so far is saved, for the case that the program is killed."""


class LastLaunches:
    """Keeps the last launch of each variant, in buffers of ``max_bytes`` together, and saves the last so far about once
    a second.

    In a CUDA graph, launches of different grids have buffers of their own: which of the graphs is replayed last is not
    known before the end."""

    def __init__(self, device: Device, save: Save, max_bytes: int) -> None:
        self._device = device
        self._save = save
        self._room = _Room(max_bytes)
        self._shared: dict[tuple[str, int, int, Grid | None], _SharedBuffer] = {}
        self._lock = threading.RLock()

    def place_for(self, launch: LaunchInfo) -> Place:
        if launch.kernel.overlaps and not launch.graph:
            return own_place(launch, self._device, self._save)
        key = (launch.kernel.variant, launch.device, launch.stream, launch.grid if launch.graph else None)
        shared = self._shared.get(key)
        if shared is None:
            with self._lock:
                shared = self._shared.setdefault(key, _SharedBuffer(self._device, self._save, self._room))
        shared.begin(launch)
        return shared

    def save_rest(self) -> None:
        rest = [full for shared in list(self._shared.values()) if (full := shared.full()) is not None]
        # The writer lets a later one replace an earlier one, and of graphs it knows which one ran last.
        for full in sorted(rest, key=lambda full: (full.launch.graph, full.launch.index)):
            self._save(full)

    def unsaved(self) -> int:
        return sum(shared.is_used for shared in list(self._shared.values()))


@dataclass(slots=True)
class _Room:
    """How many bytes all buffers may still take."""

    left_bytes: int
    lock: threading.RLock = field(default_factory=threading.RLock)

    def take(self, size_bytes: int, make: Callable[[], Buffer]) -> Buffer:
        """A buffer that takes so much more. Raises ``NoDeviceMemory`` if there is no room here or on the device; then
        nothing is taken."""
        with self.lock:
            if size_bytes > self.left_bytes:
                raise NoDeviceMemory(f"all buffers together would exceed the limit by {size_bytes - self.left_bytes}")
            buffer = make()
            self.left_bytes -= size_bytes
            return buffer


@dataclass(slots=True)
class _SharedBuffer:
    """Locked from the time that a launch gets it until it was made: two threads may launch on one stream."""

    device: Device
    save: Save
    room: _Room
    # A signal handler of the program's may launch, too.
    lock: threading.RLock = field(default_factory=threading.RLock)
    _buffer: Buffer | None = None
    _size_bytes: int = 0
    _saved_ns: int = 0
    _next: LaunchInfo | None = None
    _last: LaunchInfo | None = None

    @property
    def buffer(self) -> Buffer:
        if self._buffer is None:
            raise RuntimeError("no launch has begun")
        return self._buffer

    def begin(self, launch: LaunchInfo) -> None:
        """Raises ``NoDeviceMemory``; the lock is then free again."""
        self.lock.acquire()
        try:
            self._prepare(launch)
        except BaseException:
            self.lock.release()
            raise
        self._next = launch

    def launched(self) -> None:
        if self._next is not None:
            self._next.host_end_ns = time.time_ns()
        self._last = self._next
        self.lock.release()

    def failed(self) -> None:
        self.lock.release()

    @property
    def is_used(self) -> bool:
        return self._last is not None

    def full(self) -> FullBuffer | None:
        """The last launch; what comes after it may write to the buffer again, unless it gets a new one."""
        with self.lock:
            if self._last is None or self._buffer is None:
                return None
            with self.device.selected(self._last.device):
                return FullBuffer(self._last, self._buffer, self.device.mark(self._last.stream))

    def _prepare(self, launch: LaunchInfo) -> None:
        fits = self._buffer is not None and self._size_bytes >= launch.size_bytes
        if launch.graph:
            if not fits:
                size_bytes = launch.size_bytes
                self._renew(self.room.take(size_bytes, lambda: self.device.zeros_outside_graphs(size_bytes)), launch)
            return
        last = self._last
        if fits and (last is None or launch.host_ns - self._saved_ns < _SAVE_EVERY_NS):
            return
        try:
            more_bytes = max(launch.size_bytes - self._size_bytes, 0)
            fresh = self.room.take(more_bytes, lambda: self.device.zeros(launch.size_bytes, launch.stream))
        except NoDeviceMemory:
            if fits:
                return
            raise
        full = self.full()
        if full is not None:
            self.save(full)
            self._saved_ns = launch.host_ns
        self._renew(fresh, launch)

    def _renew(self, fresh: Buffer, launch: LaunchInfo) -> None:
        self._buffer, self._size_bytes, self._last = fresh, launch.size_bytes, None

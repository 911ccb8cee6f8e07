"""NVIDIA's devices by their driver alone, for processes without torch."""

from __future__ import annotations

import ctypes
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kprof_inject.runtime.devices.cuda_driver import CudaBuffer, CudaEvent, CudaMemory, Driver, relaxed_capture
from kprof_inject.runtime.devices.cuda_kernels import CudaKernels
from kprof_inject.runtime.devices.cuda_snapshot import CudaSnapshot, CudaStaging
from kprof_inject.runtime.devices.device import Buffer, ClockReading, FindAllocation, MemoryRange

_MAX_NAME_BYTES = 256
_DEFAULT_STREAM = 0


class CudaDevice:
    """NVIDIA's devices, of which the driver's present context names the current one. See ``Device``."""

    def __init__(self, driver: Driver) -> None:
        """Begin without any memory or loaded kernel."""
        self._driver = driver
        self._memory = CudaMemory(driver)
        self._kernels = CudaKernels(driver, self._memory)
        self._unused_staging: defaultdict[tuple[int, int], list[CudaStaging]] = defaultdict(list)

    def prepare(self) -> None:
        """Load our kernels."""
        self._kernels.load(self.current())

    def current(self) -> int:
        """Return the index of the device of the present context."""
        handle = ctypes.c_int()
        self._driver.call("cuCtxGetDevice", ctypes.byref(handle))
        return handle.value

    def names(self) -> list[str]:
        """Return the names of all devices."""
        names = []
        for handle in self._handles():
            name = ctypes.create_string_buffer(_MAX_NAME_BYTES)
            self._driver.call("cuDeviceGetName", name, _MAX_NAME_BYTES, handle)
            names.append(name.value.decode(errors="replace"))
        return names

    def uuids(self) -> list[str]:
        """Return the UUIDs of all devices."""
        uuids = []
        for handle in self._handles():
            found = (ctypes.c_ubyte * 16)()
            self._driver.call("cuDeviceGetUuid", ctypes.byref(found), handle)
            uuids.append(str(uuid.UUID(bytes=bytes(found))))
        return uuids

    def _handles(self) -> Iterator[ctypes.c_int]:
        count = ctypes.c_int()
        self._driver.call("cuDeviceGetCount", ctypes.byref(count))
        for index in range(count.value):
            handle = ctypes.c_int()
            self._driver.call("cuDeviceGet", ctypes.byref(handle), index)
            yield handle

    def is_capturing(self) -> bool:
        """Return false, because a process without torch captures no graph."""
        return False

    def current_stream(self) -> int:
        """Return the default stream."""
        return _DEFAULT_STREAM

    def is_local(self, address: int) -> bool:
        """Return whether an address is in memory of the current device that no host or other device shares."""
        return self._memory.is_local(address, self.current())

    def zeros(self, size_bytes: int, stream: int) -> CudaBuffer:
        """Allocate zeroed memory for work on ``stream``."""
        return self._memory.zeros(size_bytes, self.current(), stream)

    def zeros_outside_graphs(self, size_bytes: int) -> CudaBuffer:
        """Allocate memory that is zeroed once, now."""
        with relaxed_capture():
            return self._memory.zeros_now(size_bytes, self.current())

    def clear(self, buffer: Buffer, size_bytes: int, stream: int) -> None:
        """Set the first bytes of a buffer to zero."""
        self._memory.zero(buffer.data_ptr(), size_bytes, ctypes.c_void_p(stream))

    def mark(self, stream: int) -> CudaEvent:
        """Record an event to wait for."""
        return CudaEvent.to_wait_for(self._driver, stream)

    def timing_mark(self, stream: int) -> CudaEvent:
        """Record an event with a time."""
        return CudaEvent.to_time(self._driver, stream)

    def hold(self, stream: int, for_ns: int) -> None:
        """Keep ``stream`` busy."""
        self._kernels.hold(self.current(), stream, for_ns)

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        """Launch an empty kernel."""
        self._kernels.launch_empty(self.current(), stream, threads, shared_bytes)

    def borrowed(self, size_bytes: int, stream: int) -> AbstractContextManager[Buffer]:
        """Lend zeroed memory."""
        return self._memory.borrowed(size_bytes, self.current(), stream)

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy between two addresses."""
        self._memory.copy(to, source, size_bytes, stream)

    def digest(self, address: int, size_bytes: int, stream: int) -> int | None:
        """Return a digest of memory."""
        return self._kernels.digest(self.current(), address, size_bytes, stream)

    def allocations(self) -> FindAllocation:
        """Return a function that finds the driver's allocation around an address."""
        return self._memory.allocation_at

    def snapshot(self, ranges: Sequence[MemoryRange], stream: int) -> CudaSnapshot:
        """Copy memory ranges."""
        return CudaSnapshot(self._driver, self._memory, self._kernels, self.current(), ranges, stream)

    def contents(self, address: int, size_bytes: int, stream: int) -> memoryview:
        """Copy memory to the host."""
        return self._memory.contents(address, size_bytes, self.current(), stream)

    @contextmanager
    def staging(self, size_bytes: int) -> Iterator[CudaStaging]:
        """Lend pinned memory, which is kept for the next use: to free it, the driver waits for the device."""
        unused = self._unused_staging[self.current(), size_bytes]
        try:
            staging = unused.pop()
        except IndexError:
            staging = CudaStaging(self._driver, size_bytes)
        try:
            yield staging
        finally:
            unused.append(staging)

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        """Wait for ``done``, and return the buffer's bytes."""
        with relaxed_capture(), self.selected(device):
            done.synchronize()
            return self._memory.fetch(buffer, size_bytes, device)

    def selected(self, device: int) -> AbstractContextManager[None]:
        """Return a context in which this device is the current one."""
        return self._driver.context(device)

    def synchronise(self, device: int) -> None:
        """Wait for all work of one device."""
        with self.selected(device):
            self._driver.call("cuCtxSynchronize")

    def read_clock(self, device: int) -> ClockReading | None:
        """Relate the timer that CTAs read to the host's clock."""
        with relaxed_capture(), self.selected(device):
            return self._kernels.read_clock(device)

    def sm_clock_hz(self, stream: int) -> float | None:
        """Measure the frequency of the SMs' clock."""
        return self._kernels.sm_clock_hz(self.current(), stream)

    def counted(self, ptx: str, words: int, stream: int) -> list[int]:
        """Run the only kernel of a PTX text."""
        return self._kernels.counted(self.current(), ptx, words, stream)

    def unaffected_by_graphs(self) -> AbstractContextManager[None]:
        """Return a context in which this thread does not affect a graph that is being captured."""
        return relaxed_capture()

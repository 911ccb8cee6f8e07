"""The devices of a process. It does not import torch, which a program that only compiles may lack.

Memory and events are our own: the program would see torch's memory in its own accounts, and where it captures CUDA
graphs, torch treats allocations and events that it does not expect as errors.

A kernel of the program's may run until a later launch ends its waiting. While a kernel runs, an H100's driver (580) was
seen to wait for it in ``cuModuleLoadData``, ``cuMemFree``, ``cuMemFreeHost``, and, if the kernel is on the default
stream, in ``cuMemcpyDtoH``; meanwhile it holds up the launches of all threads. The first launch of a function holds up
the device if its code is not loaded. So after ``Device.prepare`` no launch leads to any of these. Allocations,
asynchronous copies, events and new streams did not wait.

Source: CUDA Driver API reference, "Memory Management", "Stream Ordered Memory Allocator", "Module Management" and
"Execution Control".
"""

from __future__ import annotations

import ctypes
import functools
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.runtime.devices.cuda_driver import (
    CudaEvent,
    CudaKernels,
    Driver,
    MemoryRange,
    NoDeviceMemory,
    relaxed_capture,
)

_MAX_NAME_BYTES = 256
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_HIGHEST_PRIORITY = -1000  # the driver uses the nearest priority that it has
# Attributes of a pointer that distinguish the device's own memory from the host's, other devices' and managed memory.
_MEMORY_TYPE, _IS_MANAGED, _DEVICE_ORDINAL = 2, 8, 9  # CU_POINTER_ATTRIBUTE_*
_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE
_CHUNK_UNIT_BYTES = 1 << 16
WORD_BYTES = 8  # size of a digest, a time or a count of our kernels
# A kernel needs the attribute for more shared memory than this (CUDA C++ Programming Guide, "Dynamic shared memory").
_MAX_DEFAULT_SHARED_BYTES = 48 << 10
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
_DIGEST_CTAS, _DIGEST_THREADS = 1024, 256
_CLOCK_TRIES = 50
_MAX_CLOCK_NS = 20_000_000  # time limit of all tries together, because on a busy device each one waits

FindAllocation = Callable[[int], MemoryRange | None]
"""Function that returns the memory that was allocated together with an address; None if the device has none there."""


class Buffer(Protocol):
    """Our own device memory, which lives as long as the object."""

    def data_ptr(self) -> int:
        """Return the address."""


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None:
        """Wait until the event has happened."""

    def query(self) -> bool:
        """Return whether the event has happened."""

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds to a later event; both have happened."""


@dataclass(slots=True)
class _Chunk:
    """Device memory whose first ``used_bytes`` may not be zero."""

    address: int
    size_bytes: int
    used_bytes: int


class _ChunkBuffer:
    """A chunk of device memory, which returns to the free ones when this object is freed."""

    def __init__(self, chunk: _Chunk, free: list[_Chunk]) -> None:
        self.chunk = chunk
        self._free = free

    def data_ptr(self) -> int:
        return self.chunk.address

    def __del__(self) -> None:
        self._free.append(self.chunk)


class _PoolProperties(ctypes.Structure):
    """The driver's type ``CUmemPoolProps``."""

    _fields_ = (
        ("allocation_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("reserved", ctypes.c_ubyte * 72),
    )


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Memory of a driver's pool of our own, until ``give_back``."""

    address: int
    _driver: Driver
    _pool: int

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    def give_back(self, stream: int) -> None:
        """Give the memory back to the driver after all present work of ``stream``, and wait for that."""
        self._driver.call("cuMemFreeAsync", self.address, stream)
        self._driver.call("cuStreamSynchronize", stream)
        self._driver.call("cuMemPoolTrimTo", self._pool, 0)


class Staging:
    """Pinned host memory and a private stream, for one thread, which reads device memory with them."""

    def __init__(self, driver: Driver, size_bytes: int) -> None:
        self._driver = driver
        with relaxed_capture():
            self._address = driver.get("cuMemHostAlloc", size_bytes, 0)
            self._stream = driver.get("cuStreamCreate", _NON_BLOCKING)
        self._view = memoryview((ctypes.c_char * size_bytes).from_address(self._address)).cast("B")

    def read(self, address: int, size_bytes: int) -> memoryview:
        """Return the contents of device memory that no queued work writes to, valid until the next call."""
        self._driver.call("cuMemcpyDtoHAsync_v2", self._address, address, size_bytes, self._stream)
        self._driver.call("cuStreamSynchronize", self._stream)
        return self._view[:size_bytes]


class Device:
    """NVIDIA's devices by their driver, whose present context names the current one.

    ``torch_device`` has others, which override all that call the driver, except for what saves launches. Methods
    without a ``device`` work on the current one. Streams are the handles that Triton launches on.

    Memory is kept for reuse, because the driver waits for the device to free memory. A chunk that work on a stream has
    used is used again only on that stream, where later work follows the earlier. A chunk that was fetched is zero
    again, so the next launch needs no work on the program's stream to zero it.
    """

    can_save_launches = True

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kernels = CudaKernels(driver)
        self._free: defaultdict[tuple[int, int], list[_Chunk]] = defaultdict(list)
        # Not pinned: to free pinned memory, the driver waits for the device.
        self._fetched = bytearray()
        self._unused_staging: defaultdict[tuple[int, int], list[Staging]] = defaultdict(list)
        self._streams: dict[tuple[int, int], int] = {}
        self._pools: dict[int, int] = {}
        self._timer_words: dict[int, _ChunkBuffer] = {}
        self._empty_shared_bytes: dict[int, int] = {}

    def prepare(self) -> None:
        """Do all synchronising set-up of the current device now, so that later calls never block.

        A kernel of the program's may wait for its next launch, which would never come. So this is called where Triton
        loads a kernel, for which the driver waits, too.
        """
        self._kernels.load(self.current())

    def current(self) -> int:
        """Return the index of the current device."""
        return self._driver.get("cuCtxGetDevice")

    def names(self) -> list[str]:
        """Return the names of all devices."""
        names = []
        for handle in self._handles():
            name = ctypes.create_string_buffer(_MAX_NAME_BYTES)
            self._driver.call("cuDeviceGetName", name, _MAX_NAME_BYTES, handle)
            names.append(name.value.decode(errors="replace"))
        return names

    def uuids(self) -> list[str]:
        """Return the UUIDs of all devices; an unknown one is empty."""
        uuids = []
        for handle in self._handles():
            found = (ctypes.c_ubyte * 16)()
            self._driver.call("cuDeviceGetUuid", ctypes.byref(found), handle)
            uuids.append(str(uuid.UUID(bytes=bytes(found))))
        return uuids

    def _handles(self) -> list[int]:
        return [self._driver.get("cuDeviceGet", index) for index in range(self._driver.get("cuDeviceGetCount"))]

    def is_capturing(self) -> bool:
        """Return True if the program is capturing the current stream into a graph; without torch, none does."""
        return False

    def current_stream(self) -> int:
        """Return the current stream; without torch, the default one."""
        return 0

    def selected(self, device: int) -> AbstractContextManager[None]:
        """Return a context in which this device is the current one."""
        return self._driver.context(device)

    def synchronise(self, device: int) -> None:
        """Wait for all work of one device."""
        with self.selected(device):
            self._driver.call("cuCtxSynchronize")

    def unaffected_by_graphs(self) -> AbstractContextManager[None]:
        """Return a context in which this thread's allocations, loads and waits do not affect a graph being captured."""
        return relaxed_capture()

    # Memory of our own

    def zeros(self, size_bytes: int, stream: int) -> Buffer:
        """Allocate zeroed memory for work on ``stream``. Raises ``NoDeviceMemory``."""
        free = self._free[self.current(), stream]
        chunk = _take_chunk(free, size_bytes) or self._new_chunk(size_bytes)
        if chunk.used_bytes:
            self._zero(chunk.address, chunk.used_bytes, stream)
        chunk.used_bytes = size_bytes
        return _ChunkBuffer(chunk, free)

    def zeros_outside_graphs(self, size_bytes: int) -> Buffer:
        """Allocate memory that is zeroed once, now, and belongs to no captured graph. Raises ``NoDeviceMemory``."""
        with relaxed_capture():
            return self._zeros_now(size_bytes, self.current())

    def _zeros_now(self, size_bytes: int, device: int) -> _ChunkBuffer:
        """Return zeroed memory for work on any stream and in graphs, which is not used again for another buffer."""
        stream = self._stream(device)
        chunk = self._new_chunk(size_bytes)
        self._zero(chunk.address, size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        return _ChunkBuffer(chunk, [])

    def _new_chunk(self, size_bytes: int) -> _Chunk:
        size_bytes = -(-size_bytes // _CHUNK_UNIT_BYTES) * _CHUNK_UNIT_BYTES
        with relaxed_capture():  # another thread may be capturing
            return _Chunk(self._driver.get("cuMemAlloc_v2", size_bytes), size_bytes, size_bytes)

    def clear(self, buffer: Any, size_bytes: int, stream: int) -> None:
        """Set the first bytes of a buffer to zero, in the order of ``stream``."""
        self._zero(buffer.data_ptr(), size_bytes, stream)

    def _zero(self, address: int, size_bytes: int, stream: int) -> None:
        self._driver.call("cuMemsetD8Async", address, 0, size_bytes, stream)

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        """Wait for ``done``, and return the buffer's bytes, which are valid until the next call; zero the buffer.

        No work may write to the buffer any more. Only one thread may call this.
        """
        with relaxed_capture(), self.selected(device):
            done.synchronize()
            return self._fetch(buffer, size_bytes, device)

    def _fetch(self, buffer: _ChunkBuffer, size_bytes: int, device: int) -> memoryview:
        if len(self._fetched) < size_bytes:
            self._fetched = bytearray()  # freed before there is a larger one
            try:
                self._fetched = bytearray(size_bytes)
            except MemoryError:
                raise NoDeviceMemory(f"the host has no memory for {size_bytes} bytes") from None
        stream = self._stream(device)
        self._copy_to_host(self._fetched, buffer.data_ptr(), size_bytes, stream)
        self._zero(buffer.data_ptr(), size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        if size_bytes >= buffer.chunk.used_bytes:
            buffer.chunk.used_bytes = 0
        return memoryview(self._fetched)[:size_bytes]

    def _copy_to_host(self, to: bytearray, address: int, size_bytes: int, stream: int) -> None:
        place = (ctypes.c_char * size_bytes).from_buffer(to)
        self._driver.call("cuMemcpyDtoHAsync_v2", place, address, size_bytes, stream)

    def _stream(self, device: int, priority: int = 0) -> int:
        if (device, priority) not in self._streams:
            made = self._driver.get("cuStreamCreateWithPriority", _NON_BLOCKING, priority)
            self._streams[device, priority] = made
        return self._streams[device, priority]

    # Points in streams, and time

    def mark(self, stream: int) -> Event:
        """Record an event after all present work of ``stream``, for other threads to wait for."""
        return CudaEvent(self._driver, stream)

    def timing_mark(self, stream: int) -> Event:
        """Record an event after all present work of ``stream``, for ``elapsed_time``."""
        return CudaEvent(self._driver, stream, is_timed=True)

    def hold(self, stream: int, for_ns: int) -> None:
        """Keep ``stream`` busy for at least ``for_ns``, in which the host can queue the work to be timed."""
        self._kernels.launch(self._kernels.function(self.current(), "kprof_hold"), stream, for_ns)

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        """Launch one CTA of an empty kernel, with this number of threads and this much shared memory.

        For more shared memory than the default limit, the kernel gets the same attributes as Triton sets.
        """
        device = self.current()
        function = self._kernels.function(device, "kprof_empty")
        if shared_bytes > self._empty_shared_bytes.get(device, _MAX_DEFAULT_SHARED_BYTES):
            self._driver.call("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            self._driver.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared_bytes)
            self._empty_shared_bytes[device] = shared_bytes
        self._kernels.launch(function, stream, threads=threads, shared_bytes=shared_bytes)

    def read_clock(self, device: int) -> ClockRecord | None:
        """Relate the timer that CTAs read to the host's clock, with the smallest error of several readings."""
        readings: list[ClockRecord] = []
        with relaxed_capture(), self.selected(device):
            function = self._kernels.function(device, "kprof_read_timer")
            stream = self._stream(device, _HIGHEST_PRIORITY)  # above the program's
            if device not in self._timer_words:
                self._timer_words[device] = self._zeros_now(WORD_BYTES, device)
            word = self._timer_words[device]
            begun = after = time.time_ns()
            while len(readings) < _CLOCK_TRIES and after - begun <= _MAX_CLOCK_NS:
                before = time.time_ns()
                self._kernels.launch(function, stream, word.data_ptr())
                self._driver.call("cuStreamSynchronize", stream)
                after = time.time_ns()
                read = int.from_bytes(self._fetch(word, WORD_BYTES, device), "little")
                readings.append(ClockRecord(device, (before + after) // 2, read, (after - before + 1) // 2))
        return min(readings, key=lambda reading: reading.error_ns)

    # Memory of the program, to save launches

    def allocations(self) -> FindAllocation:
        """Return a function that finds the present allocation around an address of the current device."""

        def find(address: int) -> MemoryRange | None:
            start, size = ctypes.c_uint64(), ctypes.c_size_t()
            places = ctypes.byref(start), ctypes.byref(size)
            status = self._driver.status("cuMemGetAddressRange_v2", *places, address)
            return None if status or not size.value else MemoryRange(start.value, size.value)

        return find

    def is_local(self, address: int) -> bool:
        """Return whether an address is in memory of the current device that no host or other device shares."""
        expected = {_MEMORY_TYPE: _DEVICE_MEMORY, _IS_MANAGED: 0, _DEVICE_ORDINAL: self.current()}
        get = functools.partial(self._driver.get, "cuPointerGetAttribute")
        return all(get(attribute, address) == value for attribute, value in expected.items())

    def free_bytes(self) -> int:
        """Return the size of the current device's free memory."""
        total = ctypes.c_size_t()
        return self._driver.get("cuMemGetInfo_v2", ctypes.byref(total))

    def taken(self, size_bytes: int, stream: int) -> PoolMemory:
        """Take zeroed memory for work that follows the present work of ``stream``, for which only that stream waits.

        Raises ``NoDeviceMemory``.
        """
        device = self.current()
        if device not in self._pools:
            # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE
            properties = _PoolProperties(1, 0, 1, device)
            with relaxed_capture():  # another thread may be capturing
                self._pools[device] = self._driver.get("cuMemPoolCreate", ctypes.byref(properties))
        pool = self._pools[device]
        address = self._driver.get("cuMemAllocFromPoolAsync", size_bytes, pool, stream)
        self._zero(address, size_bytes, stream)
        return PoolMemory(address, self._driver, pool)

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy between two addresses of the device or the host, in the order of ``stream``."""
        self._driver.call("cuMemcpyAsync", to, source, size_bytes, stream)

    def queue_digest(self, address: int, size_bytes: int, word: int, stream: int) -> None:
        """Queue a digest of memory, which is added to the 64-bit word at ``word``; ``address`` is a multiple of 8.

        Different contents have the same digest with a probability of 2 to the -64.
        """
        function = self._kernels.function(self.current(), "kprof_digest")
        self._kernels.launch(function, stream, address, size_bytes, word, ctas=_DIGEST_CTAS, threads=_DIGEST_THREADS)

    def contents(self, address: int, size_bytes: int, stream: int) -> memoryview:
        """Return the contents of memory after all present work of ``stream``, which this waits for."""
        data = bytearray(size_bytes)
        self._driver.call("cuStreamSynchronize", stream)
        if size_bytes:
            private = self._stream(self.current())
            self._copy_to_host(data, address, size_bytes, private)
            self._driver.call("cuStreamSynchronize", private)
        return memoryview(data)

    @contextmanager
    def staging(self, size_bytes: int) -> Iterator[Staging]:
        """Lend a thread what it needs to read up to ``size_bytes`` of the current device's memory at once.

        It is kept for the next use: to free pinned memory, the driver waits for the device.
        """
        unused = self._unused_staging[self.current(), size_bytes]
        try:
            staging = unused.pop()
        except IndexError:
            staging = Staging(self._driver, size_bytes)
        try:
            yield staging
        finally:
            unused.append(staging)


def _take_chunk(free: list[_Chunk], size_bytes: int) -> _Chunk | None:
    max_bytes = max(2 * size_bytes, _CHUNK_UNIT_BYTES)
    fitting = [chunk for chunk in list(free) if size_bytes <= chunk.size_bytes <= max_bytes]
    for chunk in sorted(fitting, key=lambda chunk: chunk.size_bytes):
        try:
            free.remove(chunk)
        except ValueError:  # another thread was faster
            continue
        return chunk
    return None


def has_gpu() -> bool:
    """Return whether torch is installed and sees a device that Triton can launch on."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()


@functools.cache
def devices_of_process() -> Device:
    """Return the devices of the program's process: torch's. All callers share the object, which reuses its memory."""
    # Imported here, because it imports torch.
    from kprof_inject.runtime.devices.torch_device import torchs_devices

    return torchs_devices()

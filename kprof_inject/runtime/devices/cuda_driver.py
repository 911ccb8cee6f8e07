"""Call the CUDA driver by ctypes, for functions that torch lacks, and for memory and events of our own.

The program would see torch's memory in its own accounts. And where the program captures CUDA graphs, torch treats
allocations and events that it does not expect as errors.

A kernel of the program's may run until a later launch ends its waiting. While a kernel runs, an H100's driver (580) was
seen to wait for it in ``cuModuleLoadData``, ``cuMemFree``, ``cuMemFreeHost``, and, if the kernel is on the default
stream, in ``cuMemcpyDtoH``; meanwhile it holds up the launches of all threads. The first launch of a function holds up
the device if its code is not loaded. So after ``Device.prepare`` no launch leads to any of these. Allocations,
asynchronous copies, events and new streams did not wait.

Source: CUDA Driver API reference, "Stream Management", "Graph Management", "Occupancy", "Memory Management" and "Event
Management".
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kprof_inject.runtime.devices.device import MemoryRange, NoDeviceMemory

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_BLOCKING_WITHOUT_TIME = 1 | 2  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING
_WITH_TIME = 0  # CU_EVENT_DEFAULT
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_HIGHEST_PRIORITY = -1000  # the driver uses the nearest priority that it has
_SIZE_UNIT_BYTES = 1 << 16
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD
# Attributes of a pointer that distinguish the device's own memory from the host's, other devices' and managed memory.
_MEMORY_TYPE, _IS_MANAGED, _DEVICE_ORDINAL = 2, 8, 9  # CU_POINTER_ATTRIBUTE_*
_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE


@functools.cache
def loaded_driver() -> ctypes.CDLL | None:
    """Return the driver's functions, or None if there is no NVIDIA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread allocate and wait while any thread captures a CUDA graph.

    Without this, it would break a capture that another thread began in the (default) global mode.
    """
    driver = loaded_driver()
    if driver is None:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchanged = driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0
    try:
        yield
    finally:
        if exchanged:
            driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def ctas_per_sm(function: int, threads: int, shared_bytes: int) -> int | None:
    """Return how many CTAs of a loaded kernel an SM holds at once; None if the driver does not report it."""
    driver = loaded_driver()
    if driver is None:
        return None
    count = ctypes.c_int()
    status = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(count), ctypes.c_void_p(function), ctypes.c_int(threads), ctypes.c_size_t(shared_bytes)
    )
    return count.value if status == 0 else None


_L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE


def l2_bytes() -> int:
    """Return the size of the current device's L2; 0 if the driver does not report it."""
    driver = loaded_driver()
    handle, size = ctypes.c_int(), ctypes.c_int()
    if driver is None or driver.cuCtxGetDevice(ctypes.byref(handle)):
        return 0
    return 0 if driver.cuDeviceGetAttribute(ctypes.byref(size), _L2_CACHE_SIZE, handle) else size.value


def current_context() -> int:
    """Return the handle of this thread's current context; 0 if there is none."""
    driver, context = loaded_driver(), ctypes.c_void_p()
    if driver is None or driver.cuCtxGetCurrent(ctypes.byref(context)):
        return 0
    return context.value or 0


def driver_version() -> int:
    """Return the version of CUDA that the driver supports, as ``cuDriverGetVersion`` counts; 0 if unknown."""
    driver, version = loaded_driver(), ctypes.c_int()
    return 0 if driver is None or driver.cuDriverGetVersion(ctypes.byref(version)) else version.value


class Driver:
    """The driver's functions, called by name, with errors as exceptions."""

    def __init__(self, functions: Any) -> None:
        """Use the functions of a loaded driver."""
        self.functions = functions
        self._contexts: dict[int, ctypes.c_void_p] = {}

    @contextmanager
    def context(self, device: int) -> Iterator[None]:
        """Have this thread work in the device's primary context, which torch and Triton use too."""
        if device not in self._contexts:
            handle, context = ctypes.c_int(), ctypes.c_void_p()
            self.call("cuDeviceGet", ctypes.byref(handle), device)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
            self._contexts[device] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises ``NoDeviceMemory``, and ``RuntimeError`` for any other error of the driver."""
        status = getattr(self.functions, name)(*arguments)
        if status == _OUT_OF_MEMORY:
            raise NoDeviceMemory(f"{name}: out of memory")
        if status:
            raise RuntimeError(f"{name} failed: CUDA driver error {status}")


# A stack that the PTX declares, such as the one in which Proton keeps the index of its next record.
_STACK = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+__local_depot\d+\[(\d+)\]")
# ptxas rounds a frame up to a multiple of this: on sm_90, a stack of 4 bytes was seen to take 8 of local memory.
_FRAME_UNIT_BYTES = 8


def resources_of(kernel: Any) -> dict[str, Any]:
    """Return a loaded kernel's registers and spilled words a thread, shared bytes a CTA, and CTAs an SM holds at once.

    Unknown values are None. Triton reports all local memory as spills (``local_words``), so ``spills`` is that without
    the stack.
    """
    threads = kernel.metadata.num_warps * kernel.metadata.target.warp_size
    return {
        "registers": kernel.n_regs,
        "local_words": kernel.n_spills,
        "spills": spilled_words(kernel.n_spills, kernel.asm.get("ptx", "")),
        "shared_bytes": kernel.metadata.shared,
        "ctas_per_sm": ctas_per_sm(kernel.function, threads, kernel.metadata.shared),
    }


def spilled_words(local_words: int, ptx: str) -> int:
    """Return the words of a thread's local memory that are not a stack of the PTX."""
    stack_bytes = sum(int(size) for size in _STACK.findall(ptx))
    stack_words = -(-stack_bytes // _FRAME_UNIT_BYTES) * _FRAME_UNIT_BYTES // 4
    return max(local_words - stack_words, 0)


class CudaEvent:
    """A point in a stream."""

    def __init__(self, driver: Driver, stream: int, flags: int) -> None:
        """Record an event after all present work of ``stream``."""
        self._driver = driver
        self._handle = ctypes.c_void_p()
        driver.call("cuEventCreate", ctypes.byref(self._handle), flags)
        driver.call("cuEventRecord", self._handle, ctypes.c_void_p(stream))

    @classmethod
    def to_wait_for(cls, driver: Driver, stream: int) -> CudaEvent:
        """Record an event to wait for, which has no time."""
        return cls(driver, stream, _BLOCKING_WITHOUT_TIME)

    @classmethod
    def to_time(cls, driver: Driver, stream: int) -> CudaEvent:
        """Record an event with a time."""
        return cls(driver, stream, _WITH_TIME)

    def synchronize(self) -> None:
        """Wait until the event has happened."""
        self._driver.call("cuEventSynchronize", self._handle)

    def query(self) -> bool:
        """Return whether the event has happened."""
        with relaxed_capture():  # another thread may be capturing
            status = self._driver.functions.cuEventQuery(self._handle)
        if status not in (0, _NOT_READY):
            raise RuntimeError(f"cuEventQuery failed: CUDA driver error {status}")
        return bool(status == 0)

    def elapsed_time(self, end: CudaEvent) -> float:
        """Return the milliseconds to a later event; both have happened."""
        result = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(result), self._handle, end._handle)
        return result.value

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Destroy the driver's event."""
        # The status is ignored: a failed device has reported its error before. The end of the process frees all events.
        if not is_finalizing():
            self._driver.functions.cuEventDestroy_v2(self._handle)


@dataclass(slots=True)
class _Chunk:
    """Device memory whose first ``used_bytes`` may not be zero."""

    address: int
    size_bytes: int
    used_bytes: int


class CudaBuffer:
    """A chunk of device memory, which returns to its pool when this object is freed."""

    def __init__(self, chunk: _Chunk, free: list[_Chunk]) -> None:
        """Lend ``chunk`` until it returns to ``free``."""
        self._chunk = chunk
        self._free = free

    def data_ptr(self) -> int:
        """Return the address."""
        return self._chunk.address

    def note_zeroed(self, size_bytes: int) -> None:
        """Note that the first ``size_bytes`` are zero again."""
        if size_bytes >= self._chunk.used_bytes:
            self._chunk.used_bytes = 0

    def __del__(self) -> None:
        """Return the chunk to its pool."""
        self._free.append(self._chunk)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Memory on loan from ``CudaMemory.borrowed``, which takes it back."""

    address: int

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address


@dataclass(frozen=True, slots=True)
class TakenMemory:
    """Memory of a pool of ours, until ``give_back``."""

    address: int
    _driver: Driver
    _pool: ctypes.c_void_p

    def give_back(self) -> None:
        """Give it back to the driver. No work may use it any more."""
        with relaxed_capture():
            # On a stream that has no work: the default one might wait for the program's.
            self._driver.call("cuMemFreeAsync", ctypes.c_uint64(self.address), ctypes.c_void_p(_PER_THREAD_STREAM))
            self._driver.call("cuStreamSynchronize", ctypes.c_void_p(_PER_THREAD_STREAM))
            self._driver.call("cuMemPoolTrimTo", self._pool, ctypes.c_size_t(0))


class _PoolProperties(ctypes.Structure):
    """The driver's type ``CUmemPoolProps``."""

    _fields_ = (
        ("allocation_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("reserved", ctypes.c_ubyte * 72),
    )


class CudaMemory:
    """Device memory for buffers, which is kept for reuse, because the driver waits for the device to free memory.

    Borrowed memory comes from a driver's pool of our own, in the order of a stream, and only that stream waits for it.

    A chunk that work on a stream has used is used again only on that stream, where later work follows the earlier. A
    chunk that was fetched is zero again, so the next launch needs no work on the program's stream to zero it.
    """

    def __init__(self, driver: Driver) -> None:
        """Begin without any memory."""
        self._driver = driver
        self._free: defaultdict[tuple[int, int], list[_Chunk]] = defaultdict(list)
        # Not pinned: to free pinned memory, the driver waits for the device.
        self._fetched = bytearray()
        self._streams: dict[tuple[int, int], ctypes.c_void_p] = {}
        self._pools: dict[int, ctypes.c_void_p] = {}

    def zeros(self, size_bytes: int, device: int, stream: int) -> CudaBuffer:
        """Return zeroed memory for work on ``stream``. Raises ``NoDeviceMemory``."""
        free = self._free[device, stream]
        chunk = _take_chunk(free, size_bytes) or self._new_chunk(size_bytes)
        if chunk.used_bytes:
            self.zero(chunk.address, chunk.used_bytes, ctypes.c_void_p(stream))
        chunk.used_bytes = size_bytes
        return CudaBuffer(chunk, free)

    def zeros_now(self, size_bytes: int, device: int) -> CudaBuffer:
        """Return memory for work on any stream and in graphs, which may run at any time.

        It is zero when this returns, and is not used again for another buffer. Raises ``NoDeviceMemory``.
        """
        stream = self._stream(device)
        chunk = self._new_chunk(size_bytes)
        self.zero(chunk.address, size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        return CudaBuffer(chunk, [])

    @contextmanager
    def borrowed(self, size_bytes: int, device: int, stream: int) -> Iterator[Borrowed]:
        """Lend zeroed memory for work on one stream.

        The end of the context waits for the stream, and gives the memory back to the driver.
        """
        pool, handle, address = self._pool(device), ctypes.c_void_p(stream), ctypes.c_uint64()
        self._driver.call("cuMemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(size_bytes), pool, handle)
        try:
            self.zero(address.value, size_bytes, handle)
            yield Borrowed(address.value)
        finally:
            self._driver.call("cuMemFreeAsync", address, handle)
            self._driver.call("cuStreamSynchronize", handle)
            self._driver.call("cuMemPoolTrimTo", pool, ctypes.c_size_t(0))

    def taken(self, size_bytes: int, device: int, stream: int) -> TakenMemory:
        """Take zeroed memory for work that follows the present work of ``stream``. Raises ``NoDeviceMemory``."""
        pool, handle, address = self._pool(device), ctypes.c_void_p(stream), ctypes.c_uint64()
        self._driver.call("cuMemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(size_bytes), pool, handle)
        self.zero(address.value, size_bytes, handle)
        return TakenMemory(address.value, self._driver, pool)

    def allocation_at(self, address: int) -> MemoryRange | None:
        """Return the driver's allocation that contains an address; None if there is none."""
        start, size = ctypes.c_uint64(), ctypes.c_size_t()
        status = self._driver.functions.cuMemGetAddressRange_v2(
            ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(address)
        )
        return None if status or not size.value else MemoryRange(start.value, size.value)

    def _attribute(self, address: int, attribute: int) -> int:
        value = ctypes.c_uint()
        self._driver.call("cuPointerGetAttribute", ctypes.byref(value), attribute, ctypes.c_uint64(address))
        return value.value

    def _pool(self, device: int) -> ctypes.c_void_p:
        if device not in self._pools:
            # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE
            pool, properties = ctypes.c_void_p(), _PoolProperties(1, 0, 1, device)
            with relaxed_capture():  # another thread may be capturing
                self._driver.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(properties))
            self._pools[device] = pool
        return self._pools[device]

    def is_local(self, address: int, device: int) -> bool:
        """Return whether an address is in memory of the device that no host or other device shares."""
        if self._attribute(address, _MEMORY_TYPE) != _DEVICE_MEMORY or self._attribute(address, _IS_MANAGED):
            return False
        return self._attribute(address, _DEVICE_ORDINAL) == device

    def free_bytes(self) -> int:
        """Return the free memory of the current device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy in the order of ``stream``. Either address may be in host memory that the device can access."""
        self._driver.call(
            "cuMemcpyAsync",
            ctypes.c_uint64(to),
            ctypes.c_uint64(source),
            ctypes.c_size_t(size_bytes),
            ctypes.c_void_p(stream),
        )

    def contents(self, address: int, size_bytes: int, device: int, stream: int) -> memoryview:
        """Return what memory contains after all present work of ``stream``, which this waits for."""
        self._driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))
        return self.settled(address, size_bytes, device)

    def settled(self, address: int, size_bytes: int, device: int) -> memoryview:
        """Return what memory contains to which no work writes any more."""
        data = bytearray(size_bytes)
        if size_bytes:
            self._copy_to_host(data, address, size_bytes, device)
            self._driver.call("cuStreamSynchronize", self._stream(device))
        return memoryview(data)

    def _copy_to_host(self, to: bytearray, address: int, size_bytes: int, device: int) -> None:
        """Queue a copy on a stream of ours: a copy on the default one waits for the program's work."""
        place = (ctypes.c_char * size_bytes).from_buffer(to)
        source, size = ctypes.c_uint64(address), ctypes.c_size_t(size_bytes)
        self._driver.call("cuMemcpyDtoHAsync_v2", place, source, size, self._stream(device))

    def fetch(self, buffer: CudaBuffer, size_bytes: int, device: int) -> memoryview:
        """Return the buffer's bytes, which are valid until the next call, and zero the buffer.

        No work may write to the buffer any more.
        """
        if len(self._fetched) < size_bytes:
            self._fetched = bytearray()  # freed before there is a larger one
            try:
                self._fetched = bytearray(size_bytes)
            except MemoryError:
                raise NoDeviceMemory(f"the host has no memory for {size_bytes} bytes") from None
        stream = self._stream(device)
        self._copy_to_host(self._fetched, buffer.data_ptr(), size_bytes, device)
        self.zero(buffer.data_ptr(), size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        buffer.note_zeroed(size_bytes)
        return memoryview(self._fetched)[:size_bytes]

    def _new_chunk(self, size_bytes: int) -> _Chunk:
        size_bytes = -(-size_bytes // _SIZE_UNIT_BYTES) * _SIZE_UNIT_BYTES
        address = ctypes.c_uint64()
        with relaxed_capture():  # another thread may be capturing
            self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return _Chunk(address.value, size_bytes, size_bytes)

    def zero(self, address: int, size_bytes: int, stream: ctypes.c_void_p) -> None:
        """Set memory to zero in the order of ``stream``."""
        self._driver.call("cuMemsetD8Async", ctypes.c_uint64(address), 0, ctypes.c_size_t(size_bytes), stream)

    def urgent_stream(self, device: int) -> ctypes.c_void_p:
        """Return a stream of ours with a higher priority than the program's."""
        return self._stream(device, _HIGHEST_PRIORITY)

    def _stream(self, device: int, priority: int = 0) -> ctypes.c_void_p:
        if (device, priority) not in self._streams:
            stream = ctypes.c_void_p()
            self._driver.call("cuStreamCreateWithPriority", ctypes.byref(stream), _NON_BLOCKING, priority)
            self._streams[device, priority] = stream
        return self._streams[device, priority]


def _take_chunk(free: list[_Chunk], size_bytes: int) -> _Chunk | None:
    """Take the smallest chunk that is large enough, and at most twice as large as needed."""
    max_bytes = max(2 * size_bytes, _SIZE_UNIT_BYTES)
    fitting = [chunk for chunk in list(free) if size_bytes <= chunk.size_bytes <= max_bytes]
    for chunk in sorted(fitting, key=lambda chunk: chunk.size_bytes):
        try:
            free.remove(chunk)
        except ValueError:  # another thread was faster
            continue
        return chunk
    return None

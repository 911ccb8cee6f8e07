"""The CUDA driver, by ctypes: what torch does not offer, and memory and events of our own.

torch's memory would show up in the program's own accounts of it, and where the program records CUDA graphs, torch takes
what it does not know of for a mistake.

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

from kprof_inject.runtime.devices.device import NoDeviceMemory

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_BLOCKING_WITHOUT_TIME = 1 | 2  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING
_WITH_TIME = 0  # CU_EVENT_DEFAULT
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_GREATEST_PRIORITY = -1000  # the driver takes the nearest that it has
_SIZE_UNIT_BYTES = 1 << 16
# Of the attributes of a pointer, what tells the device's own memory from the host's, other devices' and managed memory.
_MEMORY_TYPE, _IS_MANAGED, _DEVICE_ORDINAL = 2, 8, 9  # CU_POINTER_ATTRIBUTE_*
_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE


@functools.cache
def loaded_driver() -> ctypes.CDLL | None:
    """The driver's functions, or None where there is no NVIDIA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread allocate and wait while any thread captures a CUDA graph.

    A thread without this breaks a capture that another one has begun in the (default) global mode."""
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
    """How many CTAs of a loaded kernel one SM holds at once; None if the driver does not tell."""
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
    """The size of the current device's L2; 0 if the driver does not tell."""
    driver = loaded_driver()
    handle, size = ctypes.c_int(), ctypes.c_int()
    if driver is None or driver.cuCtxGetDevice(ctypes.byref(handle)):
        return 0
    return 0 if driver.cuDeviceGetAttribute(ctypes.byref(size), _L2_CACHE_SIZE, handle) else size.value


class Driver:
    """The driver's functions, as methods that raise ``RuntimeError`` where the driver reports a failure."""

    def __init__(self, functions: Any) -> None:
        self.functions = functions
        self._contexts: dict[int, ctypes.c_void_p] = {}

    @contextmanager
    def context(self, device: int) -> Iterator[None]:
        """Have this thread work in the device's primary context, which is torch's and Triton's, too."""
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
        status = getattr(self.functions, name)(*arguments)
        if status == _OUT_OF_MEMORY:
            raise NoDeviceMemory(f"{name}: out of memory")
        if status:
            raise RuntimeError(f"{name} failed: CUDA driver error {status}")


# A stack that the PTX asks for itself, such as the one in which Proton keeps the place of its next record.
_STACK = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+__local_depot\d+\[(\d+)\]")
# What ptxas rounds a frame up to: seen on sm_90, where a stack of 4 bytes makes 8 of local memory.
_FRAME_UNIT_BYTES = 8


def resources_of(kernel: Any) -> dict[str, Any]:
    """Registers a thread, words that the assembler spilled, shared bytes a CTA, and CTAs that an SM holds at once (None
    if unknown).

    Triton takes all local memory for spills (``local_words``); what is a stack is taken off again."""
    threads = kernel.metadata.num_warps * kernel.metadata.target.warp_size
    return {
        "registers": kernel.n_regs,
        "local_words": kernel.n_spills,
        "spills": spilled_words(kernel.n_spills, kernel.asm.get("ptx", "")),
        "shared_bytes": kernel.metadata.shared,
        "ctas_per_sm": ctas_per_sm(kernel.function, threads, kernel.metadata.shared),
    }


def spilled_words(local_words: int, ptx: str) -> int:
    """Return how many words of a thread's local memory are no stack of the PTX."""
    stack_bytes = sum(int(size) for size in _STACK.findall(ptx))
    stack_words = -(-stack_bytes // _FRAME_UNIT_BYTES) * _FRAME_UNIT_BYTES // 4
    return max(local_words - stack_words, 0)


class CudaEvent:
    """A point in a stream."""

    def __init__(self, driver: Driver, stream: int, flags: int) -> None:
        self._driver = driver
        self._handle = ctypes.c_void_p()
        driver.call("cuEventCreate", ctypes.byref(self._handle), flags)
        driver.call("cuEventRecord", self._handle, ctypes.c_void_p(stream))

    @classmethod
    def to_wait_for(cls, driver: Driver, stream: int) -> CudaEvent:
        return cls(driver, stream, _BLOCKING_WITHOUT_TIME)

    @classmethod
    def to_time(cls, driver: Driver, stream: int) -> CudaEvent:
        return cls(driver, stream, _WITH_TIME)

    def synchronize(self) -> None:
        self._driver.call("cuEventSynchronize", self._handle)

    def query(self) -> bool:
        with relaxed_capture():  # another thread may be capturing
            status = self._driver.functions.cuEventQuery(self._handle)
        if status not in (0, _NOT_READY):
            raise RuntimeError(f"cuEventQuery failed: CUDA driver error {status}")
        return bool(status == 0)

    def elapsed_time(self, end: CudaEvent) -> float:
        """Milliseconds to a later event; both have happened."""
        result = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(result), self._handle, end._handle)
        return result.value

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # What a device that failed says to this does not matter, and the end of the process frees all.
        if not is_finalizing():
            self._driver.functions.cuEventDestroy_v2(self._handle)


@dataclass(slots=True)
class _Chunk:
    """``used_bytes`` from its begin on may be other than zero."""

    address: int
    size_bytes: int
    used_bytes: int


class CudaBuffer:
    """A chunk of device memory; it goes back to its pool when nobody holds this object any more."""

    def __init__(self, chunk: _Chunk, free: list[_Chunk]) -> None:
        self._chunk = chunk
        self._free = free

    def data_ptr(self) -> int:
        return self._chunk.address

    def note_zeroed(self, size_bytes: int) -> None:
        """So many bytes from its begin on are zero again."""
        if size_bytes >= self._chunk.used_bytes:
            self._chunk.used_bytes = 0

    def __del__(self) -> None:
        self._free.append(self._chunk)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Memory that is given back by who lent it."""

    address: int

    def data_ptr(self) -> int:
        return self.address


class _PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("allocation_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("reserved", ctypes.c_ubyte * 72),
    )

    @classmethod
    def of_device(cls, device: int) -> _PoolProperties:
        # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE
        return cls(1, 0, 1, device)


class CudaMemory:
    """Keeps what it once took: to give memory back, the driver waits for the device. What is only borrowed comes from a
    pool of our own, in the order of a stream: nothing but that stream waits for it.

    What work on a stream has left is used again on that stream alone, where it is behind that work. What was fetched is
    zero again: it goes to a launch without a word on the program's stream."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._free: defaultdict[tuple[int, int], list[_Chunk]] = defaultdict(list)
        self._staging = (ctypes.c_void_p(), 0)
        self._streams: dict[tuple[int, int], ctypes.c_void_p] = {}
        self._pools: dict[int, ctypes.c_void_p] = {}

    def zeros(self, size_bytes: int, device: int, stream: int) -> CudaBuffer:
        free = self._free[device, stream]
        chunk = _taken_from(free, size_bytes) or self._new_chunk(size_bytes)
        if chunk.used_bytes:
            self._zero(chunk.address, chunk.used_bytes, ctypes.c_void_p(stream))
        chunk.used_bytes = size_bytes
        return CudaBuffer(chunk, free)

    def zeros_now(self, size_bytes: int, device: int) -> CudaBuffer:
        """The same for work on any stream, and in graphs, which may run at any time: it is zero when this returns, and
        never serves anything else."""
        stream = self._stream(device)
        chunk = self._new_chunk(size_bytes)
        self._zero(chunk.address, size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        return CudaBuffer(chunk, [])

    @contextmanager
    def borrowed(self, size_bytes: int, device: int, stream: int) -> Iterator[Borrowed]:
        """Memory, zero at first, for work on one stream. The driver has it back at the end, which waits for that
        stream."""
        pool, on, address = self._pool(device), ctypes.c_void_p(stream), ctypes.c_uint64()
        self._driver.call("cuMemAllocFromPoolAsync", ctypes.byref(address), ctypes.c_size_t(size_bytes), pool, on)
        try:
            self._zero(address.value, size_bytes, on)
            yield Borrowed(address.value)
        finally:
            self._driver.call("cuMemFreeAsync", address, on)
            self._driver.call("cuStreamSynchronize", on)
            self._driver.call("cuMemPoolTrimTo", pool, ctypes.c_size_t(0))

    def _pool(self, device: int) -> ctypes.c_void_p:
        if device not in self._pools:
            pool, properties = ctypes.c_void_p(), _PoolProperties.of_device(device)
            with relaxed_capture():  # another thread may be capturing
                self._driver.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(properties))
            self._pools[device] = pool
        return self._pools[device]

    def is_local(self, address: int, device: int) -> bool:
        """True if this is memory of the device, which neither the host nor another device has a share in."""
        kind, is_managed, ordinal = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_int()
        for value, attribute in ((kind, _MEMORY_TYPE), (is_managed, _IS_MANAGED), (ordinal, _DEVICE_ORDINAL)):
            self._driver.call("cuPointerGetAttribute", ctypes.byref(value), attribute, ctypes.c_uint64(address))
        return kind.value == _DEVICE_MEMORY and not is_managed.value and ordinal.value == device

    def free_bytes(self) -> int:
        """Of the current device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        """In the order of ``stream``. Either address may be that of host memory which the device can reach."""
        self._driver.call(
            "cuMemcpyAsync",
            ctypes.c_uint64(to),
            ctypes.c_uint64(source),
            ctypes.c_size_t(size_bytes),
            ctypes.c_void_p(stream),
        )

    def fetch(self, buffer: CudaBuffer, size_bytes: int, device: int) -> memoryview:
        """The buffer's bytes, good until the next call. Nobody may write to it any more: it is zero then."""
        staging, room = self._staging
        if room < size_bytes:
            if staging:
                self._driver.call("cuMemFreeHost", staging)
            staging = ctypes.c_void_p()
            self._staging = (staging, 0)
            self._driver.call("cuMemHostAlloc", ctypes.byref(staging), ctypes.c_size_t(size_bytes), 0)
            self._staging = (staging, size_bytes)
        stream = self._stream(device)
        source = ctypes.c_uint64(buffer.data_ptr())
        self._driver.call("cuMemcpyDtoHAsync_v2", staging, source, ctypes.c_size_t(size_bytes), stream)
        self._zero(buffer.data_ptr(), size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        buffer.note_zeroed(size_bytes)
        return memoryview((ctypes.c_char * size_bytes).from_address(staging.value or 0)).cast("B")

    def _new_chunk(self, size_bytes: int) -> _Chunk:
        size_bytes = -(-size_bytes // _SIZE_UNIT_BYTES) * _SIZE_UNIT_BYTES
        address = ctypes.c_uint64()
        with relaxed_capture():  # another thread may be capturing
            self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return _Chunk(address.value, size_bytes, size_bytes)

    def _zero(self, address: int, size_bytes: int, stream: ctypes.c_void_p) -> None:
        self._driver.call("cuMemsetD8Async", ctypes.c_uint64(address), 0, ctypes.c_size_t(size_bytes), stream)

    def urgent_stream(self, device: int) -> ctypes.c_void_p:
        """A stream of ours whose work goes before the program's."""
        return self._stream(device, _GREATEST_PRIORITY)

    def _stream(self, device: int, priority: int = 0) -> ctypes.c_void_p:
        if (device, priority) not in self._streams:
            stream = ctypes.c_void_p()
            self._driver.call("cuStreamCreateWithPriority", ctypes.byref(stream), _NON_BLOCKING, priority)
            self._streams[device, priority] = stream
        return self._streams[device, priority]


def _taken_from(free: list[_Chunk], size_bytes: int) -> _Chunk | None:
    """The smallest chunk that is large enough, but not one of more than twice the size."""
    most_bytes = max(2 * size_bytes, _SIZE_UNIT_BYTES)
    fitting = [chunk for chunk in list(free) if size_bytes <= chunk.size_bytes <= most_bytes]
    for chunk in sorted(fitting, key=lambda chunk: chunk.size_bytes):
        try:
            free.remove(chunk)
        except ValueError:  # another thread was faster
            continue
        return chunk
    return None

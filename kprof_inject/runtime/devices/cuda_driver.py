"""Call the CUDA driver by ctypes: its functions with errors as exceptions, its events and its memory.

Source: CUDA Driver API reference, "Stream Management", "Graph Management", "Occupancy" and "Event Management".
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_BLOCKING_WITHOUT_TIME = 1 | 2  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING
_WITH_TIME = 0  # CU_EVENT_DEFAULT
_PACKED_ALIGNMENT = 512


class NoDeviceMemory(Exception):
    """Error that the device has no room for a buffer."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """A range of the device's memory."""

    address: int
    size_bytes: int

    @property
    def end(self) -> int:
        """First address after the range."""
        return self.address + self.size_bytes


def packed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return the offsets of parts with these sizes in a buffer, and the buffer's size, in bytes."""
    offsets, end = [], 0
    for size_bytes in sizes:
        offsets.append(end)
        end += -(-size_bytes // _PACKED_ALIGNMENT) * _PACKED_ALIGNMENT
    return offsets, end


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

    def __init__(self, driver: Driver, stream: int, *, is_timed: bool = False) -> None:
        """Record an event after all present work of ``stream``: to wait for, or with a time."""
        self._driver = driver
        self._handle = ctypes.c_void_p()
        driver.call("cuEventCreate", ctypes.byref(self._handle), _WITH_TIME if is_timed else _BLOCKING_WITHOUT_TIME)
        driver.call("cuEventRecord", self._handle, ctypes.c_void_p(stream))

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
class Chunk:
    """Device memory whose first ``used_bytes`` may not be zero."""

    address: int
    size_bytes: int
    used_bytes: int


class CudaBuffer:
    """A chunk of device memory, which returns to its pool when this object is freed."""

    def __init__(self, chunk: Chunk, free: list[Chunk]) -> None:
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
class PoolMemory:
    """Memory of a driver's pool of our own, until ``give_back``."""

    address: int
    _driver: Driver
    _pool: ctypes.c_void_p

    def data_ptr(self) -> int:
        """Return the address."""
        return self.address

    def give_back(self, stream: ctypes.c_void_p) -> None:
        """Give the memory back to the driver after all present work of ``stream``, and wait for that."""
        self._driver.call("cuMemFreeAsync", ctypes.c_uint64(self.address), stream)
        self._driver.call("cuStreamSynchronize", stream)
        self._driver.call("cuMemPoolTrimTo", self._pool, ctypes.c_size_t(0))


class PoolProperties(ctypes.Structure):
    """The driver's type ``CUmemPoolProps``."""

    _fields_ = (
        ("allocation_type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location_type", ctypes.c_int),
        ("location", ctypes.c_int),
        ("reserved", ctypes.c_ubyte * 72),
    )

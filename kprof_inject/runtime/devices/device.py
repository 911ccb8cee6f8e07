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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.runtime.devices.cuda_driver import (
    Chunk,
    CudaBuffer,
    CudaEvent,
    Driver,
    MemoryRange,
    NoDeviceMemory,
    PoolMemory,
    PoolProperties,
    relaxed_capture,
)
from kprof_inject.runtime.devices.cuda_kernels import ENTRY, CudaKernels
from kprof_inject.runtime.devices.snapshot import Snapshot, Staging

_MAX_NAME_BYTES = 256
_DEFAULT_STREAM = 0
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_HIGHEST_PRIORITY = -1000  # the driver uses the nearest priority that it has
# Attributes of a pointer that distinguish the device's own memory from the host's, other devices' and managed memory.
_MEMORY_TYPE, _IS_MANAGED, _DEVICE_ORDINAL = 2, 8, 9  # CU_POINTER_ATTRIBUTE_*
_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE
_CHUNK_UNIT_BYTES = 1 << 16
_WORD_BYTES = 8
_WARP_THREADS = 32
# A kernel needs the attribute for more shared memory than this (CUDA C++ Programming Guide, "Dynamic shared memory").
_MAX_DEFAULT_SHARED_BYTES = 48 << 10
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
_DIGEST_CTAS, _DIGEST_THREADS = 1024, 256
_CLOCK_TRIES = 50
# Time limit of all tries together, because on a busy device each one waits.
_MAX_CLOCK_NS = 20_000_000
# So long that the timer's step at both ends, 32 ns or 1 us each, is at most 2 % of it.
_COUNTED_NS = 100_000


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


class Device:
    """NVIDIA's devices by their driver, whose present context names the current one.

    ``torch_device`` has others, which override all that call the driver. Methods without a ``device`` work on
    the current one. Streams are the handles that Triton launches on.

    Memory is kept for reuse, because the driver waits for the device to free memory. A chunk that work on a stream has
    used is used again only on that stream, where later work follows the earlier. A chunk that was fetched is zero
    again, so the next launch needs no work on the program's stream to zero it.
    """

    def __init__(self, driver: Driver) -> None:
        """Begin without any memory or loaded kernel."""
        self._driver = driver
        self._kernels = CudaKernels(driver)
        self._free: defaultdict[tuple[int, int], list[Chunk]] = defaultdict(list)
        # Not pinned: to free pinned memory, the driver waits for the device.
        self._fetched = bytearray()
        self._unused_staging: defaultdict[tuple[int, int], list[Staging]] = defaultdict(list)
        self._streams: dict[tuple[int, int], ctypes.c_void_p] = {}
        self._pools: dict[int, ctypes.c_void_p] = {}
        self._timer_words: dict[int, CudaBuffer] = {}
        self._clock_words: dict[int, CudaBuffer] = {}
        self._empty_shared_bytes: dict[int, int] = {}

    def prepare(self) -> None:
        """Do all synchronising set-up of the current device now, so that later calls never block.

        A kernel of the program's may wait for its next launch, which would never come. So this is called where Triton
        loads a kernel, for which the driver waits, too.
        """
        self._kernels.load(self.current())

    def current(self) -> int:
        """Return the index of the current device."""
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
        """Return the UUIDs of all devices; an unknown one is empty."""
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
        """Return True if the program is capturing the current stream into a graph; without torch, none does."""
        return False

    def current_stream(self) -> int:
        """Return the current stream."""
        return _DEFAULT_STREAM

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

    def is_local(self, address: int) -> bool:
        """Return whether an address is in memory of the current device that no host or other device shares."""
        device = self.current()
        if self._attribute(address, _MEMORY_TYPE) != _DEVICE_MEMORY or self._attribute(address, _IS_MANAGED):
            return False
        return self._attribute(address, _DEVICE_ORDINAL) == device

    def _attribute(self, address: int, attribute: int) -> int:
        value = ctypes.c_uint()
        self._driver.call("cuPointerGetAttribute", ctypes.byref(value), attribute, ctypes.c_uint64(address))
        return value.value

    def allocations(self) -> FindAllocation:
        """Return a function that finds the present allocation around an address of the current device."""
        return self._allocation_at

    def _allocation_at(self, address: int) -> MemoryRange | None:
        start, size = ctypes.c_uint64(), ctypes.c_size_t()
        status = self._driver.functions.cuMemGetAddressRange_v2(
            ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(address)
        )
        return None if status or not size.value else MemoryRange(start.value, size.value)

    def zeros(self, size_bytes: int, stream: int) -> Buffer:
        """Allocate zeroed memory for work on ``stream``. Raises ``NoDeviceMemory``."""
        free = self._free[self.current(), stream]
        chunk = _take_chunk(free, size_bytes) or self._new_chunk(size_bytes)
        if chunk.used_bytes:
            self._zero(chunk.address, chunk.used_bytes, ctypes.c_void_p(stream))
        chunk.used_bytes = size_bytes
        return CudaBuffer(chunk, free)

    def zeros_outside_graphs(self, size_bytes: int) -> Buffer:
        """Allocate memory that is zeroed once, now, and belongs to no captured graph. Raises ``NoDeviceMemory``."""
        with relaxed_capture():
            return self._zeros_now(size_bytes, self.current())

    def _zeros_now(self, size_bytes: int, device: int) -> CudaBuffer:
        """Return zeroed memory for work on any stream and in graphs, which is not used again for another buffer."""
        stream = self._stream(device)
        chunk = self._new_chunk(size_bytes)
        self._zero(chunk.address, size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        return CudaBuffer(chunk, [])

    def _new_chunk(self, size_bytes: int) -> Chunk:
        size_bytes = -(-size_bytes // _CHUNK_UNIT_BYTES) * _CHUNK_UNIT_BYTES
        address = ctypes.c_uint64()
        with relaxed_capture():  # another thread may be capturing
            self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        return Chunk(address.value, size_bytes, size_bytes)

    def clear(self, buffer: Any, size_bytes: int, stream: int) -> None:
        """Set the first bytes of a buffer to zero, in the order of ``stream``."""
        self._zero(buffer.data_ptr(), size_bytes, ctypes.c_void_p(stream))

    def _zero(self, address: int, size_bytes: int, stream: ctypes.c_void_p) -> None:
        self._driver.call("cuMemsetD8Async", ctypes.c_uint64(address), 0, ctypes.c_size_t(size_bytes), stream)

    def borrowed(self, size_bytes: int, stream: int) -> AbstractContextManager[Buffer]:
        """Lend zeroed memory for work on ``stream``.

        The end of the context waits for the stream, and gives the memory back to the device. Entering the context
        raises ``NoDeviceMemory``.
        """
        return self._borrowed(size_bytes, self.current(), stream)

    @contextmanager
    def _borrowed(self, size_bytes: int, device: int, stream: int) -> Iterator[PoolMemory]:
        memory, handle = self._of_pool(size_bytes, device, stream), ctypes.c_void_p(stream)
        try:
            self._zero(memory.address, size_bytes, handle)
            yield memory
        finally:
            memory.give_back(handle)

    def taken(self, size_bytes: int, device: int, stream: int) -> PoolMemory:
        """Take zeroed memory for work that follows the present work of ``stream``. Raises ``NoDeviceMemory``."""
        memory = self._of_pool(size_bytes, device, stream)
        self._zero(memory.address, size_bytes, ctypes.c_void_p(stream))
        return memory

    def _of_pool(self, size_bytes: int, device: int, stream: int) -> PoolMemory:
        """Allocate memory in the order of a stream; only that stream waits for it."""
        if device not in self._pools:
            # CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE
            pool, properties = ctypes.c_void_p(), PoolProperties(1, 0, 1, device)
            with relaxed_capture():  # another thread may be capturing
                self._driver.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(properties))
            self._pools[device] = pool
        pool, address, size = self._pools[device], ctypes.c_uint64(), ctypes.c_size_t(size_bytes)
        self._driver.call("cuMemAllocFromPoolAsync", ctypes.byref(address), size, pool, ctypes.c_void_p(stream))
        return PoolMemory(address.value, self._driver, pool)

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy between two addresses of the device or the host, in the order of ``stream``."""
        addresses = ctypes.c_uint64(to), ctypes.c_uint64(source)
        self._driver.call("cuMemcpyAsync", *addresses, ctypes.c_size_t(size_bytes), ctypes.c_void_p(stream))

    def contents(self, address: int, size_bytes: int, stream: int) -> memoryview:
        """Return the contents of memory after all present work of ``stream``, which this waits for."""
        return self._contents(address, size_bytes, self.current(), stream)

    def _contents(self, address: int, size_bytes: int, device: int, stream: int) -> memoryview:
        self._driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))
        return self.settled(address, size_bytes, device)

    def settled(self, address: int, size_bytes: int, device: int) -> memoryview:
        """Return the contents of memory that no queued work writes to."""
        data = bytearray(size_bytes)
        if size_bytes:
            self._copy_to_host(data, address, size_bytes, device)
            self._driver.call("cuStreamSynchronize", self._stream(device))
        return memoryview(data)

    def _copy_to_host(self, to: bytearray, address: int, size_bytes: int, device: int) -> None:
        """Queue a copy on a private stream: a copy on the default one waits for the program's work."""
        place = (ctypes.c_char * size_bytes).from_buffer(to)
        source, size = ctypes.c_uint64(address), ctypes.c_size_t(size_bytes)
        self._driver.call("cuMemcpyDtoHAsync_v2", place, source, size, self._stream(device))

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        """Wait for ``done``, and return the buffer's bytes, which are valid until the next call; zero the buffer.

        No work may write to the buffer any more. Only one thread may call this.
        """
        with relaxed_capture(), self.selected(device):
            done.synchronize()
            return self._fetch(buffer, size_bytes, device)

    def _fetch(self, buffer: CudaBuffer, size_bytes: int, device: int) -> memoryview:
        if len(self._fetched) < size_bytes:
            self._fetched = bytearray()  # freed before there is a larger one
            try:
                self._fetched = bytearray(size_bytes)
            except MemoryError:
                raise NoDeviceMemory(f"the host has no memory for {size_bytes} bytes") from None
        stream = self._stream(device)
        self._copy_to_host(self._fetched, buffer.data_ptr(), size_bytes, device)
        self._zero(buffer.data_ptr(), size_bytes, stream)
        self._driver.call("cuStreamSynchronize", stream)
        buffer.note_zeroed(size_bytes)
        return memoryview(self._fetched)[:size_bytes]

    def _stream(self, device: int, priority: int = 0) -> ctypes.c_void_p:
        """Return a private stream."""
        if (device, priority) not in self._streams:
            stream = ctypes.c_void_p()
            self._driver.call("cuStreamCreateWithPriority", ctypes.byref(stream), _NON_BLOCKING, priority)
            self._streams[device, priority] = stream
        return self._streams[device, priority]

    def mark(self, stream: int) -> Event:
        """Record an event after all present work of ``stream``, for other threads to wait for."""
        return CudaEvent(self._driver, stream)

    def timing_mark(self, stream: int) -> Event:
        """Record an event after all present work of ``stream``, for ``elapsed_time``."""
        return CudaEvent(self._driver, stream, is_timed=True)

    def snapshot(self, ranges: Sequence[MemoryRange], stream: int) -> Snapshot:
        """Queue copies of memory ranges, and digests of them, after all present work of ``stream``.

        Raises ``NoDeviceMemory`` if not even the digests fit.
        """
        return Snapshot(self, self._driver, ranges, stream)

    @contextmanager
    def staging(self, size_bytes: int) -> Iterator[Any]:
        """Lend a thread what it needs to read up to ``size_bytes`` at once from snapshots on the current device.

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

    def hold(self, stream: int, for_ns: int) -> None:
        """Keep ``stream`` busy for at least ``for_ns``, in which the host can queue the work to be timed."""
        function = self._kernels.function(self.current(), b"kprof_hold")
        self._kernels.launch(function, ctypes.c_void_p(stream), ctypes.c_uint64(for_ns))

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        """Launch one CTA of an empty kernel, with this number of threads and this much shared memory.

        For more shared memory than the default limit, the kernel gets the same attributes as Triton sets.
        """
        device = self.current()
        function = self._kernels.function(device, b"kprof_empty")
        if shared_bytes > self._empty_shared_bytes.get(device, _MAX_DEFAULT_SHARED_BYTES):
            self._driver.call("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            self._driver.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared_bytes)
            self._empty_shared_bytes[device] = shared_bytes
        self._kernels.launch(function, ctypes.c_void_p(stream), threads=threads, shared_bytes=shared_bytes)

    def digest(self, address: int, size_bytes: int, stream: int) -> int | None:
        """Return a digest of memory after all present work of ``stream``; None if the device cannot compute it.

        Different contents have the same digest with a probability of 2 to the -64.
        """
        device = self.current()
        with self._borrowed(_WORD_BYTES, device, stream) as word:
            self.queue_digest(device, address, size_bytes, word.address, stream)
            return self._words_at(word.address, 1, device, stream)[0]

    def queue_digest(self, device: int, address: int, size_bytes: int, word: int, stream: int) -> None:
        """Queue a digest of memory, which is added to the 64-bit word at ``word``; ``address`` is a multiple of 8."""
        arguments = (ctypes.c_uint64(address), ctypes.c_uint64(size_bytes), ctypes.c_uint64(word))
        function = self._kernels.function(device, b"kprof_digest")
        self._kernels.launch(function, ctypes.c_void_p(stream), *arguments, ctas=_DIGEST_CTAS, threads=_DIGEST_THREADS)

    def read_clock(self, device: int) -> ClockRecord | None:
        """Relate the timer that CTAs read to the host's clock, with the smallest error of several readings."""
        with relaxed_capture(), self.selected(device):
            return min(self._clock_readings(device), key=lambda reading: reading.error_ns, default=None)

    def _clock_readings(self, device: int) -> Iterator[ClockRecord]:
        function = self._kernels.function(device, b"kprof_read_timer")
        stream = self._stream(device, _HIGHEST_PRIORITY)  # above the program's
        if device not in self._timer_words:
            self._timer_words[device] = self._zeros_now(_WORD_BYTES, device)
        word = self._timer_words[device]
        begun = time.time_ns()
        for _ in range(_CLOCK_TRIES):
            before = time.time_ns()
            self._kernels.launch(function, stream, ctypes.c_uint64(word.data_ptr()))
            self._driver.call("cuStreamSynchronize", stream)
            after = time.time_ns()
            read = int.from_bytes(self._fetch(word, _WORD_BYTES, device), "little")
            yield ClockRecord(device, (before + after) // 2, read, (after - before + 1) // 2)
            if after - begun > _MAX_CLOCK_NS:
                return

    def sm_clock_hz(self, stream: int) -> float | None:
        """Measure the frequency of the SMs' clock after all present work of ``stream``."""
        device = self.current()
        if device not in self._clock_words:
            self._clock_words[device] = self._zeros_now(2 * _WORD_BYTES, device)
        address = self._clock_words[device].data_ptr()
        function = self._kernels.function(device, b"kprof_count_cycles")
        self._kernels.launch(function, ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint64(_COUNTED_NS))
        cycles, elapsed_ns = self._words_at(address, 2, device, stream)
        return 1e9 * cycles / elapsed_ns

    def counted(self, ptx: str, words: int, stream: int) -> list[int]:
        """Run the only kernel of a PTX text once, with one CTA of one warp, and return the 64-bit words that it writes.

        It runs after all present work of ``stream``. The result is empty if the device does not accept PTX.
        """
        device, module, function = self.current(), ctypes.c_void_p(), ctypes.c_void_p()
        kernel = ENTRY.search(ptx)
        self._driver.call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        try:
            name = kernel[1].encode() if kernel else b""
            self._driver.call("cuModuleGetFunction", ctypes.byref(function), module, name)
            with self._borrowed(words * _WORD_BYTES, device, stream) as buffer:
                address = ctypes.c_uint64(buffer.address)
                self._kernels.launch(function, ctypes.c_void_p(stream), address, threads=_WARP_THREADS)
                return self._words_at(buffer.address, words, device, stream)
        finally:
            self._driver.call("cuModuleUnload", module)

    def _words_at(self, address: int, words: int, device: int, stream: int) -> list[int]:
        return self._contents(address, words * _WORD_BYTES, device, stream).cast("Q").tolist()


def _take_chunk(free: list[Chunk], size_bytes: int) -> Chunk | None:
    """Take the smallest chunk that is large enough, and at most twice as large as needed."""
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

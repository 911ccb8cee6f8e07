"""The device of a worker, which needs neither torch nor a framework's choice of device and stream.

It has memory at given addresses, so that pointers in saved memory stay valid.

Source: CUDA Driver API reference, "Virtual Memory Management". An address can be reserved only if nothing in this
process is there, neither on the device nor on the host, whose address spaces are one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kprof_inject.errors import KprofError
from kprof_inject.runtime.devices.cuda_driver import ENTRY, Driver, MemoryRange, loaded_driver
from kprof_inject.runtime.devices.device import WORD_BYTES, Buffer, Device, PoolMemory

# The driver places reservations at multiples of this (seen with driver 580: an address in between is moved up).
_RESERVED_UNIT_BYTES = 32 << 20
# CU_MEM_ALLOC_GRANULARITY_MINIMUM of NVIDIA's GPUs, on which sizes and offsets of mappings depend.
_PAGE_BYTES = 2 << 20
_PINNED, _ON_DEVICE, _READ_WRITE = 1, 1, 3  # CU_MEM_ALLOCATION_TYPE_*, CU_MEM_LOCATION_TYPE_*, CU_MEM_ACCESS_FLAGS_*
# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_MAJOR, _MINOR = 75, 76
_WARP_THREADS = 32
_COUNTED_NS = 100_000  # so long that the timer's step at both ends, 32 ns or 1 us each, is at most 2 % of it


class AddressTaken(Exception):
    """Error that something of this process is at an address; in another process, it may be free."""


class _Location(ctypes.Structure):
    """The driver's type ``CUmemLocation``."""

    _fields_ = (("type", ctypes.c_int), ("device", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):
    """The driver's type ``CUmemAllocationProp``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows_metadata", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """The driver's type ``CUmemAccessDesc``."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


def areas_of(ranges: Sequence[MemoryRange], unit_bytes: int) -> list[MemoryRange]:
    """Return the smallest areas, in whole units, that contain the ranges, which are in the order of their addresses."""
    areas: list[MemoryRange] = []
    for one in ranges:
        start = one.address // unit_bytes * unit_bytes
        end = -(-one.end // unit_bytes) * unit_bytes
        if areas and start <= areas[-1].end:
            last = areas.pop()
            start, end = last.address, max(end, last.end)
        areas.append(MemoryRange(start, end - start))
    return areas


@dataclass(slots=True)
class FixedMemory:
    """Zeroed memory of a device at given ranges, until ``close``.

    Memory around them, to the next multiple of 32 MiB and for as much again where that is free, can be accessed too:
    kernels read beyond their tensors. All of that is little memory, mapped many times.
    """

    driver: Driver
    device: int
    _reserved: list[MemoryRange] = field(default_factory=list)
    _mapped: list[MemoryRange] = field(default_factory=list)
    _handles: list[int] = field(default_factory=list)

    def map(self, ranges: Sequence[MemoryRange]) -> None:
        """Map memory at the ranges, which are in ascending order.

        Raises ``AddressTaken``, and ``NoDeviceMemory``; in any case, ``close`` follows.
        """
        areas = areas_of(ranges, _RESERVED_UNIT_BYTES)
        for area in areas:
            if not self._reserve(area):
                raise AddressTaken(f"another allocation is at {area.address:#x}")
        pages = areas_of(ranges, _PAGE_BYTES)
        for page in pages:
            self._map(page, self._created(page.size_bytes))
            self.driver.call("cuMemsetD8_v2", page.address, 0, page.size_bytes)
        guards = []
        for area in areas:
            for address in (area.address - _RESERVED_UNIT_BYTES, area.end):
                guard = MemoryRange(address, _RESERVED_UNIT_BYTES)
                if address > 0 and self._reserve(guard):
                    guards.append(guard)
        # A piece of memory can be mapped several times, but only as a whole.
        pieces: dict[int, int] = {}
        for area in (*areas, *guards):
            for gap in _gaps(area, pages):
                if gap.size_bytes not in pieces:
                    pieces[gap.size_bytes] = self._created(gap.size_bytes)
                self._map(gap, pieces[gap.size_bytes])

    def _reserve(self, area: MemoryRange) -> bool:
        address = ctypes.c_uint64()
        if self.driver.status("cuMemAddressReserve", ctypes.byref(address), area.size_bytes, 0, area.address, 0):
            return False
        self._reserved.append(MemoryRange(address.value, area.size_bytes))
        return address.value == area.address

    def _created(self, size_bytes: int) -> int:
        properties = _AllocationProperties(type=_PINNED, location=_Location(_ON_DEVICE, self.device))
        self._handles.append(self.driver.get("cuMemCreate", size_bytes, ctypes.byref(properties), 0))
        return self._handles[-1]

    def _map(self, at: MemoryRange, handle: int) -> None:
        self.driver.call("cuMemMap", at.address, at.size_bytes, 0, handle, 0)
        self._mapped.append(at)
        access = _Access(_Location(_ON_DEVICE, self.device), _READ_WRITE)
        self.driver.call("cuMemSetAccess", at.address, at.size_bytes, ctypes.byref(access), 1)

    def close(self) -> None:
        """Unmap and free everything. No work may use it any more."""
        for at in self._mapped:
            self.driver.call("cuMemUnmap", at.address, at.size_bytes)
        for handle in self._handles:
            self.driver.call("cuMemRelease", handle)
        for area in self._reserved:
            self.driver.call("cuMemAddressFree", area.address, area.size_bytes)
        self._mapped, self._handles, self._reserved = [], [], []


def _gaps(area: MemoryRange, pages: Sequence[MemoryRange]) -> Iterator[MemoryRange]:
    """Yield the parts of an area without pages, each at most as large as a unit of reservations."""
    start = area.address
    for page in (*pages, MemoryRange(area.end, 0)):
        if page.end < area.address or page.address > area.end:
            continue
        while start < page.address:
            size_bytes = min(page.address - start, _RESERVED_UNIT_BYTES)
            yield MemoryRange(start, size_bytes)
            start += size_bytes
        start = max(start, page.end)


class WorkerDevice(Device):
    """The only device of this process, with memory at fixed addresses."""

    def __init__(self, driver: Driver, index: int) -> None:
        super().__init__(driver)
        self._index = index
        self._context = driver.context(index)
        self._context.__enter__()  # of this thread, from now on

    @cached_property
    def _words(self) -> Buffer:
        # Not at once: it could be at an address that a launch's memory needs.
        return self.zeros_outside_graphs(2 * WORD_BYTES)

    def mapped(self, ranges: list[MemoryRange]) -> FixedMemory:
        """Map memory at ranges, until the result's ``close``. Raises ``AddressTaken`` and ``NoDeviceMemory``."""
        memory = FixedMemory(self._driver, self._index)
        try:
            memory.map(ranges)
        except BaseException:
            memory.close()
            raise
        return memory

    def read(self, memory: MemoryRange, stream: int) -> None:
        """Queue a kernel that reads all of a range, for its effect on the L2."""
        self.queue_digest(memory.address, memory.size_bytes, self._words.data_ptr(), stream)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to device memory, now."""
        self._driver.call("cuMemcpyHtoD_v2", address, data, len(data))

    @contextmanager
    def borrowed(self, size_bytes: int, stream: int) -> Iterator[PoolMemory]:
        """Lend zeroed memory for work on ``stream``.

        The end of the context waits for the stream, and gives the memory back to the device. Entering the context
        raises ``NoDeviceMemory``.
        """
        memory = self.taken(size_bytes, stream)
        try:
            yield memory
        finally:
            memory.give_back(stream)

    def digest(self, address: int, size_bytes: int, stream: int) -> int:
        """Return a digest of memory after all present work of ``stream``. See ``queue_digest``."""
        with self.borrowed(WORD_BYTES, stream) as word:
            self.queue_digest(address, size_bytes, word.address, stream)
            return self._words_at(word.address, 1, stream)[0]

    def sm_clock_hz(self, stream: int) -> float:
        """Measure the frequency of the SMs' clock after all present work of ``stream``."""
        function, address = self._kernels.function(self._index, "kprof_count_cycles"), self._words.data_ptr()
        self._kernels.launch(function, stream, address, _COUNTED_NS)
        cycles, elapsed_ns = self._words_at(address, 2, stream)
        return 1e9 * cycles / elapsed_ns

    def counted(self, ptx: str, words: int, stream: int) -> list[int]:
        """Run the only kernel of a PTX text once, with one CTA of one warp, and return the 64-bit words that it writes.

        It runs after all present work of ``stream``.
        """
        kernel = ENTRY.search(ptx)
        module = self._driver.get("cuModuleLoadData", ptx.encode())
        try:
            function = self._driver.get("cuModuleGetFunction", module, kernel[1].encode() if kernel else b"")
            with self.borrowed(words * WORD_BYTES, stream) as buffer:
                self._kernels.launch(function, stream, buffer.address, threads=_WARP_THREADS)
                return self._words_at(buffer.address, words, stream)
        finally:
            self._driver.call("cuModuleUnload", module)

    def _words_at(self, address: int, words: int, stream: int) -> list[int]:
        return self.contents(address, words * WORD_BYTES, stream).cast("Q").tolist()


def worker_device(name: str, uuid: str) -> WorkerDevice:
    """Begin to use the device with this UUID, or another one with this name, or else the first one.

    Triton then launches on it, without torch. Raises ``KprofError`` if this machine has no NVIDIA GPU.
    """
    from triton.runtime.driver import driver

    functions, count = loaded_driver(), ctypes.c_int()
    if functions is None or functions.cuInit(0) or functions.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise KprofError("this machine has no NVIDIA GPU", hint="run it where there is one")
    cuda = Driver(functions)
    devices = Device(cuda)
    names, uuids = devices.names(), devices.uuids()
    index = 0
    if uuid in uuids:
        index = uuids.index(uuid)
    elif name in names:
        index = names.index(name)
    device = WorkerDevice(cuda, index)
    driver.set_active(_triton_driver(cuda, index))
    return device


def _triton_driver(cuda: Driver, index: int) -> Any:
    """Return Triton's driver for a device. Triton up to 3.8 makes its own only with torch."""
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils

    handle = cuda.get("cuDeviceGet", index)
    major, minor = (cuda.get("cuDeviceGetAttribute", attribute, handle) for attribute in (_MAJOR, _MINOR))

    class WorkerDriver(CudaDriver):  # type: ignore[misc]
        def __init__(self) -> None:
            self.utils = CudaUtils()
            self.launcher_cls = CudaLauncher
            self.get_device_capability = lambda device: (major, minor)
            self.get_current_stream = lambda device: 0
            self.get_current_device = lambda: index
            self.set_current_device = lambda device: None

    return WorkerDriver()

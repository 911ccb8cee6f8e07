"""The fake GPU as capturing sees it."""

from __future__ import annotations

import ctypes
import mmap
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from fake_gpu.gpu import SM_CLOCK_HZ, Block, FakeGpu
from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.runtime.devices.cuda_driver import MemoryRange, NoDeviceMemory
from kprof_inject.runtime.devices.device import Buffer, FindAllocation
from kprof_inject.runtime.devices.worker_device import AddressTaken, areas_of


@dataclass
class FakeEvent:
    """``is_held``: the host, which asks for the first time, was faster than the device."""

    gpu: FakeGpu
    at_ns: int | None = None
    is_held: bool = False

    def happen(self) -> None:
        self.at_ns = self.gpu.now_ns

    def synchronize(self) -> None:
        with self.gpu.changed:
            if not self.gpu.changed.wait_for(lambda: self.at_ns is not None, timeout=600):
                raise RuntimeError("the event never happened")

    def query(self) -> bool:
        was_held, self.is_held = self.is_held, False
        return self.at_ns is not None and not was_held

    def elapsed_time(self, end: FakeEvent) -> float:
        if self.at_ns is None or end.at_ns is None:
            raise RuntimeError("both events must have happened")
        return (end.at_ns - self.at_ns) / 1e6


@dataclass(eq=False)
class FakePoolMemory:
    """Memory that is noted until it is given back."""

    gpu: FakeGpu
    block: Block

    @property
    def address(self) -> int:
        return self.block.address

    def give_back(self, stream: int) -> None:
        self.gpu.taken.remove(self)


@dataclass
class FakeStaging:
    gpu: FakeGpu

    def read(self, address: int, size_bytes: int) -> memoryview:
        return memoryview(ctypes.string_at(address, size_bytes))


_PAGE_BYTES = 4096
# mmap(2): MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
_MAP_FLAGS = 0x2 | 0x20 | 0x100000
_MAP_FAILED = ctypes.c_void_p(-1).value


class MappedPages:
    """Memory of this process at given addresses."""

    def __init__(self) -> None:
        self._areas: list[MemoryRange] = []
        self._libc = ctypes.CDLL(None)
        self._libc.mmap.restype = ctypes.c_void_p

    def map(self, ranges: Sequence[MemoryRange]) -> None:
        for area in areas_of(ranges, _PAGE_BYTES):
            address, size = ctypes.c_void_p(area.address), ctypes.c_size_t(area.size_bytes)
            found = self._libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, _MAP_FLAGS, -1, ctypes.c_size_t(0))
            if found in (None, _MAP_FAILED):
                raise AddressTaken(f"something is at {area.address:#x}")
            self._areas.append(area)

    def close(self) -> None:
        for area in self._areas:
            self._libc.munmap(ctypes.c_void_p(area.address), ctypes.c_size_t(area.size_bytes))
        self._areas = []


@dataclass
class FakeDevice:
    """See ``kprof_inject.runtime.devices.worker_device.WorkerDevice``."""

    gpu: FakeGpu
    can_save_launches: bool = True
    _staging: bytearray = field(default_factory=bytearray)
    _is_held: bool = False

    def prepare(self) -> None:
        pass

    def current(self) -> int:
        return 0

    def names(self) -> list[str]:
        return ["Fake H200"]

    def uuids(self) -> list[str]:
        return ["fake"]

    def is_capturing(self) -> bool:
        return self.gpu.is_capturing()

    def zeros(self, size_bytes: int, stream: int) -> Block:
        self.gpu.assert_outside_graph("allocating on a stream")
        return self._allocate(size_bytes)

    def zeros_outside_graphs(self, size_bytes: int) -> Block:
        return self._allocate(size_bytes)

    def clear(self, buffer: Block, size_bytes: int, stream: int) -> None:
        self.gpu.assert_outside_graph("clearing a buffer")
        self.gpu.enqueue(stream, lambda: buffer.bytes[:size_bytes].fill(0))

    def mark(self, stream: int) -> FakeEvent:
        self.gpu.assert_outside_graph("recording an event")
        event = FakeEvent(self.gpu)
        self.gpu.enqueue(stream, event.happen)
        return event

    def timing_mark(self, stream: int) -> FakeEvent:
        event = self.mark(stream)
        event.is_held, self._is_held = self._is_held, False
        return event

    def current_stream(self) -> int:
        return self.gpu.stream()

    def is_local(self, address: int) -> bool:
        return True

    def hold(self, stream: int, for_ns: int) -> None:
        self.gpu.assert_outside_graph("holding a stream")
        self._is_held = for_ns >= self.gpu.host_ns

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        self.gpu.assert_outside_graph("launching an empty kernel")
        self.gpu.launch_empty(stream, threads, shared_bytes)

    @contextmanager
    def borrowed(self, size_bytes: int, stream: int) -> Iterator[Buffer]:
        self.gpu.free_bytes -= size_bytes
        try:
            yield self.gpu.allocate_in_host(size_bytes)
        finally:
            self.gpu.free_bytes += size_bytes

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        self.gpu.enqueue(stream, lambda: ctypes.memmove(to, source, size_bytes))

    def digest(self, address: int, size_bytes: int, stream: int) -> int:
        self.gpu.wait()
        return zlib.crc32(ctypes.string_at(address, size_bytes))

    def allocations(self) -> FindAllocation:
        return lambda address: next((one for one in self.gpu.allocations if one.address <= address < one.end), None)

    def contents(self, address: int, size_bytes: int, stream: int) -> memoryview:
        self.gpu.wait()
        return memoryview(ctypes.string_at(address, size_bytes))

    def free_bytes(self) -> int:
        return self.gpu.free_bytes

    def taken(self, size_bytes: int, stream: int) -> FakePoolMemory:
        self.gpu.assert_outside_graph("allocating on a stream")
        self.gpu.taken.append(FakePoolMemory(self.gpu, self.gpu.allocate_in_host(size_bytes)))
        return self.gpu.taken[-1]

    def queue_digest(self, address: int, size_bytes: int, word: int, stream: int) -> None:
        def digest() -> None:
            ctypes.c_uint64.from_address(word).value += zlib.crc32(ctypes.string_at(address, size_bytes))

        self.gpu.enqueue(stream, digest)

    def staging(self, size_bytes: int) -> AbstractContextManager[FakeStaging]:
        return nullcontext(FakeStaging(self.gpu))

    def mapped(self, ranges: Sequence[MemoryRange]) -> MappedPages:
        pages = MappedPages()
        try:
            pages.map(ranges)
        except BaseException:
            pages.close()
            raise
        return pages

    def read(self, memory: MemoryRange, stream: int) -> None:
        self.gpu.enqueue(stream, lambda: self.gpu.read.append(memory))

    def write(self, address: int, data: bytes) -> None:
        ctypes.memmove(address, data, len(data))

    def fetch(self, buffer: Block, size_bytes: int, device: int, done: FakeEvent) -> memoryview:
        done.synchronize()
        if len(self._staging) < size_bytes:
            self._staging = bytearray(size_bytes)
        self._staging[:size_bytes] = buffer.bytes[:size_bytes].tobytes()
        return memoryview(self._staging)[:size_bytes]

    def selected(self, device: int) -> AbstractContextManager[None]:
        return nullcontext()

    def synchronise(self, device: int) -> None:
        self.gpu.wait()

    def read_clock(self, device: int) -> ClockRecord | None:
        return ClockRecord(device, time.time_ns(), self.gpu.now_ns, 1_000)

    def sm_clock_hz(self, stream: int) -> float:
        self.gpu.wait()
        return SM_CLOCK_HZ

    def counted(self, ptx: str, words: int, stream: int) -> list[int]:
        return []

    def unaffected_by_graphs(self) -> AbstractContextManager[None]:
        return self.gpu.relaxed()

    def _allocate(self, size_bytes: int) -> Block:
        try:
            return self.gpu.allocate(size_bytes)
        except MemoryError as error:
            raise NoDeviceMemory(str(error)) from None

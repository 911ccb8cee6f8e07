"""The fake GPU as capturing sees it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from fake_gpu.gpu import SM_CLOCK_HZ, Block, FakeGpu
from kprof_inject.runtime.devices.device import Buffer, ClockReading, NoDeviceMemory


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
            if not self.gpu.changed.wait_for(lambda: self.at_ns is not None, timeout=60):
                raise RuntimeError("the event never happened")

    def query(self) -> bool:
        was_held, self.is_held = self.is_held, False
        return self.at_ns is not None and not was_held

    def elapsed_time(self, end: FakeEvent) -> float:
        if self.at_ns is None or end.at_ns is None:
            raise RuntimeError("both events must have happened")
        return (end.at_ns - self.at_ns) / 1e6


@dataclass
class FakeDevice:
    """See ``kprof_inject.runtime.devices.device.Device``."""

    gpu: FakeGpu
    _staging: bytearray = field(default_factory=bytearray)
    _is_held: bool = False

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

    has_own_memory = True

    def is_local(self, address: int) -> bool:
        return True

    def hold(self, stream: int, for_ns: int) -> None:
        self.gpu.assert_outside_graph("holding a stream")
        self._is_held = for_ns >= self.gpu.host_ns

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        self.gpu.assert_outside_graph("launching an empty kernel")
        self.gpu.launch_empty(stream, threads, shared_bytes)

    def free_bytes(self) -> int:
        return self.gpu.free_bytes

    @contextmanager
    def borrowed(self, size_bytes: int, stream: int) -> Iterator[Buffer]:
        self.gpu.free_bytes -= size_bytes
        try:
            yield self.gpu.allocate_in_host(size_bytes)
        finally:
            self.gpu.free_bytes += size_bytes

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        self.gpu.enqueue(stream, lambda: ctypes.memmove(to, source, size_bytes))

    def digest(self, address: int, size_bytes: int, stream: int) -> int | None:
        self.gpu.wait()
        return hash(ctypes.string_at(address, size_bytes))

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

    def read_clock(self, device: int) -> ClockReading | None:
        return ClockReading(time.time_ns(), self.gpu.now_ns, 1_000)

    def sm_clock_hz(self, stream: int) -> float | None:
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

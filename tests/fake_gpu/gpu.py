"""The device: memory, streams, graphs, a clock, and kernels that run in the order of their stream."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import END, rows_of
from kprof_inject.capture.cta_samples import ADDRESS_ALIGNMENT, SM_BITS, CtaSample
from kprof_inject.runtime.devices.cuda_driver import MemoryRange

HostKernel = Callable[..., int]
"""Computes what a kernel computes: ``host_kernel(grid, *args)``. Returns the cycles between two of its records."""


def with_ends(words: NDArray[np.uint32], sample: CtaSample) -> NDArray[np.uint8]:
    """The buffer of a sample, from the rows of all CTAs of the grid."""
    if not sample.shift:
        return words.reshape(-1).view(np.uint8)
    row = rows_of(sample, np.arange(sample.ctas))
    ends = np.zeros(sample.ends_bytes // END.itemsize, dtype=END)
    other = np.flatnonzero(row < 0)
    end_ns = words[other, 6] | words[other, 7].astype(np.uint64) << np.uint64(32)
    ends[::-1][other] = end_ns << np.uint64(SM_BITS) | words[other, 2]
    rows = np.zeros((sample.rows, words.shape[1]), dtype=np.uint32)
    rows[row[row >= 0]] = words[row >= 0]
    return np.concatenate([ends.view(np.uint8), rows.reshape(-1).view(np.uint8)])


class Block:
    """Zeroed memory of the device; it is given back with this object. No two blocks ever have one address."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address = address
        self.bytes: NDArray[np.uint8] = np.zeros(size_bytes, dtype=np.uint8)

    def data_ptr(self) -> int:
        return self.address


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel on the device. ``records`` are the scope ids that a warp writes, each with whether it is an end;
    ``delays`` the cycles of each delay, with the operation that it stands before. One that is ``reordered`` takes the
    tiles in another order, which is faster."""

    name: str
    records: tuple[tuple[int, bool], ...]
    delays: tuple[tuple[str, int], ...] = ()
    reordered: bool = False


@dataclass(frozen=True)
class Launch:
    """One launch as the device gets it. ``profile_address`` is 0 for a kernel that wants no profile buffer."""

    kernel: LoadedKernel
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    cta_bytes: int
    profile_address: int
    arguments: tuple[Any, ...]

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def sample(self) -> CtaSample:
        """The CTAs that write records, by the lowest bits of the address."""
        return CtaSample(self.ctas, 1, self.profile_address % ADDRESS_ALIGNMENT)

    @property
    def duration_ns(self) -> int:
        """Records cost the more the more warps there are: who compares kernels with records finds another winner."""
        alone = 20_000 - 100 * self.num_warps - 10 * self.num_stages - REORDERED_NS * self.kernel.reordered
        alone += CTA_NS * self.ctas if self.kernel.name == "blocks" else 0
        delayed = sum(delay_ns(before, cycles) for before, cycles in self.kernel.delays)
        return alone + 200 * self.num_warps * len(self.kernel.records) + delayed


def with_elements(argument: Any) -> Any:
    """The tensor at an address, for host kernels. Nobody says where it ends: copies of memory have room behind them."""
    from kprof_inject.runtime.worker.loaded_launch import Address  # imports Triton

    if not isinstance(argument, Address):
        return argument
    return torch.from_numpy(np.ctypeslib.as_array((ctypes.c_float * 16).from_address(argument.data_ptr())))


REORDERED_NS = 5_000
"""What a kernel saves in another order of its tiles."""

CTA_NS = 100
"""What a CTA of the kernel that has several elements in each costs."""

SM_CLOCK_HZ = 1.5e9
SLACK_CYCLES = 2000
"""Of what stands before a load. Nothing is hidden before a store."""


def delay_ns(before: str, cycles: int) -> int:
    """By how much a delay makes a launch longer."""
    hidden = SLACK_CYCLES if before == "tt.load" else 0
    return round(1e9 * max(cycles - hidden, 0) / SM_CLOCK_HZ)


@dataclass
class Graph:
    """What was captured; each replay runs it again."""

    gpu: FakeGpu
    work: list[Callable[[], None]] = field(default_factory=list)

    def replay(self) -> None:
        for work in self.work:
            self.gpu.enqueue(self.gpu.stream(), work)


class _OfThread(threading.local):
    stream = 0
    graph: Graph | None = None
    is_relaxed = False


class FakeGpu:
    """One device. Streams run what they are given at once, unless they are held back.

    ``refuses`` is asked of each kernel that is loaded; ``largest_block_bytes`` is what an allocation may take at most,
    ``free_bytes`` what the device says that it has left; every launch takes ``longer_ns`` longer than it would, and an
    empty kernel ``launching_ns``, which are in the time of any other as well. ``empty`` has the shapes of empty ones.
    The host takes ``host_ns`` to queue what it times.
    ``allocations`` are what the device knows of memory by its addresses, ``taken`` the copies that are not given back,
    ``read`` what was read for its effect on the L2.
    ``ran`` has every launch that ran, ``freed_writes`` counts those whose profile buffer was there no more.
    ``profile_words`` makes what a launch writes to that: it takes the time when it began, and its host kernel's result.
    """

    host_kernels: Mapping[str, HostKernel]
    profile_words: Callable[[Launch, int, int], NDArray[np.uint32]]

    def __init__(self) -> None:
        self.refuses: Callable[[LoadedKernel], bool] = lambda kernel: False
        self.largest_block_bytes = 1 << 40
        self.free_bytes = 1 << 40
        self.ran: list[Launch] = []
        self.freed_writes = 0
        self.longer_ns = 0
        self.launching_ns = 0
        self.host_ns = 0
        self.empty: list[tuple[int, int]] = []
        self.allocations: list[MemoryRange] = []
        self.taken: list[Any] = []
        self.read: list[MemoryRange] = []
        self.now_ns = 1_000_000
        self.loaded: dict[int, LoadedKernel] = {}
        self._blocks: WeakValueDictionary[int, Block] = WeakValueDictionary()
        self._handles = count(0x1000, 0x10)
        self._addresses = count(1 << 32, 1 << 32)
        self._queues: defaultdict[int, deque[Callable[[], None]]] = defaultdict(deque)
        self._held: set[int] = set()
        self._of_thread = _OfThread()
        self._begin_in_child()
        begin = weakref.WeakMethod(self._begin_in_child)
        os.register_at_fork(after_in_child=lambda: (method := begin()) and method())

    def _begin_in_child(self) -> None:
        """A thread that a forked child does not have may hold the lock there for good."""
        self.changed = threading.Condition(threading.RLock())

    # Memory and kernels

    def allocate(self, size_bytes: int) -> Block:
        """Raises ``MemoryError``."""
        if size_bytes > self.largest_block_bytes:
            raise MemoryError(f"no {size_bytes} bytes in one piece")
        block = Block(next(self._addresses), size_bytes)
        self._blocks[block.data_ptr()] = block
        return block

    def allocate_in_host(self, size_bytes: int) -> Block:
        """At an address where it can be copied to, as the kernels' tensors can."""
        block = Block(0, size_bytes)
        block.address = block.bytes.ctypes.data
        self._blocks[block.address] = block
        return block

    def has_block_of(self, size_bytes: int) -> bool:
        return any(len(block.bytes) == size_bytes for block in self._blocks.values())

    def load(self, kernel: LoadedKernel) -> int:
        """The kernel's handle. Raises ``RuntimeError``, as the driver does."""
        self.assert_outside_graph("loading a kernel")
        if self.refuses(kernel):
            raise RuntimeError("Triton Error [CUDA]: out of resources")
        handle = next(self._handles)
        self.loaded[handle] = kernel
        return handle

    # Streams and graphs of the calling thread

    def stream(self) -> int:
        return self._of_thread.stream

    @contextmanager
    def on_stream(self, stream: int) -> Iterator[None]:
        before, self._of_thread.stream = self._of_thread.stream, stream
        try:
            yield
        finally:
            self._of_thread.stream = before

    def is_capturing(self) -> bool:
        return self._of_thread.graph is not None

    @contextmanager
    def captured(self) -> Iterator[Graph]:
        self._of_thread.graph = Graph(self)
        try:
            yield self._of_thread.graph
        finally:
            self._of_thread.graph = None

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        """What is otherwise forbidden while a graph is captured may be done."""
        before, self._of_thread.is_relaxed = self._of_thread.is_relaxed, True
        try:
            yield
        finally:
            self._of_thread.is_relaxed = before

    def assert_outside_graph(self, what: str) -> None:
        if self.is_capturing() and not self._of_thread.is_relaxed:
            raise RuntimeError(f"{what} is not permitted when a stream is capturing")

    def launch(self, stream: int, launch: Launch) -> None:
        if self._of_thread.graph is not None:
            self._of_thread.graph.work.append(lambda: self._run(launch))
        else:
            self.enqueue(stream, lambda: self._run(launch))

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        def run() -> None:
            self.now_ns += self.launching_ns
            self.empty.append((threads, shared_bytes))

        self.enqueue(stream, run)

    def enqueue(self, stream: int, work: Callable[[], None]) -> None:
        with self.changed:
            self._queues[stream].append(work)
            self._advance()

    @contextmanager
    def held(self, stream: int = 0) -> Iterator[None]:
        """Run nothing of a stream until the end of this context."""
        with self.changed:
            self._held.add(stream)
        try:
            yield
        finally:
            with self.changed:
                self._held.discard(stream)
                self._advance()

    def wait(self) -> None:
        """Until all streams have run what they were given."""
        with self.changed:
            if not self.changed.wait_for(lambda: not any(self._queues.values()), timeout=600):
                raise TimeoutError("a stream waits for what is never launched")

    def _advance(self) -> None:
        for stream, queue in self._queues.items():
            while queue and stream not in self._held:
                queue.popleft()()
        self.changed.notify_all()

    def _run(self, launch: Launch) -> None:
        begun_ns = self.now_ns
        gap_cycles = self.host_kernels[launch.kernel.name](launch.grid, *map(with_elements, launch.arguments))
        if launch.profile_address:
            sample = launch.sample
            block = self._blocks.get(launch.profile_address - sample.ends_bytes - sample.shift)
            if block is None:
                self.freed_writes += 1
            else:
                written = with_ends(self.profile_words(launch, begun_ns, gap_cycles), sample)
                # The words of the ends only rise.
                ends = block.bytes[: sample.ends_bytes].view(END)
                before = ends.copy()
                block.bytes[: written.nbytes] = written
                np.maximum(before, ends, out=ends)
        self.now_ns += launch.duration_ns + self.longer_ns + self.launching_ns
        self.ran.append(launch)

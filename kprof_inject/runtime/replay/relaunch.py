"""Repeat a launch of the program, with any build of its kernel and the same arguments, and time it.

These launches work on copies of the memory that the arguments point to, so the program's memory is only read. They
follow each other on a stream, one at a time or some back to back.
"""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Self

from kprof_inject.quantities import counted, size_text
from kprof_inject.runtime.devices.device import Device, Event, NoDeviceMemory
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS, Grid
from kprof_inject.runtime.launch.timing import SAMPLES, EmptyKernel

# Types of pointers in a kernel's signature: ``*fp16``, ``*ki8``, ``tensordesc<fp16[64, 64]>``.
_POINTER_TYPE = re.compile(r"\*+\w|tensordesc<")
# The program needs the rest, as does the driver for the program's launches.
_MAX_SHARE_OF_FREE = 0.9
# A kernel may read beyond its tensors, into other memory of the program's allocator.
_GUARD_BYTES = 32 << 20
# Copies keep their address modulo this, on which vector accesses and tensor descriptors depend.
_ALIGNMENT = 512


class NotReplayable(Exception):
    """Error that a kernel cannot be launched again; its text is the reason, in words that follow *because*."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """A range of the device's memory."""

    address: int
    size_bytes: int

    @property
    def end(self) -> int:
        """First address after the range."""
        return self.address + self.size_bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Replacement for a tensor in a launcher's arguments, since a launcher reads only the address of a tensor."""

    value: int

    def data_ptr(self) -> int:
        """Return the address, as a tensor does."""
        return self.value


def memory_of(arguments: Sequence[Any], signature: Mapping[str, str]) -> tuple[MemoryRange, ...]:
    """Return the memory of a launch's arguments in ascending order, with overlapping storages merged.

    Each tensor's whole storage is included, because a kernel may write outside a view. ``signature`` has the arguments'
    types. Raises ``NotReplayable`` if the size of an argument's memory is unknown.
    """
    tensors = list(_tensors_in(arguments))
    pointers = sum(len(_POINTER_TYPE.findall(kind)) for kind in signature.values())
    if len(tensors) < pointers:
        raise NotReplayable(
            f"its arguments have {counted(pointers - len(tensors), 'raw pointer')} to an unknown amount of memory"
        )
    storages = [tensor.untyped_storage() for tensor in tensors]
    merged: list[MemoryRange] = []
    for address, size_bytes in sorted({(store.data_ptr(), store.nbytes()) for store in storages if store.nbytes()}):
        last = merged[-1] if merged else None
        if last is not None and address < last.end:
            merged[-1] = MemoryRange(last.address, max(last.end, address + size_bytes) - last.address)
        else:
            merged.append(MemoryRange(address, size_bytes))
    return tuple(merged)


def _tensors_in(argument: Any) -> Iterator[Any]:
    """Yield the tensors in an argument: itself, parts of a tuple, or the base of a descriptor or reinterpretation."""
    if hasattr(argument, "untyped_storage"):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _tensors_in(part)
    elif getattr(argument, "base", None) is not None:
        yield from _tensors_in(argument.base)
    elif hasattr(argument, "data_ptr") or hasattr(argument, "tma_desc_cpu_ptr"):
        raise NotReplayable(f"it is unknown how much memory an argument of type {type(argument).__name__} refers to")


def relocated(argument: Any, move: Callable[[int], int]) -> Any:
    """Return the argument with each tensor replaced by its address, as moved by ``move``, for a launcher.

    The result does not keep any memory of the program.
    """
    if isinstance(argument, (tuple, list)):
        return tuple(relocated(part, move) for part in argument)
    if hasattr(argument, "untyped_storage") or isinstance(argument, Address):
        return Address(move(argument.data_ptr()))
    if getattr(argument, "base", None) is not None:
        replacement = copy.copy(argument)
        replacement.base = relocated(argument.base, move)
        return replacement
    return argument


@dataclass(frozen=True, slots=True)
class MemoryCopies:
    """Copies of memory ranges, on the device."""

    device: Device
    copies: tuple[tuple[MemoryRange, int], ...]
    """The program's ranges, each with the address of its copy."""

    def refresh(self, stream: int) -> None:
        """Copy the program's present memory to the copies, in the order of ``stream``."""
        for source, address in self.copies:
            self.device.copy(address, source.address, source.size_bytes, stream)

    def moved(self, address: int) -> int:
        """Return the address in the copies for an address of the program; the same address if it is not copied."""
        for source, start in self.copies:
            if source.address <= address < source.end:
                return start + address - source.address
        return address

    def digest(self, stream: int) -> tuple[int, ...] | None:
        """Return a digest of the copies' contents; None if the device cannot compute it."""
        digests: list[int] = []
        for source, address in self.copies:
            value = self.device.digest(address, source.size_bytes, stream)
            if value is None:
                return None
            digests.append(value)
        return tuple(digests)


@contextmanager
def copies_of(device: Device, ranges: Sequence[MemoryRange], stream: int) -> Iterator[MemoryCopies]:
    """Lend room for copies of memory ranges, for work on ``stream``, which the end of the context waits for.

    Nothing is copied yet. Raises ``NotReplayable`` if the device has no room, or if the host or other devices share the
    memory.
    """
    if any(not device.is_local(source.address) for source in ranges):
        raise NotReplayable("one of its arguments is not in the device's own memory")
    offsets, end = [], _GUARD_BYTES
    for source in ranges:
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT + source.address % _ALIGNMENT
        offsets.append(offset)
        end = offset + source.size_bytes + _GUARD_BYTES
    free_bytes = device.free_bytes()
    if end > _MAX_SHARE_OF_FREE * free_bytes:
        size_bytes = sum(source.size_bytes for source in ranges)
        raise NotReplayable(
            f"its arguments refer to {size_text(size_bytes)}, but the device has only {size_text(free_bytes)} free to "
            "copy them"
        )
    with ExitStack() as lent:
        try:
            buffer = lent.enter_context(device.borrowed(end, stream))
        except NoDeviceMemory:
            raise NotReplayable(f"copies of its arguments need {size_text(end)}, which the device lacks") from None
        starts = (buffer.data_ptr() + offset for offset in offsets)
        yield MemoryCopies(device, tuple(zip(ranges, starts, strict=True)))


# Triton's launchers take a profiler's hooks and their argument. No profiler must see these launches.
_HOOKS = (None,) * HOOK_ARGUMENTS


@dataclass(frozen=True, slots=True)
class Launchable:
    """A Triton kernel with another launcher than its own."""

    run: Callable[..., Any]
    function: Any
    packed_metadata: Any


@dataclass(frozen=True, slots=True)
class Relaunch:
    """A launch of the program that can be repeated.

    ``arguments`` are the kernel's own, with addresses instead of tensors, so that they do not keep the program's
    memory. ``memory`` is the memory that they point to.
    """

    grid: Grid
    stream: int
    arguments: tuple[Any, ...]
    memory: tuple[MemoryRange, ...]

    @classmethod
    def of(cls, signature: Mapping[str, str], grid: Grid, stream: int, arguments: tuple[Any, ...]) -> Relaunch:
        """Return the relaunch of a launch that is about to be made. Raises ``NotReplayable``.

        ``signature`` has the types of the kernel's arguments; ``arguments`` are all arguments of a launcher after the
        metadata.
        """
        own = arguments[HOOK_ARGUMENTS:]
        return Relaunch(grid, stream, relocated(own, lambda address: address), memory_of(own, signature))

    def on(self, copies: MemoryCopies) -> Self:
        """Return the same launch on copies of its memory."""
        return replace(self, arguments=relocated(self.arguments, copies.moved))

    def launch(self, kernel: Any) -> None:
        """Launch a loaded Triton kernel, or a ``Launchable``. Call this within ``own_scratch``."""
        kernel.run(*self.grid, self.stream, kernel.function, kernel.packed_metadata, *_HOOKS, *self.arguments)


# The time of a single launch includes some microseconds of work that the device does between two events. Launches timed
# together share this overhead.
_MIN_BATCH_NS = 200_000
_MAX_IN_BATCH = 20

# The host may take this much longer to queue the same number of launches than it took before.
_HOST_MARGIN = 2.0
MIN_HOLD_NS = 50_000
_MAX_HOLD_NS = 20_000_000
_TRIES = 4

# Maximum ratio of two times for the same work: a launch that finds its work done takes less time than one that does it.
_SAME_WORK = 1.5

Marks = tuple[Event, Event]
"""Events before and after the timed launches."""


@dataclass(slots=True)
class BackToBack:
    """Timer of launches on a stream, in which ``launches`` of each kind follow each other without a pause.

    With ``restores``, the copies of the kernel's memory are refreshed before each kind.
    """

    device: Device
    stream: int
    memory: MemoryCopies
    launches: int = 1
    restores: bool = True
    was_held: bool = True
    """False if the device began with the last batch before all of it was queued: its times may then be the host's."""
    _queue_ns: int = 0

    def marked(self, launch: Callable[[], None]) -> Marks:
        """Queue launches of one kind between two events."""
        if self.restores:
            self.memory.refresh(self.stream)
        start = self.device.timing_mark(self.stream)
        for _ in range(self.launches):
            launch()
        return start, self.device.timing_mark(self.stream)

    def queued(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        """Queue launches of each kind, one kind after another.

        The stream is held until the host has queued them all. If that takes too long, they are queued again, at most
        ``_TRIES`` times in total.
        """
        for _ in range(_TRIES):
            marks = self._queued_once(launches)
            if self.was_held:
                break
        return marks

    def _queued_once(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        begun_ns = time.monotonic_ns()
        hold_ns = min(max(int(_HOST_MARGIN * self._queue_ns), MIN_HOLD_NS), _MAX_HOLD_NS)
        self.device.hold(self.stream, hold_ns)
        marks = [self.marked(launch) for launch in launches]
        self.was_held = not marks[0][0].query()
        self._queue_ns = time.monotonic_ns() - begun_ns
        return marks

    def times_ns(self, marks: Sequence[Marks]) -> list[float]:
        """Wait for the launches to end, and return the time of one launch of each kind."""
        for _, end in marks:
            end.synchronize()
        return [1e6 * start.elapsed_time(end) / self.launches for start, end in marks]

    def follow_each_other(self, launch_ns: float) -> None:
        """Time launches of this duration in batches from now on, without refreshed copies."""
        self.restores = False
        self.launches = min(max(math.ceil(_MIN_BATCH_NS / max(launch_ns, 1.0)), 1), _MAX_IN_BATCH)


def is_same_work(a_ns: float, b_ns: float) -> bool:
    """Return whether two launches with these times may have done the same work."""
    return a_ns < _SAME_WORK * b_ns and b_ns < _SAME_WORK * a_ns


def empty_ns(timed: BackToBack, kernel: EmptyKernel) -> float | None:
    """Return the time of an empty kernel's launch, timed as other launches are, after waiting for it.

    Returns None if the host was too slow to measure it.
    """
    launches: Sequence[Callable[[], None]] = [lambda: kernel.launch(timed.device, timed.stream)] * SAMPLES
    alike = replace(timed, restores=False)
    times_ns = alike.times_ns(alike.queued(launches))
    return median(times_ns) if alike.was_held else None

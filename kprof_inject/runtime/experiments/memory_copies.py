"""Copies of a launch's memory inside the program, for launches that can be repeated only there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from kprof_inject.quantities import size_text
from kprof_inject.runtime.devices.device import Device, MemoryRange, NoDeviceMemory
from kprof_inject.runtime.experiments.relaunch import NotReplayable, digests_of
from kprof_inject.runtime.launch.reachable_memory import reached_by
from kprof_inject.runtime.launch.recorded_launch import ArgumentKinds

# The program needs the rest, as does the driver for the program's launches.
_MAX_SHARE_OF_FREE = 0.9
# A kernel may read beyond its tensors, into other memory of the program's allocator.
_GUARD_BYTES = 32 << 20
# Copies keep their address modulo this, on which vector accesses and tensor descriptors depend.
_ALIGNMENT = 512


def memory_of(arguments: Sequence[Any], kinds: ArgumentKinds) -> tuple[MemoryRange, ...]:
    """Return the memory of a launch's arguments in ascending order, with overlapping storages merged.

    Raises ``NotReplayable`` for a pointer that is no tensor's: copies of what it points to would have other addresses.
    """
    return tuple(reached.memory for reached in reached_by(arguments, kinds, _refuse_pointer))


def _refuse_pointer(address: int) -> MemoryRange | None:
    raise NotReplayable("its arguments have a raw pointer to an unknown amount of memory")


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
        ranges = (MemoryRange(address, source.size_bytes) for source, address in self.copies)
        return digests_of(self.device, ranges, stream)


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

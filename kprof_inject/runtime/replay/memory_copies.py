"""Copies of the memory that a launch's arguments point to.

Launches of ours work on these: the program's own memory is only read.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from kprof_inject.quantities import size_text
from kprof_inject.runtime.devices.device import Device, NoDeviceMemory

# Of the types in a kernel's signature: ``*fp16``, ``*ki8``, ``tensordesc<fp16[64, 64]>``.
_POINTER_TYPE = re.compile(r"\*+\w|tensordesc<")
# The program, and the driver for what it launches, need the rest.
_MAX_SHARE_OF_FREE = 0.9
# A kernel may read beyond its tensors, where the program's allocator has other memory.
_GUARD_BYTES = 32 << 20
# Addresses keep their remainder: vector accesses and tensor descriptors depend on it.
_ALIGNMENT = 512


class NotReplayable(Exception):
    """A kernel cannot be launched again; the text says why, in words that follow *because*."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """Memory of the device, by its first address."""

    address: int
    size_bytes: int

    @property
    def end(self) -> int:
        """First address after it."""
        return self.address + self.size_bytes


@dataclass(frozen=True, slots=True)
class Address:
    """Replaces a tensor in a launcher's arguments: of tensors, it only reads the address."""

    value: int

    def data_ptr(self) -> int:
        """Return the address, as a tensor does."""
        return self.value


def memory_of(arguments: Sequence[Any], signature: Mapping[str, str]) -> tuple[MemoryRange, ...]:
    """Return the storages whose tensors are among a launch's arguments, in ascending order; those that overlap are one.

    A storage counts as a whole: a kernel may write outside a view. ``signature`` has the arguments' types. Raises
    ``NotReplayable`` if the size of an argument's memory is unknown.
    """
    tensors = list(_tensors_in(arguments))
    pointers = sum(len(_POINTER_TYPE.findall(kind)) for kind in signature.values())
    if len(tensors) < pointers:
        raise NotReplayable(
            f"{pointers - len(tensors)} of its arguments are raw pointers to an unknown amount of memory"
        )
    storages = [tensor.untyped_storage() for tensor in tensors]
    merged: list[MemoryRange] = []
    for address, size_bytes in sorted({(one.data_ptr(), one.nbytes()) for one in storages if one.nbytes()}):
        last = merged[-1] if merged else None
        if last is not None and address < last.end:
            merged[-1] = MemoryRange(last.address, max(last.end, address + size_bytes) - last.address)
        else:
            merged.append(MemoryRange(address, size_bytes))
    return tuple(merged)


def _tensors_in(argument: Any) -> Iterator[Any]:
    """Yield tensors: by themselves, in tuples, and as the base of descriptors and reinterpretations."""
    if hasattr(argument, "untyped_storage"):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _tensors_in(part)
    elif getattr(argument, "base", None) is not None:
        yield from _tensors_in(argument.base)
    elif hasattr(argument, "data_ptr") or hasattr(argument, "tma_desc_cpu_ptr"):
        raise NotReplayable(f"an argument of type {type(argument).__name__} does not say how much memory it refers to")


def relocated(argument: Any, move: Callable[[int], int]) -> Any:
    """Return the same argument for a launcher, with each tensor replaced by the address that ``move`` makes of its own.

    The result holds no memory of the program's.
    """
    if isinstance(argument, (tuple, list)):
        return tuple(relocated(part, move) for part in argument)
    if hasattr(argument, "untyped_storage") or isinstance(argument, Address):
        return Address(move(argument.data_ptr()))
    if getattr(argument, "base", None) is not None:
        stand_in = copy.copy(argument)
        stand_in.base = relocated(argument.base, move)
        return stand_in
    return argument


@dataclass(frozen=True, slots=True)
class MemoryCopies:
    """Copies of some memory, on the device."""

    device: Device
    copies: tuple[tuple[MemoryRange, int], ...]
    """With the address of each copy."""

    def refresh(self, stream: int) -> None:
        """Make the copies equal to the program's memory as it is, in the order of ``stream``."""
        for one, address in self.copies:
            self.device.copy(address, one.address, one.size_bytes, stream)

    def moved(self, address: int) -> int:
        """Return where the copies have what the program has at an address; the address itself if they lack it."""
        for one, start in self.copies:
            if one.address <= address < one.end:
                return start + address - one.address
        return address

    def digest(self, stream: int) -> tuple[int, ...] | None:
        """Return the same for the same bytes in the copies; None where that is unknown."""
        found = [self.device.digest(address, one.size_bytes, stream) for one, address in self.copies]
        return None if None in found else tuple(value for value in found if value is not None)


@contextmanager
def copies_of(device: Device, ranges: Sequence[MemoryRange], stream: int) -> Iterator[MemoryCopies]:
    """Lend room for copies of some memory, for work on ``stream``. The end of this context waits for that work.

    Nothing is copied yet. Raises ``NotReplayable`` if the device has no room, or if other devices or the host use the
    memory, too.
    """
    if any(not device.is_local(one.address) for one in ranges):
        raise NotReplayable("one of its arguments is not in the device's own memory")
    places, end = [], _GUARD_BYTES
    for one in ranges:
        place = -(-end // _ALIGNMENT) * _ALIGNMENT + one.address % _ALIGNMENT
        places.append(place)
        end = place + one.size_bytes + _GUARD_BYTES
    free_bytes = device.free_bytes()
    if end > _MAX_SHARE_OF_FREE * free_bytes:
        size_bytes = sum(one.size_bytes for one in ranges)
        raise NotReplayable(
            f"its arguments refer to {size_text(size_bytes)}, but the device has only {size_text(free_bytes)} free to "
            "copy them"
        )
    with ExitStack() as lent:
        try:
            buffer = lent.enter_context(device.borrowed(end, stream))
        except NoDeviceMemory:
            raise NotReplayable(f"the device has no {size_text(end)} free to copy its arguments") from None
        starts = (buffer.data_ptr() + place for place in places)
        yield MemoryCopies(device, tuple(zip(ranges, starts, strict=True)))

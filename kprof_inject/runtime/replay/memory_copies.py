"""Copies of the memory that a launch's arguments point to.

Our launches work on the copies, and the program's memory is only read.
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
            f"{pointers - len(tensors)} of its arguments are raw pointers to an unknown amount of memory"
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
        raise NotReplayable(f"an argument of type {type(argument).__name__} does not say how much memory it refers to")


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
            raise NotReplayable(f"the device has no {size_text(end)} free to copy its arguments") from None
        starts = (buffer.data_ptr() + offset for offset in offsets)
        yield MemoryCopies(device, tuple(zip(ranges, starts, strict=True)))

"""The memory that a launch's arguments lead to: found, saved, and put back."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from kprof_inject.quantities import size_text
from kprof_inject.runtime.devices.device import Device, NoDeviceMemory

# Of the types in a kernel's signature: ``*fp16``, ``*ki8``, ``tensordesc<fp16[64, 64]>``.
_POINTER_TYPE = re.compile(r"\*+\w|tensordesc<")
# What is left to the program, and to the driver for what it launches.
_MOST_OF_FREE = 0.9


class NotReplayable(Exception):
    """A kernel cannot be launched again; the text says why, in words that follow *because*."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """Memory of the device, by its first address."""

    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Address:
    """Stands for a tensor where a launcher asks for no more than where that begins."""

    value: int

    def data_ptr(self) -> int:
        return self.value


def memory_of(arguments: Sequence[Any], signature: Mapping[str, str]) -> tuple[MemoryRange, ...]:
    """All of the storages whose tensors are among a launch's arguments, each once: a kernel may write beside a view.
    ``signature`` has the arguments' types. Raises ``NotReplayable`` if an argument does not tell how far it leads."""
    tensors = list(_tensors_in(arguments))
    pointers = sum(len(_POINTER_TYPE.findall(kind)) for kind in signature.values())
    if len(tensors) < pointers:
        raise NotReplayable(
            f"{pointers - len(tensors)} of its arguments are raw pointers to an unknown amount of memory"
        )
    storages = [tensor.untyped_storage() for tensor in tensors]
    ranges = (MemoryRange(storage.data_ptr(), storage.nbytes()) for storage in storages)
    return tuple(dict.fromkeys(one for one in ranges if one.size_bytes))


def _tensors_in(argument: Any) -> Iterator[Any]:
    """What has a storage: tensors, those in tuples, and those below descriptors and reinterpretations."""
    if hasattr(argument, "untyped_storage"):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _tensors_in(part)
    elif getattr(argument, "base", None) is not None:
        yield from _tensors_in(argument.base)
    elif hasattr(argument, "data_ptr") or hasattr(argument, "tma_desc_cpu_ptr"):
        raise NotReplayable(f"an argument of type {type(argument).__name__} does not say how much memory it refers to")


def without_tensors(argument: Any) -> Any:
    """The same for a launcher, with addresses in the place of tensors: whoever keeps it keeps no memory of the
    program's."""
    if hasattr(argument, "untyped_storage"):
        return Address(argument.data_ptr())
    if isinstance(argument, (tuple, list)):
        return tuple(map(without_tensors, argument))
    if getattr(argument, "base", None) is not None:
        stand_in = copy.copy(argument)
        stand_in.base = without_tensors(argument.base)
        return stand_in
    return argument


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """Copies of some memory, on the device."""

    device: Device
    copies: tuple[tuple[MemoryRange, int], ...]
    """With the address of each copy."""

    def save(self, stream: int) -> None:
        """Copy it as it is, in the order of ``stream``."""
        for one, address in self.copies:
            self.device.copy(address, one.address, one.size_bytes, stream)

    def restore(self, stream: int) -> None:
        """Put it back, in the order of ``stream``."""
        for one, address in self.copies:
            self.device.copy(one.address, address, one.size_bytes, stream)

    def digest(self, stream: int) -> tuple[int, ...] | None:
        """Of the memory as it is now: the same for the same bytes. None where that cannot be told."""
        found = [self.device.digest(one.address, one.size_bytes, stream) for one, _ in self.copies]
        return None if None in found else tuple(value for value in found if value is not None)


@contextmanager
def saved(device: Device, ranges: Sequence[MemoryRange], stream: int) -> Iterator[SavedMemory]:
    """Save some memory when the device has done all that it has to do, and put it back at the end of the context,
    whatever ends that. Raises ``NotReplayable`` if the device has no room for it."""
    size_bytes, free_bytes = sum(one.size_bytes for one in ranges), device.free_bytes()
    if size_bytes > _MOST_OF_FREE * free_bytes:
        raise NotReplayable(
            f"its arguments refer to {size_text(size_bytes)}, but the device has only {size_text(free_bytes)} free to "
            "save them"
        )
    with ExitStack() as lent:
        try:
            buffer = lent.enter_context(device.borrowed(max(size_bytes, 1)))
        except NoDeviceMemory:
            raise NotReplayable(f"the device has no {size_text(size_bytes)} free to save its arguments") from None
        starts = accumulate((one.size_bytes for one in ranges), initial=buffer.data_ptr())
        memory = SavedMemory(device, tuple(zip(ranges, starts, strict=False)))
        device.synchronise(device.current())
        memory.save(stream)
        try:
            yield memory
        finally:
            memory.restore(stream)
            device.synchronise(device.current())

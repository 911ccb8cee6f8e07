"""A saved launch in a process of ours: its memory at the addresses that it had in the program, and its arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

from kprof_inject.capture.saved_launch import (
    DescriptorArgument,
    FloatArgument,
    IntegerArgument,
    MemoryRecord,
    PointerArgument,
    SavedArgument,
    SavedLaunch,
    TensorMapArgument,
    TupleArgument,
)
from kprof_inject.errors import KprofError
from kprof_inject.quantities import size_text
from kprof_inject.runtime.devices.device import Device, MemoryRange, NoDeviceMemory, packed
from kprof_inject.runtime.experiments.relaunch import Address, Digests, NotReplayable, Relaunch, digests_of

# CUDA Driver API reference, cuTensorMapEncodeTiled: "must be aligned to 64B".
_TENSOR_MAP_ALIGNMENT = 64


class MappingDevice(Device, Protocol):
    """A device of a process of ours."""

    def mapped(self, ranges: list[MemoryRange]) -> Any:
        """Map memory at ranges, until the result's ``close``. Raises ``AddressTaken`` and ``NoDeviceMemory``."""

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to device memory, now."""


class TensorMap:
    """Tensor map that a launcher reads from the host's memory (Triton 3.5)."""

    def __init__(self, data: bytes) -> None:
        """Keep the bytes where the driver accepts them."""
        self._buffer = (ctypes.c_ubyte * (len(data) + _TENSOR_MAP_ALIGNMENT))()
        start = ctypes.addressof(self._buffer)
        self._address = -(-start // _TENSOR_MAP_ALIGNMENT) * _TENSOR_MAP_ALIGNMENT
        ctypes.memmove(self._address, data, len(data))

    def tma_desc_cpu_ptr(self) -> int:
        """Return the address of the map."""
        return self._address


@dataclass(frozen=True, slots=True)
class LoadedMemory:
    """Memory of a saved launch, and a copy of its first contents. See ``LaunchMemory``."""

    device: Device
    copies: tuple[tuple[MemoryRecord, int], ...]
    """Each range with the address of its copy."""

    def refresh(self, stream: int) -> None:
        """Restore the first contents."""
        for memory, copy in self.copies:
            self.device.copy(memory.address, copy, memory.size_bytes, stream)

    def digest(self, stream: int) -> Digests:
        """Return the digests of the ranges."""
        ranges = (MemoryRange(memory.address, memory.size_bytes) for memory, _ in self.copies)
        return digests_of(self.device, ranges, stream)


@dataclass(frozen=True, slots=True)
class LoadedLaunch:
    """A saved launch that can be repeated."""

    saved: SavedLaunch
    relaunch: Relaunch
    memory: LoadedMemory


@contextmanager
def loaded_launch(device: MappingDevice, saved: SavedLaunch) -> Iterator[LoadedLaunch]:
    """Load a saved launch onto the device, for as long as the context lasts.

    Raises ``NotReplayable``, ``AddressTaken`` if another process may succeed, and ``KprofError`` for damaged files.
    """
    record = saved.record
    stream = device.current_stream()
    ranges = [MemoryRange(memory.address, memory.size_bytes) for memory in record.memory]
    offsets, room = packed([memory.size_bytes for memory in ranges])
    with ExitStack() as held:
        try:
            fixed = device.mapped(ranges)
            held.callback(fixed.close)
            buffer = held.enter_context(device.borrowed(max(room, 1), stream))
        except NoDeviceMemory:
            size = size_text(record.memory_bytes)
            raise NotReplayable(f"the device has no room for its {size} and a copy of it") from None
        copies = (buffer.data_ptr() + offset for offset in offsets)
        memory = LoadedMemory(device, tuple(zip(record.memory, copies, strict=True)))
        for one, copy in memory.copies:
            for offset, data in saved.chunks(one):
                device.write(copy + offset, data)
        memory.refresh(stream)
        _require_same(record.memory, memory.digest(stream))
        arguments = tuple(_restored(argument) for argument in record.arguments)
        yield LoadedLaunch(saved, Relaunch(record.grid, stream, arguments), memory)
        device.synchronise(device.current())


def _require_same(memory: Sequence[MemoryRecord], digests: Digests) -> None:
    for one, digest in zip(memory, digests or (), strict=False):
        if one.before is not None and int(one.before, 16) != digest:
            raise KprofError(
                f"the memory at {one.address:#x} is not what the launch began with",
                hint="the program changed it from another stream while it was copied; save the launch again",
            )


def _restored(argument: SavedArgument) -> Any:
    """Return the argument as Triton's launchers take it."""
    if isinstance(argument, IntegerArgument):
        return int(argument.value)
    if isinstance(argument, FloatArgument):
        return float.fromhex(argument.value)
    if isinstance(argument, PointerArgument):
        return Address(argument.address)
    if isinstance(argument, DescriptorArgument):
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in argument.fields.items()}
        return SimpleNamespace(base=Address(argument.base.address), **fields)
    if isinstance(argument, TensorMapArgument):
        return TensorMap(bytes.fromhex(argument.data))
    if isinstance(argument, TupleArgument):
        return tuple(_restored(part) for part in argument.parts)
    return None

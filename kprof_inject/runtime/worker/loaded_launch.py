"""A saved launch in a worker: its memory at the addresses that it had in the program, and its arguments.

It can be repeated with any build of its kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

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
from kprof_inject.runtime.devices.cuda_driver import MemoryRange, NoDeviceMemory, packed
from kprof_inject.runtime.devices.worker_device import WorkerDevice
from kprof_inject.runtime.launch.triton_wrapping import HOOK_ARGUMENTS

_TENSOR_MAP_ALIGNMENT = 64  # CUDA Driver API reference, cuTensorMapEncodeTiled: "must be aligned to 64B"


class NotReplayable(Exception):
    """Error that a kernel cannot be launched again; its text is the reason, in words that follow *because*."""


Digests = tuple[int, ...]  # digest of each range of a launch's memory


def digests_of(device: WorkerDevice, ranges: Iterable[MemoryRange], stream: int) -> Digests:
    """Return the digests of the ranges' contents."""
    return tuple(device.digest(memory.address, memory.size_bytes, stream) for memory in ranges)


@dataclass(frozen=True, slots=True)
class Address:
    """Replacement for a tensor in a launcher's arguments: a launcher reads only its address."""

    value: int

    def data_ptr(self) -> int:
        """Return the address."""
        return self.value


class TensorMap:
    """Tensor map that a launcher reads from the host's memory (Triton 3.5)."""

    def __init__(self, data: bytes) -> None:
        self._buffer = (ctypes.c_ubyte * (len(data) + _TENSOR_MAP_ALIGNMENT))()
        start = ctypes.addressof(self._buffer)
        self._address = -(-start // _TENSOR_MAP_ALIGNMENT) * _TENSOR_MAP_ALIGNMENT
        ctypes.memmove(self._address, data, len(data))

    def tma_desc_cpu_ptr(self) -> int:
        """Return the address of the map."""
        return self._address


@dataclass(frozen=True, slots=True)
class LoadedLaunch:
    """A saved launch that can be repeated on a device.

    ``arguments`` are the kernel's own, with addresses instead of tensors. ``copies`` has each range of its memory, with
    the address of a copy of its first contents.
    """

    saved: SavedLaunch
    device: WorkerDevice
    stream: int
    arguments: tuple[Any, ...]
    copies: tuple[tuple[MemoryRecord, int], ...]

    def refresh(self) -> None:
        """Restore what the launch begins with, in the order of its stream."""
        for memory, copy in self.copies:
            self.device.copy(memory.address, copy, memory.size_bytes, self.stream)

    def digest(self) -> Digests:
        """Return the digests of its memory after all present work of its stream."""
        ranges = (MemoryRange(memory.address, memory.size_bytes) for memory, _ in self.copies)
        return digests_of(self.device, ranges, self.stream)

    def launch(self, kernel: Any) -> None:
        """Launch a loaded Triton kernel. Call this within ``own_scratch``."""
        no_hooks = (None,) * HOOK_ARGUMENTS  # no profiler must see these launches
        grid = self.saved.record.grid
        kernel.run(*grid, self.stream, kernel.function, kernel.packed_metadata, *no_hooks, *self.arguments)


@contextmanager
def loaded_launch(device: WorkerDevice, saved: SavedLaunch) -> Iterator[LoadedLaunch]:
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
        arguments = tuple(_restored(argument) for argument in record.arguments)
        launch = LoadedLaunch(saved, device, stream, arguments, tuple(zip(record.memory, copies, strict=True)))
        for memory, copy in launch.copies:
            for offset, data in saved.chunks(memory):
                device.write(copy + offset, data)
        launch.refresh()
        for memory, digest in zip(record.memory, launch.digest(), strict=True):
            if memory.before is not None and int(memory.before, 16) != digest:
                raise KprofError(
                    f"the memory at {memory.address:#x} is not what the launch began with",
                    hint="the program changed it from another stream while it was copied; save the launch again",
                )
        yield launch
        device.synchronise(device.current())


def _restored(argument: SavedArgument) -> Any:
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

"""Determine the device memory that a launch reaches, and copy it as the launch finds it.

A tensor reaches its whole storage, because a kernel may write outside of a view. A pointer of another kind reaches the
allocation around it. Memory that may contain addresses (of 64-bit integers, bytes or unknown elements) is searched for
them, as tables of pointers, structures and descriptors hold them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from kprof_inject.capture.saved_launch import (
    ADDRESS_END,
    CHUNK_BYTES,
    DescriptorArgument,
    FloatArgument,
    IntegerArgument,
    OmittedArgument,
    PointerArgument,
    SavedArgument,
    TensorMapArgument,
    TupleArgument,
    chunks_in,
)
from kprof_inject.forks import usable_cores
from kprof_inject.quantities import counted
from kprof_inject.runtime.compiling.recording_build import CONSTANT, ArgumentKinds
from kprof_inject.runtime.devices.cuda_driver import MemoryRange, NoDeviceMemory, packed
from kprof_inject.runtime.devices.device import WORD_BYTES, Device, Event, FindAllocation, PoolMemory
from kprof_inject.runtime.launch.triton_wrapping import wait_for_benchmarks

_TENSOR_MAP_BYTES = 128
# The type that a pointer or a descriptor points to; a pointer to pointers has none here, so that it is searched.
_POINTED_TO = re.compile(r"\*(?:k)?(\w*)|tensordesc<([^\[>]+)\[")
# Types whose values may be addresses; a structure or a tensor map is of bytes.
_MAY_HOLD_ADDRESSES = frozenset({"", "i64", "u64", "i8", "u8", "i1", "u1"})
MAX_SEARCHED_BYTES = 8 << 20  # only the first bytes of a range are searched for addresses: tables of pointers are short
# Device memory is above: the driver maps it beyond the first 4 GB (seen: 0x302000000 and 0x7f…).
MIN_ADDRESS = 1 << 32  # lowest address of device memory
# A number that is no address is seldom close to one that is: the rest of its page is skipped.
_PAGE_BYTES = 1 << 21
_MAX_LOOKUPS = 4096
_ALIGNMENT = 16


class NotSaved(Exception):
    """Error that a launch cannot be saved; its text is the reason, in words that follow *because*."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReachedRange:
    """A range of memory that a launch reaches.

    ``element`` is the type of its elements in the kernel's signature; it is empty if several types share the range, or
    if none is known. ``is_found`` is true if only other memory refers to it.
    """

    memory: MemoryRange
    element: str = ""
    is_found: bool = False

    @property
    def may_hold_addresses(self) -> bool:
        """True if values of this range may be addresses."""
        return self.element in _MAY_HOLD_ADDRESSES


def saved_arguments(arguments: Sequence[Any], kinds: ArgumentKinds) -> tuple[SavedArgument, ...]:
    """Return a launcher's arguments, those of the kernel, for a saved launch. Raises ``NotSaved``."""
    paired = kinds.paired(arguments)
    if len(paired) != len(arguments) or (not paired and any(kind != CONSTANT for kind in kinds.kinds)):
        raise NotSaved(f"its {counted(len(arguments), 'argument')} do not match the kernel's signature")
    return tuple(_saved(argument, kind) for argument, kind in paired)


def _saved(argument: Any, kind: Any) -> SavedArgument:
    if kind == CONSTANT or argument is None:
        return OmittedArgument()
    if isinstance(kind, tuple):
        return TupleArgument(tuple(_saved(part, part_kind) for part, part_kind in zip(argument, kind, strict=True)))
    if kind.startswith("*"):
        return _pointer(argument)
    if kind.startswith("tensordesc"):
        return _descriptor(argument)
    if kind == "nvTmaDesc":
        return _tensor_map(argument)
    if kind[0] in "iu":
        return IntegerArgument(str(int(argument)))
    return FloatArgument(float(argument).hex())


def _pointer(argument: Any) -> PointerArgument:
    if isinstance(argument, int):
        return PointerArgument(address=argument)
    if not hasattr(argument, "data_ptr"):
        raise NotSaved(f"an argument is a pointer of type {type(argument).__name__}")
    return PointerArgument(address=argument.data_ptr())


def _descriptor(argument: Any) -> DescriptorArgument:
    base = getattr(argument, "base", None)
    if base is None:
        raise NotSaved(f"an argument is a tensor descriptor of type {type(argument).__name__}")
    if dataclasses.is_dataclass(argument):
        named = {field.name: getattr(argument, field.name) for field in dataclasses.fields(argument)}
    else:
        named = vars(argument)
    # Those that JSON can hold: launchers read no others, such as layouts.
    fields: dict[str, bool | int | str | tuple[int, ...] | None] = {}
    for name, value in named.items():
        if value is None or isinstance(value, bool | int | str):
            fields[name] = value
        elif isinstance(value, list | tuple):
            with suppress(TypeError, ValueError):
                fields[name] = tuple(map(int, value))
    fields.pop("base", None)
    return DescriptorArgument(base=_pointer(base), fields=fields)


def _tensor_map(argument: Any) -> TensorMapArgument:
    address = getattr(argument, "tma_desc_cpu_ptr", None)
    if address is None:
        raise NotSaved(f"an argument is a tensor map of type {type(argument).__name__}")
    return TensorMapArgument(ctypes.string_at(address(), _TENSOR_MAP_BYTES).hex())


def reached_by(arguments: Sequence[Any], kinds: ArgumentKinds, allocation_at: FindAllocation) -> list[ReachedRange]:
    """Return the memory that a launch's arguments point to, in ascending order, with overlapping ranges merged.

    Raises ``NotSaved`` for a pointer to no memory of the device.
    """
    return merged(list(_reached(kinds.paired(arguments), allocation_at)))


def _reached(paired: Sequence[tuple[Any, Any]], allocation_at: FindAllocation) -> Iterator[ReachedRange]:
    for argument, kind in paired:
        if kind == CONSTANT or argument is None:
            continue
        if isinstance(kind, tuple):
            yield from _reached(list(zip(argument, kind, strict=True)), allocation_at)
        elif match := _POINTED_TO.match(kind):
            element, tensor = match[1] or match[2] or "", argument
            while not hasattr(tensor, "untyped_storage") and getattr(tensor, "base", None) is not None:
                tensor = tensor.base
            if not hasattr(tensor, "untyped_storage"):
                yield from _allocated(_pointer(tensor).address, element, allocation_at)
            elif (storage := tensor.untyped_storage()).nbytes():
                yield ReachedRange(MemoryRange(storage.data_ptr(), storage.nbytes()), element)
        elif kind == "nvTmaDesc":
            address = int.from_bytes(bytes.fromhex(_tensor_map(argument).data)[:8], "little")
            yield from _allocated(address, "", allocation_at)
        elif kind in ("i64", "u64") and MIN_ADDRESS <= int(argument) < ADDRESS_END:
            # An address that the kernel casts to a pointer; other numbers are in no allocation.
            allocation = allocation_at(int(argument))
            if allocation is not None:
                yield ReachedRange(allocation, is_found=True)


def _allocated(address: int, element: str, allocation_at: FindAllocation) -> Iterator[ReachedRange]:
    if not address:
        return
    allocation = allocation_at(address)
    if allocation is None:
        raise NotSaved(f"an argument points to {address:#x}, where the device has no memory")
    yield ReachedRange(allocation, element)


def merged(reached: Sequence[ReachedRange]) -> list[ReachedRange]:
    """Return the ranges in ascending order, aligned for digests, with those merged that overlap."""
    result: list[ReachedRange] = []
    for one in sorted(reached, key=lambda one: one.memory.address):
        start = one.memory.address // _ALIGNMENT * _ALIGNMENT
        end = -(-one.memory.end // _ALIGNMENT) * _ALIGNMENT
        last = result[-1] if result else None
        if last is None or start >= last.memory.end:
            result.append(ReachedRange(MemoryRange(start, end - start), one.element, one.is_found))
            continue
        start = last.memory.address
        result[-1] = ReachedRange(
            MemoryRange(start, max(end, last.memory.end) - start),
            last.element if last.element == one.element else "",
            last.is_found and one.is_found,
        )
    return result


def found_in(
    contents: memoryview, reached: Sequence[ReachedRange], allocation_at: FindAllocation
) -> list[ReachedRange]:
    """Return the allocations to which the contents of a range refer, without those in ``reached``."""
    words = np.frombuffer(contents[: len(contents) // 8 * 8], dtype=np.uint64)
    addresses = np.sort(words[(words >= MIN_ADDRESS) & (words < ADDRESS_END)])
    known = [one.memory for one in reached]
    found: list[ReachedRange] = []
    place = lookups = 0
    while place < len(addresses) and lookups < _MAX_LOOKUPS:
        address = int(addresses[place])
        around = next((one for one in known if one.address <= address < one.end), None)
        if around is None:
            lookups += 1
            around = allocation_at(address)
            if around is not None:
                known.append(around)
                found.append(ReachedRange(around, is_found=True))
        end = around.end if around is not None else (address // _PAGE_BYTES + 1) * _PAGE_BYTES
        place = int(np.searchsorted(addresses, np.uint64(end)))
    return found


# The program may need the rest while we copy to the host; where it lacks memory, it fails.
_MAX_SHARE_OF_FREE = 0.25
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD
_MAX_WRITERS = 8
_ZEROS = bytes(CHUNK_BYTES)
_ZEROS_CRC32 = zlib.crc32(_ZEROS)


class MemorySnapshot:
    """Contents of memory ranges at a point in a stream, and digests of what is there then and later.

    From ``take`` to ``close``, it takes device memory from a private pool, which the program does not see. Any thread
    may use it where ``device_index`` is selected, ``unaffected_by_graphs``.
    """

    def __init__(self, device: Device, ranges: Sequence[MemoryRange]) -> None:
        self.device_index = device.current()
        self.is_copied = False
        """True if the ranges may change now; false if there was no room to copy them, so they must be read first."""
        self.chunk_crc32: list[list[int]] = []  # checksums of each range's chunks, once they are written
        self._device = device
        self._ranges = ranges
        self._starts = [source.address for source in ranges]
        # One word for each digest, the first ones before the later ones.
        self._words_bytes = 2 * WORD_BYTES * max(len(ranges), 1)
        self._taken: list[PoolMemory] = []
        self._marks: list[Event] = []  # events after the first digests, and after the later ones

    def take(self, stream: int) -> None:
        """Queue copies and digests after all present work of ``stream``.

        Raises ``NoDeviceMemory`` if not even the digests fit.
        """
        try:
            self._taken.append(self._device.taken(self._words_bytes, stream))
            self._copy(stream)
            self._queue_digests(0, stream)
        finally:
            self._marks.append(self._device.mark(stream))

    def _copy(self, stream: int) -> None:
        offsets, size_bytes = packed([source.size_bytes for source in self._ranges])
        if size_bytes > _MAX_SHARE_OF_FREE * self._device.free_bytes():
            return
        try:
            copy = self._device.taken(max(size_bytes, 1), stream)
        except NoDeviceMemory:
            return
        self._taken.append(copy)
        self._starts = [copy.address + offset for offset in offsets]
        for source, start in zip(self._ranges, self._starts, strict=True):
            self._device.copy(start, source.address, source.size_bytes, stream)
        self.is_copied = True

    def note_later(self, stream: int) -> None:
        """Queue digests of what the ranges contain after all present work of ``stream``."""
        try:
            self._queue_digests(len(self._ranges), stream)
        finally:
            self._marks.append(self._device.mark(stream))

    def _queue_digests(self, first: int, stream: int) -> None:
        for number, source in enumerate(self._ranges, first):
            word = self._taken[0].address + number * WORD_BYTES
            self._device.queue_digest(source.address, source.size_bytes, word, stream)

    def write(self, path: Path, until_s: float) -> None:
        """Write the ranges as they were at first to a file, one after another, and note their chunks' checksums.

        Raises ``NotSaved`` if ``time.monotonic()`` exceeds ``until_s``, ``OSError``, and any error of the device.
        """
        checksums = self.chunk_crc32 = [[0] * chunks_in(one.size_bytes) for one in self._ranges]
        chunks = [(number, place) for number, of_range in enumerate(checksums) for place in range(len(of_range))]
        file_offsets = list(accumulate((one.size_bytes for one in self._ranges), initial=0))
        remaining = iter(chunks)
        errors: list[Exception] = []

        def write_chunks() -> None:
            try:
                with (
                    self._device.unaffected_by_graphs(),
                    self._device.selected(self.device_index),
                    self._device.staging(CHUNK_BYTES) as staging,
                    path.open("r+b") as file,
                ):
                    self._marks[0].synchronize()
                    for number, place in remaining:
                        if errors:
                            return
                        if time.monotonic() > until_s:
                            raise NotSaved("copying its memory takes too long, and the device has no room for a copy")
                        if self.is_copied:  # else the program waits for us
                            wait_for_benchmarks()
                        offset = place * CHUNK_BYTES
                        size_bytes = min(CHUNK_BYTES, self._ranges[number].size_bytes - offset)
                        data = staging.read(self._starts[number] + offset, size_bytes)
                        checksums[number][place] = zlib.crc32(data)
                        # A hole of the file reads as zeros.
                        if checksums[number][place] != _ZEROS_CRC32 or data.tobytes() != _ZEROS:
                            _write(file.fileno(), data, file_offsets[number] + offset)
            except Exception as error:  # noqa: BLE001 (raised again below)
                errors[:] = [error]

        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            os.ftruncate(file.fileno(), file_offsets[-1])
        others = min(_MAX_WRITERS, usable_cores(), len(chunks)) - 1
        threads = [threading.Thread(target=write_chunks, daemon=True) for _ in range(others)]
        for thread in threads:
            thread.start()
        write_chunks()
        for thread in threads:
            thread.join()
        if errors:
            # The error leads to the program's frames, so nothing of them may lead back to the error.
            raise errors.pop()

    def digests(self) -> tuple[list[int], list[int]]:
        """Wait for the device, and return the digest of each range, at first and after ``note_later``."""
        self._marks[-1].synchronize()
        count = len(self._ranges)
        with self._device.staging(CHUNK_BYTES) as staging:
            words = staging.read(self._taken[0].address, self._words_bytes).cast("Q").tolist()
        return words[:count], words[count : 2 * count] if len(self._marks) > 1 else []

    def close(self) -> None:
        """Wait for the copies and digests, and give the device memory back to the driver."""
        if not self._marks:
            return  # the device has failed, and may still use the memory
        self._marks[-1].synchronize()
        self._marks.clear()
        while self._taken:
            # On a stream that has no work: the default one might wait for the program's.
            self._taken.pop().give_back(_PER_THREAD_STREAM)


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written

"""Copies of memory ranges on an NVIDIA device, which other threads read while the program goes on."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kprof_inject.runtime.devices.cuda_driver import (
    CudaEvent,
    Driver,
    MemoryRange,
    NoDeviceMemory,
    PoolMemory,
    packed,
    relaxed_capture,
)

if TYPE_CHECKING:  # it imports this module
    from kprof_inject.runtime.devices.device import Device

# The program may need the rest while we copy to the host; where it lacks memory, it fails.
_MAX_SHARE_OF_FREE = 0.25
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_WORD_BYTES = 8


class Staging:
    """Pinned host memory and a private stream, for one thread."""

    def __init__(self, driver: Driver, size_bytes: int) -> None:
        """Allocate both in the present context."""
        self._driver = driver
        self._address = ctypes.c_void_p()
        self._stream = ctypes.c_void_p()
        with relaxed_capture():
            driver.call("cuMemHostAlloc", ctypes.byref(self._address), ctypes.c_size_t(size_bytes), 0)
            driver.call("cuStreamCreate", ctypes.byref(self._stream), _NON_BLOCKING)
        self._view = memoryview((ctypes.c_char * size_bytes).from_address(self._address.value or 0)).cast("B")

    def fetch(self, address: int, size_bytes: int) -> memoryview:
        """Copy device memory to the host, and return it."""
        source, size = ctypes.c_uint64(address), ctypes.c_size_t(size_bytes)
        self._driver.call("cuMemcpyDtoHAsync_v2", self._address, source, size, self._stream)
        self._driver.call("cuStreamSynchronize", self._stream)
        return self._view[:size_bytes]


class Snapshot:
    """Contents of memory ranges at a point in a stream, and digests of what is there then and later.

    Any thread may read it. It takes device memory until ``close``, from a private pool, which the program does not see.
    """

    def __init__(self, device: Device, driver: Driver, ranges: Sequence[MemoryRange], stream: int) -> None:
        """Queue the copies and the digests on ``stream``."""
        self._device = device
        self._driver = driver
        self._index = device.current()
        self._ranges = ranges
        offsets, end = packed([source.size_bytes for source in ranges])
        # One word for each digest, the first ones before the later ones.
        self._words = device.taken(max(2 * _WORD_BYTES * len(ranges), 1), self._index, stream)
        self._copy = self._room_for(end, stream)
        self._starts = [source.address for source in ranges]
        if self._copy is not None:
            self._starts = [self._copy.address + offset for offset in offsets]
            for source, start in zip(ranges, self._starts, strict=True):
                device.copy(start, source.address, source.size_bytes, stream)
        self._queue_digests(0, stream)
        self._copied = CudaEvent(driver, stream)
        self._digested: CudaEvent | None = None

    def _room_for(self, size_bytes: int, stream: int) -> PoolMemory | None:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        if size_bytes > _MAX_SHARE_OF_FREE * free.value:
            return None
        try:
            return self._device.taken(max(size_bytes, 1), self._index, stream)
        except NoDeviceMemory:
            return None

    def _queue_digests(self, first: int, stream: int) -> None:
        for number, source in enumerate(self._ranges, first):
            word = self._words.address + number * _WORD_BYTES
            self._device.queue_digest(self._index, source.address, source.size_bytes, word, stream)

    @property
    def is_copied(self) -> bool:
        """True if the ranges may change now; false if there was no room to copy them, so they must be read first."""
        return self._copy is not None

    def note_later(self, stream: int) -> None:
        """Queue digests of what the ranges contain after all present work of ``stream``."""
        self._queue_digests(len(self._ranges), stream)
        self._digested = CudaEvent(self._driver, stream)

    def read(self, number: int, offset: int, size_bytes: int, staging: Staging) -> memoryview:
        """Return bytes of one of the ranges as they were at first, valid until the next use of ``staging``."""
        self._copied.synchronize()
        return staging.fetch(self._starts[number] + offset, size_bytes)

    def digests(self) -> tuple[list[int], list[int]]:
        """Wait for the device, and return the digest of each range, at first and after ``note_later``."""
        count = len(self._ranges)
        (self._digested or self._copied).synchronize()
        words = self._device.settled(self._words.address, 2 * _WORD_BYTES * count, self._index).cast("Q").tolist()
        return words[:count], words[count:] if self._digested is not None else []

    def close(self) -> None:
        """Give the device memory back to the driver."""
        (self._digested or self._copied).synchronize()
        for memory in (self._copy, self._words):
            if memory is not None:
                with relaxed_capture():
                    # On a stream that has no work: the default one might wait for the program's.
                    memory.give_back(ctypes.c_void_p(_PER_THREAD_STREAM))
        self._copy = None

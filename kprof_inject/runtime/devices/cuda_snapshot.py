"""Copies of memory ranges on an NVIDIA device, which other threads read while the program goes on."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from kprof_inject.runtime.devices.cuda_driver import CudaEvent, CudaMemory, Driver, TakenMemory, relaxed_capture
from kprof_inject.runtime.devices.cuda_kernels import CudaKernels
from kprof_inject.runtime.devices.device import MemoryRange, NoDeviceMemory, packed

# The program may need the rest while we copy to the host; where it lacks memory, it fails.
_MAX_SHARE_OF_FREE = 0.25
_WORD_BYTES = 8
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class CudaStaging:
    """Pinned host memory and a stream of ours, for one thread."""

    def __init__(self, driver: Driver, size_bytes: int) -> None:
        """Allocate both in the present context."""
        self._driver = driver
        self._address = ctypes.c_void_p()
        self.stream = ctypes.c_void_p()
        with relaxed_capture():
            driver.call("cuMemHostAlloc", ctypes.byref(self._address), ctypes.c_size_t(size_bytes), 0)
            driver.call("cuStreamCreate", ctypes.byref(self.stream), _NON_BLOCKING)
        self.view = memoryview((ctypes.c_char * size_bytes).from_address(self._address.value or 0)).cast("B")

    def fetch(self, address: int, size_bytes: int) -> memoryview:
        """Copy device memory to the host, and return it."""
        self._driver.call(
            "cuMemcpyDtoHAsync_v2", self._address, ctypes.c_uint64(address), ctypes.c_size_t(size_bytes), self.stream
        )
        self._driver.call("cuStreamSynchronize", self.stream)
        return self.view[:size_bytes]


class CudaSnapshot:
    """See ``Snapshot``. The copies are in a memory pool of ours, which the program does not see."""

    def __init__(
        self,
        driver: Driver,
        memory: CudaMemory,
        kernels: CudaKernels,
        device: int,
        ranges: Sequence[MemoryRange],
        stream: int,
    ) -> None:
        """Queue the copies and the digests on ``stream``."""
        self._driver = driver
        self._memory = memory
        self._kernels = kernels
        self._device = device
        self._ranges = ranges
        offsets, end = packed([source.size_bytes for source in ranges])
        # One word for each digest, those of now before those of later.
        self._words = memory.taken(max(2 * _WORD_BYTES * len(ranges), 1), device, stream)
        self._copy = self._room_for(end, stream)
        starts = [source.address for source in ranges]
        if self._copy is not None:
            starts = [self._copy.address + offset for offset in offsets]
            for source, start in zip(ranges, starts, strict=True):
                memory.copy(start, source.address, source.size_bytes, stream)
        self._starts = starts
        self._queue_digests(0, stream)
        self._copied = CudaEvent.to_wait_for(driver, stream)
        self._digested: CudaEvent | None = None

    def _room_for(self, size_bytes: int, stream: int) -> TakenMemory | None:
        if size_bytes > _MAX_SHARE_OF_FREE * self._memory.free_bytes():
            return None
        try:
            return self._memory.taken(max(size_bytes, 1), self._device, stream)
        except NoDeviceMemory:
            return None

    def _queue_digests(self, first: int, stream: int) -> None:
        for number, source in enumerate(self._ranges, first):
            word = self._words.address + number * _WORD_BYTES
            self._kernels.queue_digest(self._device, source.address, source.size_bytes, word, stream)

    @property
    def is_copied(self) -> bool:
        """True if there is a copy, so that the ranges may change."""
        return self._copy is not None

    def note_later(self, stream: int) -> None:
        """Queue digests of what the ranges contain later."""
        self._queue_digests(len(self._ranges), stream)
        self._digested = CudaEvent.to_wait_for(self._driver, stream)

    def read(self, number: int, offset: int, size_bytes: int, staging: CudaStaging) -> memoryview:
        """Return bytes of one of the ranges as they were at first."""
        self._copied.synchronize()
        return staging.fetch(self._starts[number] + offset, size_bytes)

    def digests(self) -> tuple[list[int], list[int]]:
        """Wait for the digests; the second list is empty without ``note_later``."""
        count = len(self._ranges)
        (self._digested or self._copied).synchronize()
        words = self._memory.settled(self._words.address, 2 * _WORD_BYTES * count, self._device).cast("Q").tolist()
        return words[:count], words[count:] if self._digested is not None else []

    def close(self) -> None:
        """Give the device memory back to the driver."""
        (self._digested or self._copied).synchronize()
        for taken in (self._copy, self._words):
            if taken is not None:
                taken.give_back()
        self._copy = None

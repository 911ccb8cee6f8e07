"""Copies of a launch's memory on its device, which threads of ours write to a file while the program goes on."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from kprof_inject.capture.saved_launch import CHUNK_BYTES, chunks_in
from kprof_inject.forks import usable_cores
from kprof_inject.runtime.devices.cuda_driver import MemoryRange, NoDeviceMemory, packed
from kprof_inject.runtime.devices.device import WORD_BYTES, Device, Event, PoolMemory
from kprof_inject.runtime.launch.reachable_memory import NotSaved
from kprof_inject.runtime.launch.triton_wrapping import wait_for_benchmarks

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
        self.chunk_crc32: list[list[int]] = []
        """Checksums of each range's chunks, once they are written."""
        self._device = device
        self._ranges = ranges
        self._starts = [source.address for source in ranges]
        # One word for each digest, the first ones before the later ones.
        self._words_bytes = 2 * WORD_BYTES * max(len(ranges), 1)
        self._taken: list[PoolMemory] = []
        self._marks: list[Event] = []
        """Events after the first digests, and after the later ones."""

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
        """Queue the copies if there is room for them."""
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

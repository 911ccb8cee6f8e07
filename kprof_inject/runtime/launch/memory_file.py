"""Write the memory of a saved launch to its file, with several threads."""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from kprof_inject.capture.saved_launch import CHUNK_BYTES, chunks_in
from kprof_inject.forks import usable_cores
from kprof_inject.runtime.devices.cuda_driver import MemoryRange
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.devices.snapshot import Snapshot
from kprof_inject.runtime.launch.reachable_memory import NotSaved
from kprof_inject.runtime.launch.triton_wrapping import wait_for_benchmarks

_MAX_WRITERS = 8
_ZEROS = bytes(CHUNK_BYTES)
_ZEROS_CRC32 = zlib.crc32(_ZEROS)


def write_memory(
    path: Path, ranges: Sequence[MemoryRange], snapshot: Snapshot, device: Device, device_index: int, until_s: float
) -> list[list[int]]:
    """Write the ranges of a snapshot to a file, one after another; return the checksums of the chunks of each range.

    Raises ``NotSaved`` if ``time.monotonic()`` exceeds ``until_s``, ``OSError``, and any error of the device.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(descriptor, sum(one.size_bytes for one in ranges))
        writers = _Writers(snapshot, device, device_index, descriptor, list(_chunks(ranges)), until_s)
        checksums = writers.run()
    finally:
        os.close(descriptor)
    found = iter(checksums)
    return [[next(found) for _ in range(chunks_in(one.size_bytes))] for one in ranges]


@dataclass(frozen=True, slots=True)
class _Chunk:
    range_number: int
    offset: int
    size_bytes: int
    file_offset: int


def _chunks(ranges: Sequence[MemoryRange]) -> Iterator[_Chunk]:
    file_offset = 0
    for number, one in enumerate(ranges):
        for offset in range(0, one.size_bytes, CHUNK_BYTES):
            yield _Chunk(number, offset, min(CHUNK_BYTES, one.size_bytes - offset), file_offset + offset)
        file_offset += one.size_bytes


@dataclass(slots=True)
class _Writers:
    """Threads that write the chunks of a launch's memory."""

    snapshot: Snapshot
    device: Device
    device_index: int
    descriptor: int
    chunks: Sequence[_Chunk]
    until_s: float
    _checksums: dict[int, int] = field(default_factory=dict)
    _next: Iterator[int] = field(default_factory=count)
    _errors: list[Exception] = field(default_factory=list)

    def run(self) -> list[int]:
        threads = min(_MAX_WRITERS, usable_cores(), len(self.chunks))
        others = [threading.Thread(target=self._work, daemon=True) for _ in range(threads - 1)]
        for thread in others:
            thread.start()
        self._work()
        for thread in others:
            thread.join()
        if self._errors:
            # The error leads to the program's frames, so nothing of them may lead back to the error.
            raise self._errors.pop()
        return [self._checksums[number] for number in range(len(self.chunks))]

    def _work(self) -> None:
        try:
            with self.device.unaffected_by_graphs(), self.device.selected(self.device_index):
                self._write_chunks()
        except Exception as error:  # noqa: BLE001 (raised again in ``run``)
            self._errors.append(error)

    def _write_chunks(self) -> None:
        with self.device.staging(CHUNK_BYTES) as staging:
            while not self._errors and (number := next(self._next)) < len(self.chunks):
                if time.monotonic() > self.until_s:
                    raise NotSaved("copying its memory takes too long, and the device has no room for a copy")
                if self.snapshot.is_copied:  # else the program waits for us
                    wait_for_benchmarks()
                chunk = self.chunks[number]
                data = self.snapshot.read(chunk.range_number, chunk.offset, chunk.size_bytes, staging)
                self._checksums[number] = zlib.crc32(data)
                # A hole of the file reads as zeros.
                if self._checksums[number] != _ZEROS_CRC32 or data.tobytes() != _ZEROS:
                    offset = chunk.file_offset
                    while data:
                        written = os.pwrite(self.descriptor, data, offset)
                        data, offset = data[written:], offset + written

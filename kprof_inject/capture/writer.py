"""Writer of one process's part of a capture; at every moment the files on disk are readable.

It runs inside the user's program, in the writer's thread: no launch waits for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kprof_inject.capture.encoding import encode, indented, write_sealed
from kprof_inject.capture.schema import (
    CLOCK_FILE,
    END_FILE,
    KERNEL_FILE,
    KERNELS_FOLDER,
    LAUNCHES_FILE,
    PROCESS_FILE,
    SOURCES_FILE,
    TIMING_FILE,
    TTGIR_FILE,
    ClockRecord,
    DropRecord,
    EndRecord,
    KernelRecord,
    LaunchRecord,
    ProcessRecord,
    TimingRecord,
)
from kprof_inject.files import write_bytes


class CaptureWriter:
    """Writer of one process's folder.

    A launch's line is written after its buffer, so a killed program loses at most one launch.
    """

    def __init__(self, folder: Path, process: ProcessRecord) -> None:
        """Create the folder and its ``process.json``."""
        self._folder = folder
        self._kernels: set[str] = set()
        self._files = 0
        write_sealed(folder / PROCESS_FILE, process)

    def add_kernel(self, variant: str, kernel: KernelRecord, ttgir: str, sources: Mapping[str, str]) -> None:
        """Save the record and the texts of a compiled kernel; a variant is saved once."""
        if variant in self._kernels:
            return
        folder = self._folder / KERNELS_FOLDER / variant
        texts = {TTGIR_FILE: ttgir.encode(), SOURCES_FILE: indented(sources)}
        for name, text in texts.items():
            write_bytes(folder / name, text)
        checked = msgspec.structs.replace(
            kernel, ttgir_crc32=zlib.crc32(texts[TTGIR_FILE]), sources_crc32=zlib.crc32(texts[SOURCES_FILE])
        )
        write_sealed(folder / KERNEL_FILE, checked)
        self._kernels.add(variant)

    def add_launch(self, launch: LaunchRecord, buffer: memoryview) -> str:
        """Save one launch's buffer, then its line; return the name chosen for the buffer's file."""
        name = f"launch-{self._files:06d}.bin"
        self._files += 1
        path = self._folder / name
        try:
            # Written directly, without a temporary name: a buffer without its line is ignored, and this is done very
            # often.
            with path.open("wb", buffering=0) as file:
                rest = buffer
                while rest:
                    rest = rest[file.write(rest) :]
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._append(LAUNCHES_FILE, msgspec.structs.replace(launch, file=name, buffer_crc32=zlib.crc32(buffer)))
        return name

    def drop_launch(self, name: str) -> None:
        """Remove a launch, because a later one replaces it."""
        self._append(LAUNCHES_FILE, DropRecord(drop=name))
        (self._folder / name).unlink()

    def add_times(self, variant: str, timing: TimingRecord) -> None:
        """Save the times of launches; does nothing for a variant of which no launch was saved."""
        if variant in self._kernels:
            write_sealed(self._folder / KERNELS_FOLDER / variant / TIMING_FILE, timing)

    def add_clock_reading(self, reading: ClockRecord) -> None:
        """Save a reading of a device's timer."""
        self._append(CLOCK_FILE, reading)

    def finish(self, left_out: Mapping[str, int], launches: Mapping[str, int] | None = None) -> None:
        """Save what was left out, by the reason, and the number of launches of each variant.

        Without this file, readers know that the program was killed.
        """
        write_sealed(self._folder / END_FILE, EndRecord(dict(left_out), dict(launches or {})))

    def _append(self, name: str, record: object) -> None:
        with (self._folder / name).open("ab") as file:
            file.write(encode(record) + b"\n")

"""Writes one process's part of a capture, so that at every moment what is on disk is readable.

Imports the standard library alone: it runs inside the user's program.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from kprof_inject.capture.format import (
    CLOCK_FILE,
    END_FILE,
    FORMAT_VERSION,
    KERNEL_FILE,
    KERNELS_FOLDER,
    LAUNCHES_FILE,
    PROCESS_FILE,
    SOURCES_FILE,
    TIMING_FILE,
    TTGIR_FILE,
)
from kprof_inject.files import write_json, write_text


class CaptureWriter:
    """One process's folder. A launch's line is written after its buffer, so a killed program loses at most one."""

    def __init__(self, folder: Path, process: dict[str, Any]) -> None:
        self._folder = folder
        self._kernels: set[str] = set()
        self._files = 0
        write_json(folder / PROCESS_FILE, {"version": FORMAT_VERSION, **process})

    def add_kernel(self, variant: str, kernel: dict[str, Any], ttgir: str, sources: dict[str, str]) -> None:
        """Save what is known of a compiled kernel; a variant is saved once."""
        if variant in self._kernels:
            return
        folder = self._folder / KERNELS_FOLDER / variant
        write_text(folder / TTGIR_FILE, ttgir)
        write_json(folder / SOURCES_FILE, sources)
        write_json(folder / KERNEL_FILE, kernel)
        self._kernels.add(variant)

    def add_launch(self, launch: dict[str, Any], buffer: memoryview) -> str:
        """Save one launch's buffer, then its line; returns the name of the buffer's file."""
        name = f"launch-{self._files:06d}.bin"
        self._files += 1
        path = self._folder / name
        try:
            # Not by way of another name: a buffer without its line is not looked at, and this is done very often.
            with path.open("wb", buffering=0) as file:
                _write_all(file, buffer)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._append(LAUNCHES_FILE, {**launch, "file": name})
        return name

    def drop_launch(self, name: str) -> None:
        """Take a launch out again, because a later one stands for it."""
        self._append(LAUNCHES_FILE, {"drop": name})
        (self._folder / name).unlink()

    def add_times(self, variant: str, times_ns: Sequence[float], not_timed: str = "") -> None:
        """Save device times of single launches, and why others were not timed; nothing for a variant of which no launch
        was saved."""
        if variant in self._kernels:
            timing = {"times_ns": list(times_ns), **({"not_timed": not_timed} if not_timed else {})}
            write_json(self._folder / KERNELS_FOLDER / variant / TIMING_FILE, timing)

    def add_clock_reading(self, reading: dict[str, int]) -> None:
        """Save what a device's timer read at a time of the host's."""
        self._append(CLOCK_FILE, reading)

    def finish(self, counts: dict[str, Any]) -> None:
        """Save what was left out. Its absence tells a reader that the program was killed."""
        write_json(self._folder / END_FILE, counts)

    def _append(self, name: str, line: dict[str, Any]) -> None:
        with (self._folder / name).open("a") as file:
            file.write(json.dumps(line, sort_keys=True) + "\n")


def _write_all(file: FileIO, buffer: memoryview) -> None:
    while buffer:
        buffer = buffer[file.write(buffer) :]

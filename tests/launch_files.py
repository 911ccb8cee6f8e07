"""Change the files of saved launches, with checksums that fit."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kprof_inject.capture.saved_launch import CHUNK_BYTES, MEMORY_FILE, SAVED_LAUNCH_FILE, read_saved_launch


def read_all(folder: Path) -> bytes:
    """Read everything that a saved launch has, and return its memory. Raises ``KprofError`` if any of it is damaged."""
    saved = read_saved_launch(folder)
    return b"".join(data for memory in saved.record.memory for _, data in saved.chunks(memory))


def values_of(folder: Path) -> dict[str, Any]:
    """Return the values in ``launch.json``."""
    values: dict[str, Any] = json.loads((folder / SAVED_LAUNCH_FILE).read_text())
    return values


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values of ``launch.json``."""
    values = values_of(folder)
    change(values)
    write(folder, values)


def write(folder: Path, values: dict[str, Any]) -> None:
    """Write ``launch.json``, without a checksum."""
    values.pop("crc32", None)
    text = json.dumps(values, ensure_ascii=False).encode(errors="surrogatepass")
    (folder / SAVED_LAUNCH_FILE).write_bytes(text)


def edit_kernel(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values of ``kernel.json``."""
    path = folder / "kernel.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    reseal(folder)


def reseal(folder: Path) -> None:
    """Give the launch the checksums of its files and its memory as they are now."""
    edit(folder, lambda values: _add_checksums(folder, values))


def _add_checksums(folder: Path, values: dict[str, Any]) -> None:
    values["files"] = {name: zlib.crc32((folder / name).read_bytes()) for name in values["files"]}
    data = (folder / MEMORY_FILE).read_bytes()
    for memory in values["memory"]:
        begin, end = memory["offset"], min(memory["offset"] + memory["size_bytes"], 2 * len(data))
        memory["chunk_crc32"] = [
            zlib.crc32(data[start : min(start + CHUNK_BYTES, end)]) for start in range(begin, end, CHUNK_BYTES)
        ]

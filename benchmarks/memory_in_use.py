"""The memory that a process and its children have at work, seen from outside (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MEMORY_FILE = "/memfd:"


def memory_in_use(pid: int) -> int:
    """Bytes of the process and all below it: pages that several share count once, files that are in memory alone too.
    What ends meanwhile counts as nothing."""
    files: dict[int, int] = {}
    processes = list(_with_children(pid))
    for each in processes:
        files |= dict(_memory_files(each))
    return sum(map(_own_bytes, processes)) + sum(files.values())


def _with_children(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _with_children(int(child))


def _own_bytes(pid: int) -> int:
    """Of a page that several processes share, its part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _memory_files(pid: int) -> Iterator[tuple[int, int]]:
    """Inode and size of each that the process has open."""
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            if os.readlink(entry.path).startswith(_MEMORY_FILE):
                status = os.stat(entry.path)
                yield status.st_ino, 512 * status.st_blocks
    except OSError:
        return

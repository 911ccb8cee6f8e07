"""Folders for generated cases, which write thousands of small files."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

_IN_MEMORY = "/dev/shm"


def scratch_folder() -> TemporaryDirectory[str]:
    """A folder for a while; in memory if the system has a file system there, which is many times as fast as a disk."""
    return TemporaryDirectory(dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None)

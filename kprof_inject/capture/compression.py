"""Zstandard, if the package ``zstandard`` is installed: the memory of saved launches is compressed with it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from kprof_inject.errors import KprofError

_LEVEL = 3


def compressor() -> Callable[[bytes], bytes] | None:
    """Return a function that compresses bytes to a frame; None if the package is not installed."""
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        return None
    compress: Callable[[bytes], bytes] = zstandard.ZstdCompressor(level=_LEVEL).compress
    return compress


def decompressed(frame: bytes, size_bytes: int) -> bytes:
    """Return the contents of a frame, at most ``size_bytes``; an empty frame is that many zeros.

    The result is empty if the frame is damaged. Raises ``KprofError`` if the package is not installed.
    """
    if not frame:
        return bytes(size_bytes)
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        raise KprofError(
            "the memory of this launch is compressed", hint="install Zstandard: pip install zstandard"
        ) from None
    try:
        # A stranger's frame may claim any size, so that in its header is not used.
        reader = zstandard.ZstdDecompressor(max_window_size=2 * size_bytes + (1 << 20)).stream_reader(frame)
        data: bytes = reader.read(size_bytes + 1)
    except zstandard.ZstdError:
        return b""
    return data

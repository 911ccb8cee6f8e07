"""Compression of a stream of chunks."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

_GZIP_CONTAINER = 16 + zlib.MAX_WBITS


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks as one gzip member; equal input gives equal bytes (no time stamp)."""
    compressor = zlib.compressobj(level=6, wbits=_GZIP_CONTAINER)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()

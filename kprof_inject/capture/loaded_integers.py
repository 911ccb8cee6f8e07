"""File of the integers in memory that decide what a kernel executes, and where it accesses memory.

They are those of tables of indices, lengths and pointers, as one launch found them. ``docs/file-formats.md``
describes the file.
"""

from __future__ import annotations

import zlib
from typing import Annotated

from msgspec import Meta, Struct

from kprof_inject.capture.saved_launch import MAX_RANGES, Address
from kprof_inject.capture.schema import Argument, Grid

MAX_LOADED_BYTES = 16 << 20
"""Maximum size of all ranges."""

MAX_COMPRESSED_BYTES = 2 << 20
"""Maximum size of ``data``: the file is JSON, with it in Base64."""

_RangeBytes = Annotated[int, Meta(ge=1, le=MAX_LOADED_BYTES)]


class LoadedIntegersRecord(Struct, frozen=True, kw_only=True):
    """Content of ``loaded_integers.json``: memory of a launch with this grid and these arguments.

    The ranges begin at ``starts``, in ascending order, and have ``sizes`` in bytes. ``data`` has the bytes of all of
    them one after another, compressed by zlib.
    """

    grid: Grid
    arguments: Annotated[tuple[Argument | None, ...], Meta(max_length=1 << 12)]
    starts: Annotated[tuple[Address, ...], Meta(max_length=MAX_RANGES)]
    sizes: Annotated[tuple[_RangeBytes, ...], Meta(max_length=MAX_RANGES)]
    data: Annotated[bytes, Meta(max_length=MAX_COMPRESSED_BYTES)]

    def __post_init__(self) -> None:
        """Require ranges that do not overlap, and not too much memory."""
        if len(self.starts) != len(self.sizes) or sum(self.sizes) > MAX_LOADED_BYTES:
            raise ValueError(f"expected a size for each range, and at most {MAX_LOADED_BYTES} bytes")
        end = 0
        for start, size in zip(self.starts, self.sizes, strict=True):
            if start < end:
                raise ValueError(f"expected the range at {start:#x} after the one before")
            end = start + size

    def is_of(self, grid: tuple[int, int, int], arguments: tuple[int | None, ...]) -> bool:
        """Return whether a launch has this grid and these arguments."""
        return self.grid == grid and self.arguments == arguments

    @property
    def memory(self) -> bytes:
        """The bytes of all ranges; fewer if the file is damaged."""
        try:
            return zlib.decompressobj().decompress(self.data, sum(self.sizes) + 1)
        except zlib.error:
            return b""

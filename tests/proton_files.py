"""Proton's ``host_buffer`` as a file, packed here from its description (see ``buffers``)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIELDS = (
    *("version", "header_offset", "header_size", "payload_offset", "payload_size"),
    *("device_type", "block_num", "total_unit", "scratch_mem_size", "uid_num"),
)


def header_words(words: NDArray[np.uint32], num_warps: int, uids: Sequence[int]) -> list[int]:
    """The header of a payload with one row for each CTA."""
    size = 40 + 4 * len(uids)
    return [1, 4, size, size, words.nbytes, 1, len(words), num_warps, words.shape[1] * 4, len(uids), *uids]


def file_bytes(
    words: NDArray[np.uint32],
    num_warps: int,
    uids: Sequence[int] | None = None,
    changes: Mapping[str, int] | None = None,
) -> bytes:
    """Header and payload; ``changes`` are words of the header that are not as they should be."""
    header = header_words(words, num_warps, range(num_warps) if uids is None else uids)
    for field, value in (changes or {}).items():
        header[FIELDS.index(field)] = value
    return struct.pack(f"<{len(header)}I", *header) + words.tobytes()


def save_file(folder: Path, *buffer: Any, **unusual: Any) -> Path:
    """Write ``file_bytes`` of these."""
    path = folder / "matmul.bin"
    path.write_bytes(file_bytes(*buffer, **unusual))
    return path


def without_times(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The same rows as Triton 3.5 writes them, which read no timer."""
    return np.concatenate((words[:, :4], words[:, 10:], np.zeros((len(words), 6), dtype="<u4")), axis=1)

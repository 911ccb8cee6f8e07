"""Header of Proton's ``host_buffer``, which describes its payload.

Proton's instrumentation hook packs it (triton/profiler/hooks/instrumentation.py, ``_populate_host_buffer``), and
Proton's ``readCircularLayoutTrace`` reads it: ten little-endian words and the ids of the recorded warps, without
padding. It is the same in Triton 3.5.1 to 3.9.0, and does not say which layout the payload has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kprof_inject.capture.buffer_layouts import HEADER_WORDS, WORDS_PER_ENTRY
from kprof_inject.errors import KprofError

_VERSION = 1
_LATEST_VERSION = 0xFF
_HEADER_OFFSET = 4
_WORD_BYTES = 4
# A CTA has at most 1024 threads.
_MAX_WARPS = 1024

_BACKENDS = {1: "cuda", 2: "hip"}
_HINT = "save it again, whole: host_buffer.numpy().tofile(PATH)"


@dataclass(frozen=True, slots=True)
class ProtonHeader:
    """Header of a buffer: ``rows`` of ``row_bytes``, one for each CTA, begin at ``payload_offset``.

    Of a CTA's ``num_warps`` warps those in ``recorded``, ascending, have a ring. ``backend`` is ``cuda``, ``hip``, or
    empty if unknown.
    """

    payload_offset: int
    rows: int
    row_bytes: int
    num_warps: int
    recorded: tuple[int, ...]
    backend: str


class _Words(NamedTuple):
    """Words of the header, in the order of the file."""

    version: int
    header_offset: int
    header_size: int
    payload_offset: int
    payload_size: int
    device_type: int
    block_num: int
    total_unit: int
    scratch_mem_size: int
    uid_num: int


_FIXED = struct.Struct(f"<{len(_Words._fields)}I")


def is_proton_buffer(path: Path) -> bool:
    """Return whether a file begins as a ``host_buffer`` of any version; the rest may be damaged."""
    # Opening a pipe would block until another process writes to it.
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            begin = file.read(_FIXED.size)
    except OSError:
        return False
    if len(begin) < 2 * _WORD_BYTES:
        return False
    version, header_offset = struct.unpack_from("<2I", begin)
    return 1 <= int(version) <= _LATEST_VERSION and header_offset == _HEADER_OFFSET


def read_header(path: Path) -> ProtonHeader:
    """Read the header, and check it against the file.

    Raises ``KprofError`` with the byte at which they disagree.
    """
    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            begin = file.read(_FIXED.size + _MAX_WARPS * _WORD_BYTES)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    if len(begin) < _FIXED.size:
        raise _cut_off(path, f"its header takes at least {_FIXED.size} bytes", file_bytes)
    words = _Words(*_FIXED.unpack_from(begin))
    if words.version != _VERSION:
        raise KprofError(
            f"{path} has version {words.version} of Proton's buffer (byte 0), this program reads {_VERSION}",
            hint="update kprof-inject, or give a file that Proton wrote",
        )
    recorded = _recorded(path, words, begin, file_bytes)
    _check_payload(path, words, file_bytes)
    _check_rows(path, words, recorded)
    return ProtonHeader(
        words.payload_offset,
        words.block_num,
        words.scratch_mem_size,
        words.total_unit,
        recorded,
        _BACKENDS.get(words.device_type, ""),
    )


def _recorded(path: Path, words: _Words, begin: bytes, file_bytes: int) -> tuple[int, ...]:
    """Return the recorded warps.

    Proton's compiler gives each warp one ring, in ascending order, however the user named them.
    """
    warps, uids = words.total_unit, words.uid_num
    _check(path, words.header_offset == _HEADER_OFFSET, "header_offset", f"its header begins at {words.header_offset}")
    _check(path, 0 < warps <= _MAX_WARPS, "total_unit", f"a CTA has {warps} warps")
    _check(path, 0 < uids <= warps, "uid_num", f"{uids} of {warps} warps were recorded")
    size = _FIXED.size + uids * _WORD_BYTES
    _check(path, words.header_size == size, "header_size", f"{words.header_size} bytes of header, but it takes {size}")
    if len(begin) < size:
        raise _cut_off(path, f"its header takes {size} bytes", file_bytes)
    recorded = struct.unpack_from(f"<{uids}I", begin, _FIXED.size)
    for number, warp in enumerate(recorded):
        _check_at(path, warp < warps, _FIXED.size + number * _WORD_BYTES, f"warp {warp} of {warps} warps")
    return tuple(sorted(set(recorded)))


def _check_payload(path: Path, words: _Words, file_bytes: int) -> None:
    offset = words.payload_offset
    end = offset + words.payload_size
    _check(path, offset >= words.header_size, "payload_offset", f"its payload begins at {offset}, within the header")
    if end > file_bytes:
        raise _cut_off(path, f"its payload goes from byte {offset} to {end}", file_bytes)
    if end < file_bytes:
        raise KprofError(
            f"{path} has {file_bytes - end} more bytes after its payload, which ends at byte {end}",
            hint="save each launch's host_buffer to its own file",
        )


def _check_rows(path: Path, words: _Words, recorded: tuple[int, ...]) -> None:
    row_bytes = words.scratch_mem_size
    if row_bytes == 0 or words.payload_size == 0:
        raise KprofError(
            f"{path} has no records: the kernel that was launched last has none",
            hint="take the buffer right after the launch of a kernel with scopes",
        )
    # Size with the smallest header of all layouts, and one entry in each ring.
    min_bytes = _WORD_BYTES * (HEADER_WORDS + words.total_unit + WORDS_PER_ENTRY * len(recorded))
    whole = row_bytes % _WORD_BYTES == 0 and row_bytes >= min_bytes
    _check(
        path,
        whole,
        "scratch_mem_size",
        f"{row_bytes} bytes for a CTA, which must be whole words and at least {min_bytes} bytes",
    )
    rows = words.payload_size // row_bytes
    fits = words.block_num == rows and rows > 0
    _check(path, fits, "block_num", f"{words.block_num} CTAs, but its payload has room for {rows}")


def _check(path: Path, holds: bool, field: str, what: str) -> None:
    _check_at(path, holds, _Words._fields.index(field) * _WORD_BYTES, what)


def _check_at(path: Path, holds: bool, at: int, what: str) -> None:
    if not holds:
        raise KprofError(f"{path} is damaged at byte {at}: {what}", hint=_HINT)


def _cut_off(path: Path, promise: str, file_bytes: int) -> KprofError:
    return KprofError(f"{path} is truncated: {promise}, but it ends at byte {file_bytes}", hint=_HINT)

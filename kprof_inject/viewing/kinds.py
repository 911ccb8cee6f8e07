"""Whether a file is a trace that the Perfetto UI may read: it looks at how a file begins, not at its name."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import BinaryIO

from kprof_inject.errors import KprofError
from kprof_inject.files import open_regular

# Far more than the first packet of any trace takes, or the blanks before a JSON text.
_BEGIN_BYTES = 1 << 16

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS

# What Perfetto takes for JSON, blanks left out (``src/trace_processor/util/trace_type.cc`` of its sources).
_JSON = (b'{"', b'[{"')

# Each packet is the field 1 of the message ``Trace``, which has no other, and of the wire type with a length.
_PACKET = 0x0A
_MORE_OF_LENGTH = 0x80
_LENGTH_BITS = 32

_HINT = "give one that the Perfetto UI reads, such as .pftrace or .json, also with .gz; or a capture, or a workspace"


def open_trace(path: Path) -> BinaryIO:
    """The file at ``path``, open. Raises ``KprofError`` unless it, or what is gzipped in it, begins as a Chrome or a
    Perfetto trace does."""
    file = io.BufferedReader(open_regular(path))
    try:
        _require_trace(path, file.read(_BEGIN_BYTES))
    except OSError as error:
        file.close()
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    except KprofError:
        file.close()
        raise
    return file


def _require_trace(path: Path, begin: bytes) -> None:
    if begin.startswith(_GZIP):
        begin = _unpacked(path, begin)
    if not begin:
        raise KprofError(f"{path} is empty", hint=_HINT)
    if not (b"".join(begin.split()).startswith(_JSON) or _is_packets(begin)):
        raise KprofError(f"{path} is no trace", hint=_HINT)


def _unpacked(path: Path, begin: bytes) -> bytes:
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(begin, _BEGIN_BYTES)
    except zlib.error as error:
        raise KprofError(f"{path} is damaged: {error}", hint=_HINT) from None


def _is_packets(begin: bytes) -> bool:
    """Whether these are packets, one after the other. A text may begin with the first byte of one: it is a newline."""
    at = 0
    while at < len(begin):
        if begin[at] != _PACKET:
            return False
        at += 1
        length = 0
        for bits in range(0, _LENGTH_BITS, 7):
            if at == len(begin):
                return _is_cut(begin)
            byte = begin[at]
            at += 1
            length |= (byte & ~_MORE_OF_LENGTH) << bits
            if byte < _MORE_OF_LENGTH:
                break
        at += length
    return at == len(begin) or _is_cut(begin)


def _is_cut(begin: bytes) -> bool:
    """Whether there may be more of the file than this."""
    return len(begin) == _BEGIN_BYTES

"""Data in a page: compressed, in base64, in a script element that no browser runs."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

_TYPE = "application/octet-stream;base64"
_LEVEL = 6
# Base64 makes 4 characters of 3 bytes: whole triples can be written one after the other.
_TRIPLE = 3
_AT_ONCE = _TRIPLE << 16


def data_element(identifier: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    """An element with what the parts are together; ``identifier`` is ours, and plain."""
    yield f'<script type="{_TYPE}" id="{identifier}">'.encode()
    left = b""
    for packed in _packed(parts):
        left += packed
        if len(left) >= _AT_ONCE:
            whole = len(left) // _TRIPLE * _TRIPLE
            yield base64.b64encode(left[:whole])
            left = left[whole:]
    yield base64.b64encode(left)
    yield b"</script>\n"


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def json_bytes(values: Any) -> bytes:
    """JSON that may stand anywhere in HTML: no character of it ends an element or begins one."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()

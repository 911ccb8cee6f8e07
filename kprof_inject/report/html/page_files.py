"""The page's own files, styles and modules that find each other by ``#name``, and its data."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).with_name("assets")


def text_of(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


def styles() -> str:
    """All of ``assets/*.css``, the shell's first."""
    names = sorted((path.name for path in _ROOT.glob("*.css")), key=lambda name: (name != "style.css", name))
    return "\n".join(map(text_of, names))


def import_map() -> str:
    """An import map with each module as a data: URL, so that modules load without a network and without a server."""
    names = sorted(path.relative_to(_ROOT).with_suffix("").as_posix() for path in _ROOT.rglob("*.js"))
    modules = {f"#{name}": _data_url(text_of(f"{name}.js")) for name in names}
    return json.dumps({"imports": modules}, indent=0)


def content_policy(style: str, scripts: Sequence[str] = ()) -> str:
    """The Content-Security-Policy of a page with just these inline elements: the browser runs them, and modules from
    data: URLs where there are scripts, and loads and sends nothing.
    """
    may_run = f"script-src {' '.join(map(_source_hash, scripts))} data:; " if scripts else ""
    return (
        f"default-src 'none'; {may_run}style-src {_source_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _source_hash(text: str) -> str:
    """What a policy calls an inline element with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data_url(module: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.encode()).decode()}"


_TYPE = "application/octet-stream;base64"
_LEVEL = 6
# Base64 makes 4 characters of 3 bytes: whole triples can be written one after the other.
_TRIPLE = 3
_AT_ONCE = _TRIPLE << 16


def data_element(identifier: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    """What the parts are together, compressed, in base64, in a script element that no browser runs; ``identifier`` is
    ours, and plain.
    """
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

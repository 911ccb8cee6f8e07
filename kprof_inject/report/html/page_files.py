"""The page's own files: styles, modules that import each other by ``#name``, and its data."""

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
    """Return the text of a file of ``assets``."""
    return (_ROOT / name).read_text(encoding="utf-8")


def styles() -> str:
    """Return the text of all of ``assets/*.css``, that of the shell first."""
    names = sorted((path.name for path in _ROOT.glob("*.css")), key=lambda name: (name != "style.css", name))
    return "\n".join(map(text_of, names))


def import_map() -> str:
    """Return an import map with each module as a data: URL, so that modules load without a network or a server."""
    names = sorted(path.relative_to(_ROOT).with_suffix("").as_posix() for path in _ROOT.rglob("*.js"))
    modules = {f"#{name}": _data_url(text_of(f"{name}.js")) for name in names}
    return json.dumps({"imports": modules}, indent=0)


def content_policy(style: str, scripts: Sequence[str] = ()) -> str:
    """Return the Content-Security-Policy of a page with only these inline elements.

    The browser runs them, and modules from data: URLs if there are scripts; it loads and sends nothing.
    """
    may_run = f"script-src {' '.join(map(_source_hash, scripts))} data:; " if scripts else ""
    return (
        f"default-src 'none'; {may_run}style-src {_source_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _source_hash(text: str) -> str:
    """Return the policy's name for an inline element with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data_url(module: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.encode()).decode()}"


_TYPE = "application/octet-stream;base64"
_LEVEL = 6
# Base64 makes 4 characters of 3 bytes, so whole triples can be encoded separately.
_TRIPLE = 3
_AT_ONCE = _TRIPLE << 16


def data_element(identifier: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the joined parts, compressed, in base64, in a script element that no browser runs.

    ``identifier`` must be plain text that needs no escaping.
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
    """Return JSON that is safe anywhere in HTML: none of its characters ends or begins an element."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()

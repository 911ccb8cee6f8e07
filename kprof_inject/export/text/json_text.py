"""JSON that Perfetto's own tokenizer reads back.

It decodes escapes only in strings that hold a quote, and a string that ends in a backslash fails the whole load. So no
escape but the quote's is left in.
"""

from __future__ import annotations

import json
from typing import Any

from kprof_inject.printable import printable


def json_text(value: Any) -> bytes:
    """A value as JSON, with what cannot be read back replaced."""
    return json.dumps(_readable(value), separators=(",", ":"), ensure_ascii=False).encode()


def json_inside(text: str) -> bytes:
    """A text as it stands between the quotes of a JSON string."""
    return json_text(text)[1:-1]


def _readable(value: Any) -> Any:
    match value:
        case str():
            return printable(value).replace("\\", "/")
        case dict():
            return {key: _readable(item) for key, item in value.items()}
        case list():
            return [_readable(item) for item in value]
    return value

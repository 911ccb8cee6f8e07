"""What terminals of a given width and encoding are shown."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

WIDE = 300


def lines_shown(show: Callable[[Console], object], width: int = WIDE, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    terminal = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    show(Console(file=terminal, width=width))
    terminal.flush()
    return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


def coloured(show: Callable[[Console], object]) -> str:
    out = io.StringIO()
    show(Console(file=out, width=WIDE, force_terminal=True, color_system="standard"))
    return out.getvalue()

"""What terminals of a given width and encoding are shown."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

WIDE = 300


class _Screen(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def lines_shown(
    show: Callable[[Console], object], width: int = WIDE, encoding: str = "utf-8", height: int | None = None
) -> list[str]:
    """Without a ``height``, it is for no screen: a pipe."""
    raw = io.BytesIO()
    kind = io.TextIOWrapper if height is None else _Screen
    terminal = kind(raw, encoding=encoding, errors="backslashreplace")
    show(Console(file=terminal, width=width, height=height, color_system=None))
    terminal.flush()
    return [line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()]


def coloured(show: Callable[[Console], object]) -> str:
    out = io.StringIO()
    show(Console(file=out, width=WIDE, force_terminal=True, color_system="standard"))
    return out.getvalue()

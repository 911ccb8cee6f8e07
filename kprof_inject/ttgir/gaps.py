"""What may stand between any two words of a file: blanks, line ends and comments."""

from __future__ import annotations

import re

GAP = re.compile(r"(?:[ \t\r\n]++|//[^\n]*+\n)*+")
"""The terminal of that name in the grammar."""


def after_gap(text: str, offset: int = 0) -> int:
    """Where the first word at ``offset`` or behind it begins: what stands before it are blanks and comments."""
    found = GAP.match(text, offset)
    return found.end() if found else offset

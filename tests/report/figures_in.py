"""The figures in a sentence: what stays the same if it is worded otherwise."""

from __future__ import annotations

import re

_FIGURE = re.compile(r"\d+(?:\.\d+)?")


def figures_in(text: str) -> list[str]:
    """Return all numbers in the text as they are printed, without signs and units."""
    return _FIGURE.findall(text)

"""Long columns, part by part: what is made of a part does not grow with the column."""

from __future__ import annotations

from collections.abc import Iterator

PART = 1 << 16


def parts(count: int) -> Iterator[slice]:
    """From 0 to ``count``, at most ``PART`` rows at a time."""
    for begin in range(0, count, PART):
        yield slice(begin, min(begin + PART, count))

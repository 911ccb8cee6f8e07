"""What the machine code of two modules takes of an SM, where both were compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kprof_inject.capture.resources import KernelResources

_NAMES = {"shared bytes": "shared_bytes", "registers": "registers", "spills": "spills"}
"""What each is called, as in a comparison of captures, and its field."""


def build_lines(builds: Sequence[KernelResources | None]) -> Iterator[str]:
    """Yield one line, or none if no side was compiled."""
    if not any(builds):
        return
    parts = []
    for name, field in _NAMES.items():
        before, after = ("-" if build is None else _text(getattr(build, field)) for build in builds)
        if (before, after) != ("-", "-"):
            parts.append(f"{name} {before}" if before == after else f"{name} {before} → {after}")
    yield f"compiled here: {', '.join(parts)}"


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)


def builds_json(builds: Sequence[KernelResources | None]) -> dict[str, Any] | None:
    """Return them as JSON values; None if no side was compiled."""
    if not any(builds):
        return None
    sides = zip("ab", builds, strict=True)
    return {side: build and {field: getattr(build, field) for field in _NAMES.values()} for side, build in sides}

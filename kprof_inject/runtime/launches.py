"""Which launches of a kernel are kept: what the user writes after ``--launches``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from kprof_inject.errors import KprofError, Position


class LaunchFilter(Protocol):
    """Decides by the number of the launch, counted from 0 for each variant.

    With ``replaces``, a kept launch takes the place of the one kept before."""

    @property
    def replaces(self) -> bool: ...

    def keeps(self, index: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class LastLaunch:
    """``last``: every launch is a candidate, and stands until the next."""

    replaces: bool = True

    def keeps(self, index: int) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class LaunchRange:
    """``first <= index < stop``; ``stop`` None means no end."""

    first: int
    stop: int | None
    replaces: bool = False

    def keeps(self, index: int) -> bool:
        return self.first <= index and (self.stop is None or index < self.stop)


_RANGE = re.compile(r"(\d+)(?:(:)(\d+)?)?")


def parse_launches(text: str) -> LaunchFilter:
    """``last``, ``first``, ``all``, ``N``, ``A:B`` or ``A:``. Raises ``KprofError`` for anything else."""
    words: dict[str, LaunchFilter] = {
        "last": LastLaunch(),
        "first": LaunchRange(0, 1),
        "all": LaunchRange(0, None),
    }
    if text in words:
        return words[text]
    found = _RANGE.fullmatch(text)
    if found is None:
        raise KprofError(
            f"cannot read the launches {text!r}",
            where=Position("--launches", 1, 1, text),
            hint="last, first, all, a number counted from 0, or a range such as 10:20",
            exit_code=2,
        )
    first, colon, stop = found.groups()
    if not colon:
        return LaunchRange(int(first), int(first) + 1)
    return LaunchRange(int(first), int(stop) if stop else None)

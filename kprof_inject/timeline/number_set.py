"""Sets of numbers as the user writes them: ``0,4-7,12-``."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from kprof_inject.errors import KprofError, Position

_RANGE = re.compile(r"\s*(?P<first>[0-9]{1,9})\s*(?P<to>-\s*(?P<last>[0-9]{1,9})?)?\s*")

_Range = tuple[int, int | None]
"""The first number, and the first behind the range; None if it has no end."""


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Whole numbers from 0 on. ``bounds`` ascend: a number is in the set if an odd number of them are no greater."""

    bounds: tuple[int, ...]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> NumberSet:
        return cls._joined((number, number + 1) for number in numbers)

    @classmethod
    def below(cls, count: int) -> NumberSet:
        """0 to ``count`` - 1."""
        return cls((0, count) if count else ())

    @classmethod
    def union(cls, sets: Iterable[NumberSet]) -> NumberSet:
        return cls._joined(part for numbers in sets for part in numbers._ranges())

    @classmethod
    def parse(cls, text: str, option: str) -> NumberSet:
        """Numbers and ranges with commas between; a range has both its ends in it, or no last one. Raises a usage
        error that points into what stands after ``option``."""
        ranges = []
        column = 1
        for part in text.split(","):
            ranges.append(_parse_range(part, Position(option, 1, column + _indent(part), text)))
            column += len(part) + 1
        return cls._joined(ranges)

    @classmethod
    def _joined(cls, ranges: Iterable[_Range]) -> NumberSet:
        bounds: list[int] = []
        for first, behind in sorted(ranges, key=lambda ends: ends[0]):
            if len(bounds) % 2:
                break  # the last has no end, and holds all that follow
            if not bounds or first > bounds[-1]:
                bounds += [first] if behind is None else [first, behind]
            elif behind is None:
                bounds.pop()
            else:
                bounds[-1] = max(bounds[-1], behind)
        return cls(tuple(bounds))

    def __contains__(self, number: int) -> bool:
        return bisect_right(self.bounds, number) % 2 == 1

    def meets(self, other: NumberSet) -> bool:
        """Whether a number is in both."""
        return any(first in other for first in self.bounds[::2]) or any(first in self for first in other.bounds[::2])

    def among(self, numbers: NDArray[np.signedinteger]) -> NDArray[np.bool_]:
        """Which of these are in the set."""
        found: NDArray[np.bool_] = np.searchsorted(np.array(self.bounds), numbers, side="right") % 2 == 1
        return found

    def __str__(self) -> str:
        """As it can be parsed."""
        return ",".join(_range_text(first, behind) for first, behind in self._ranges())

    def _ranges(self) -> Iterator[_Range]:
        return zip_longest(self.bounds[::2], self.bounds[1::2])


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _parse_range(part: str, where: Position) -> _Range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise KprofError(
            f"{part.strip()!r} is no number and no range" if part.strip() else "a number is missing",
            where=where,
            hint="numbers from 0 and ranges, with commas between, such as 0,4-7,12-",
            exit_code=2,
        )
    first = int(found["first"])
    if found["to"] is None:
        return first, first + 1
    if found["last"] is None:
        return first, None
    last = int(found["last"])
    if last < first:
        raise KprofError(
            f"no number is in {part.strip()}", where=where, hint=f"the smaller comes first: {last}-{first}", exit_code=2
        )
    return first, last + 1


def _range_text(first: int, behind: int | None) -> str:
    if behind is None:
        return f"{first}-"
    return str(first) if behind == first + 1 else f"{first}-{behind - 1}"

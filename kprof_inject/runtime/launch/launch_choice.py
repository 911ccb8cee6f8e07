"""The user's choice of launches: which are kept (``--launches``), and which kernels are replayed (``--replay``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from kprof_inject.errors import KprofError, Position


class LaunchFilter(Protocol):
    """Chooses launches by their numbers, counted from 0 for each variant."""

    @property
    def text(self) -> str:
        """What the user wrote."""

    @property
    def replaces(self) -> bool:
        """True if a kept launch replaces the one kept before."""

    def keeps(self, index: int) -> bool:
        """Return whether a launch is kept."""

    def kept_of(self, launches: int) -> int:
        """Return how many of this number of launches are kept in the end."""


@dataclass(frozen=True, slots=True)
class LastLaunch:
    """``last``: every launch is kept until the next one replaces it."""

    replaces: bool = True
    text: str = "last"

    def keeps(self, index: int) -> bool:
        """Return whether a launch is kept."""
        return True

    def kept_of(self, launches: int) -> int:
        """Return how many of this number of launches are kept in the end."""
        return min(launches, 1)


@dataclass(frozen=True, slots=True)
class LaunchRange:
    """Every ``step``-th launch of ``first <= index < stop``, beginning with ``first``; ``stop`` None means no end."""

    text: str
    first: int
    stop: int | None
    step: int = 1
    replaces: bool = False

    def keeps(self, index: int) -> bool:
        """Return whether a launch is kept."""
        inside = self.first <= index and (self.stop is None or index < self.stop)
        return inside and (index - self.first) % self.step == 0

    def kept_of(self, launches: int) -> int:
        """Return how many of this number of launches are kept in the end."""
        stop = launches if self.stop is None else min(launches, self.stop)
        return len(range(self.first, stop, self.step))


@dataclass(frozen=True, slots=True)
class ReplayChoice:
    """Which kernels are launched again to be timed, with records and without in turn.

    ``only`` are their variants, None all. ``times`` is how often each is timed both ways; None: as often as it takes,
    within ``KERNEL_SECONDS`` for each and ``PROCESS_SECONDS`` for all of a process, and not where the program could
    notice.
    """

    only: tuple[str, ...] | None = None
    times: int | None = None

    @classmethod
    def of(cls, times: int | None) -> ReplayChoice:
        """Return the choice of all kernels, ``times`` times: 0 is none, and None leaves it to us."""
        return cls(only=()) if times == 0 else cls(times=times)

    def among(self, variants: Iterable[str]) -> ReplayChoice:
        """Return the choice of these variants, if the user left it to us."""
        return self if self.times is not None or self.only is not None else replace(self, only=tuple(variants))


REPLAYS = ReplayChoice()
NO_REPLAYS = ReplayChoice.of(0)

KERNEL_SECONDS = 1.0
PROCESS_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class LaunchChoice:
    """Launches that one run keeps.

    Of kernels whose names match ``kernel``, it keeps the launches that ``launches`` names, at most ``max_launches`` (0:
    no limit) and ``max_bytes`` of buffers in each process. ``replays`` are made to time kernels; with ``torch_trace``,
    each process traces itself with ``torch.profiler``.
    """

    launches: LaunchFilter = LastLaunch()
    kernel: str = "*"
    max_launches: int = 0
    max_bytes: int = 1 << 30
    replays: ReplayChoice = REPLAYS
    torch_trace: bool = False


_WORDS: dict[str, LaunchFilter] = {
    "last": LastLaunch(),
    "first": LaunchRange("first", 0, 1),
    "all": LaunchRange("all", 0, None),
}
_PART = re.compile(r"(?:^|:)([^:]*)")
# More digits than any program has launches.
_NUMBER = re.compile(r"[0-9]{1,18}")
_FORMS = "last, first, all, a number counted from 0, or a range such as 10:20 or 0:100:10"


def parse_launches(text: str) -> LaunchFilter:
    """Parse ``last``, ``first``, ``all``, ``N``, or a range ``A:B:STEP``.

    A range is like a slice of Python's: any part may be left out. Raises ``KprofError`` for anything else, and for a
    range of no launches.
    """
    if text in _WORDS:
        return _WORDS[text]
    parts = list(_PART.finditer(text))
    if len(parts) > 3:
        raise _unreadable(text, parts[3].start())
    numbers = [_number(text, part.start(1), part[1]) for part in parts]
    if len(numbers) == 1:
        if numbers[0] is None:
            raise _unreadable(text, 0)
        return LaunchRange(text, numbers[0], numbers[0] + 1)
    first = numbers[0] or 0
    stop = numbers[1]
    step = 1 if len(numbers) == 2 or numbers[2] is None else numbers[2]
    if stop is not None and stop <= first:
        raise _error(text, parts[1].start(1), f"no launch is in {text}", "the end of a range is exclusive")
    if step == 0:
        raise _error(text, parts[2].start(1), "the step is 0", "1 keeps every launch of the range")
    return LaunchRange(text, first, stop, step)


def _number(text: str, offset: int, part: str) -> int | None:
    """Parse one part of a range; None if it was left out."""
    if not part:
        return None
    if re.fullmatch(r"-[0-9]+", part):
        raise _error(text, offset, f"there is no launch {part}", "launches are counted from 0; last is the last one")
    digits = _NUMBER.match(part)
    if digits is None or digits.end() < len(part):
        raise _unreadable(text, offset + (digits.end() if digits else 0))
    return int(part)


def _unreadable(text: str, offset: int) -> KprofError:
    return _error(text, offset, f"cannot read the launches {text!r}", _FORMS)


def _error(text: str, offset: int, what: str, hint: str) -> KprofError:
    return KprofError(what, where=Position("--launches", 1, offset + 1, text), hint=hint, exit_code=2)

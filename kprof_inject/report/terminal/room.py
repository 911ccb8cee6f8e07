"""How many lines a screen has for the tables of a report, and how many of their rows are shown there.

What limits a launch stands above them: a terminal that scrolled it away would show the figures and not the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.console import Console

# However high a terminal is, nobody reads more at a glance.
_MOST_LINES = 60
# Which capture it is and how to go on, as commands say it on stderr; and the shell's prompt.
_AROUND = 6


@dataclass(frozen=True, slots=True)
class Room:
    """``lines`` are those that are left; None where the output is for no screen. ``rest`` says where all that there is
    no room for stands."""

    lines: int | None = None
    rest: str = "report -v"

    @classmethod
    def on(cls, console: Console) -> Room:
        return cls(min(console.height, _MOST_LINES) - _AROUND if console.file.isatty() else None)

    def below(self, lines: int) -> Room:
        """What so many lines leave of it."""
        return self if self.lines is None else replace(self, lines=self.lines - lines)

    def holds(self, lines: int) -> bool:
        return self.lines is None or lines <= self.lines

    def rows(self, count: int, least: int, lines_of: Callable[[int], int]) -> int:
        """How many of ``count`` rows to show, for which ``lines_of`` says how many lines they take with all that
        belongs to them: as many as it holds, and ``least`` of them in any case."""
        if self.lines is None:
            return count
        while count > least and (excess := lines_of(count) - self.lines) > 0:
            count = max(count - excess, least)
        return count

"""The user's choices of how sites get their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kprof_inject.capture.mode import Mode
from kprof_inject.errors import KprofError
from kprof_inject.select.sites import Site
from kprof_inject.select.spans import SPREADS, Spread, in_one_piece

IterationRecords = Callable[[Site], Site]
"""A choice of an iteration's records: takes the site of ``Function.iteration_site`` and returns it or another."""


def one_record(site: Site) -> Site:
    """Let each start also end the iteration before, wherever nothing is between the two."""
    return site


def two_records(site: Site) -> Site:
    """Record a start and an end in each iteration."""
    return replace(site, exit=None)


ITERATION_RECORDS: dict[str, IterationRecords] = {"one": one_record, "two": two_records}
"""The choices by their names on the command line."""


@dataclass(frozen=True, slots=True)
class Style:
    """The way in which sites get their records."""

    spread: Spread = in_one_piece
    """How a scope around source lines is split where it would contain other operations."""

    iteration_records: IterationRecords = one_record

    @classmethod
    def from_words(cls, split: str, iteration_records: str) -> Style:
        """Return the style that these words of the command line choose. Raises ``KprofError`` for others."""
        for what, word, known in (("split", split, SPREADS), ("iter_records", iteration_records, ITERATION_RECORDS)):
            if word not in known:
                raise KprofError(f"there is no {what} {word!r}", hint=f"choose {' or '.join(known)}")
        return cls(SPREADS[split], ITERATION_RECORDS[iteration_records])

    def for_mode(self, mode: Mode) -> Style:
        """Return a style that the mode can record: if it moves stores, each start needs an end in its block."""
        return replace(self, iteration_records=two_records) if mode.sched_stores else self


USUAL_STYLE = Style()

"""How what selectors find gets its records: what the user may choose of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kprof_inject.capture.mode import Mode
from kprof_inject.errors import KprofError
from kprof_inject.select.sites import Site
from kprof_inject.select.spans import SPREADS, Spread, in_one_piece

IterationRecords = Callable[[Site], Site]
"""Which records an iteration gets: its site as ``Function.iteration_site`` makes it, or another."""


def one_record(site: Site) -> Site:
    """Its start also ends the one before, wherever nothing stands between the two."""
    return site


def two_records(site: Site) -> Site:
    """A start and an end in each."""
    return replace(site, exit=None)


ITERATION_RECORDS: dict[str, IterationRecords] = {"one": one_record, "two": two_records}
"""By the words of the command line."""


@dataclass(frozen=True, slots=True)
class Style:
    """How what selectors find gets its records."""

    spread: Spread = in_one_piece
    """Whether a scope around source lines may have others' operations in it."""

    iteration_records: IterationRecords = one_record

    @classmethod
    def of(cls, split: str, iteration_records: str) -> Style:
        """By the words of the command line. Raises ``KprofError`` for others."""
        for what, word, known in (("split", split, SPREADS), ("iter_records", iteration_records, ITERATION_RECORDS)):
            if word not in known:
                raise KprofError(f"there is no {what} {word!r}", hint=f"choose {' or '.join(known)}")
        return cls(SPREADS[split], ITERATION_RECORDS[iteration_records])

    def for_mode(self, mode: Mode) -> Style:
        """What the mode can record: where stores are moved, each start needs an end in its block."""
        return replace(self, iteration_records=two_records) if mode.sched_stores else self


USUAL_STYLE = Style()

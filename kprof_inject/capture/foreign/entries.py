"""What the buffers of other profilers come to: entries of units, by the device's globaltimer.

A *unit* is what recorded by itself: a group of threads of a CTA, or a lane. Some profilers write an entry for each
start and each end (``Points``), others one for the whole scope (``Spans``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

UNKNOWN_SM = -1

UNIT_COLUMNS = np.dtype(
    [("cta", "i4"), ("warp", "i2"), ("sm", "i4"), ("written", "i8"), ("lost", "i8"), ("damaged", "i8")]
)
"""One unit that wrote something: its block, its number in it, the SM (``UNKNOWN_SM`` if the buffer does not tell); how
many entries it wrote, how many of them found no room, and how many are none of its profiler's. Units are in order of
``cta`` and ``warp``."""


def sm_of_blocks(blocks: int, block: NDArray[np.int64], sm: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the SM of each block by what its entries say: ``UNKNOWN_SM`` where none says it, or where they contradict
    each other, because a block stays on its SM."""
    found = np.full(blocks, UNKNOWN_SM)
    found[block] = sm
    found[block[found[block] != sm]] = UNKNOWN_SM
    return found


class PointKind(IntEnum):
    """What a point is."""

    START = 0
    END = 1
    INSTANT = 2


POINT_COLUMNS = np.dtype([("unit", "i8"), ("event", "i4"), ("side", "i1"), ("ns", "i8")])
"""``unit`` is its place among the units, ``event`` what the kernel's author numbered, ``side`` a ``PointKind``."""

SPAN_COLUMNS = np.dtype(
    [("unit", "i8"), ("event", "i4"), ("is_instant", "?"), ("start_ns", "i8"), ("end_ns", "i8"), ("place", "i8")]
)
"""Of those that began in one step of the timer, that with the least ``place`` began first."""

OPEN_COLUMNS = np.dtype([("unit", "i8"), ("event", "i4")])
"""A scope that began and has no end."""


@dataclass(frozen=True, slots=True)
class Points:
    """Starts, ends and instants, by unit, and of each unit in the order of writing."""

    units: NDArray[np.void]
    points: NDArray[np.void]
    silent_ctas: int
    """How many CTAs of the grid wrote nothing."""

    def kinds(self) -> set[tuple[int, bool]]:
        """The events that occur, and whether as instants."""
        return _kinds(self.points["event"], self.points["side"] == PointKind.INSTANT)


@dataclass(frozen=True, slots=True)
class Spans:
    """Whole scopes and instants, in any order. No scope ends before it begins."""

    units: NDArray[np.void]
    spans: NDArray[np.void]
    opened: NDArray[np.void]
    silent_ctas: int
    lost_elsewhere: int = 0
    """How many more entries were lost, of which nobody knows the unit."""

    def kinds(self) -> set[tuple[int, bool]]:
        """As of ``Points``."""
        found = _kinds(self.spans["event"], self.spans["is_instant"])
        return found | {(event, False) for event in self.opened["event"].tolist()}


def _kinds(event: NDArray[np.int32], is_instant: NDArray[np.bool_]) -> set[tuple[int, bool]]:
    occurs = np.flatnonzero(np.bincount(2 * event.astype(np.int64) + is_instant)).tolist()
    return {(kind // 2, bool(kind % 2)) for kind in occurs}


Entries = Points | Spans


@dataclass(frozen=True, slots=True)
class Recorded:
    """The entries of one launch, and which scope of the launch's table each event is: shape (event, whether it is an
    instant), -1 for what does not occur."""

    entries: Entries
    scope_of_event: NDArray[np.int16]


class Profiler(Protocol):
    """How one profiler lays its buffer out."""

    cta_name: ClassVar[str]
    """What stands in for a CTA is called."""
    unit_name: ClassVar[str]
    """What stands in for a warp is called."""
    takes_units: ClassVar[bool]
    """Whether the buffer is cut into slices and does not say into how many."""

    def read(self, words: NDArray[np.uint64], units: int, names: int) -> Entries:
        """``words`` are the whole buffer, ``units`` how many slices it has, ``names`` how many events the user named.
        Raises ``KprofError`` for a buffer that is none of this profiler's; single entries that are none of its are
        counted."""
        ...


# Far longer than any launch, far less than what a damaged word makes of a time.
_LONGEST_LAUNCH_NS = 60_000_000_000


def of_one_launch(ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these times lie near most of the others."""
    if not ns.size:
        return np.zeros(0, dtype=bool)
    # Differences of any two numbers of 64 bits, without overflow.
    apart = np.abs(ns.astype(np.float64) - float(np.median(ns.astype(np.float64))))
    near: NDArray[np.bool_] = apart <= _LONGEST_LAUNCH_NS
    return near


def unwrapped(unit: NDArray[np.int64], low_words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Times of which only the lower 32 bits were kept. They are in order of ``unit``, and within a unit in the order of
    writing. Neighbours of a unit, and the first times of all units, must lie within 2.1 seconds of one another."""
    if not unit.size:
        return np.zeros(0, dtype=np.int64)
    begins = np.append(True, unit[1:] != unit[:-1])
    before = np.append(low_words[0], low_words[:-1])
    # A unit's first time goes by the first one of all.
    before[begins] = low_words[0]
    # In 32 bits: what is more than half of the period ahead is behind.
    steps = (low_words - before).view(np.int32).astype(np.int64)
    total = np.cumsum(steps)
    rest = np.repeat((total - steps)[begins], np.diff(np.flatnonzero(begins), append=len(unit)))
    ns: NDArray[np.int64] = int(low_words[0]) + total - rest
    return ns + (1 << 32) if int(ns.min()) < 0 else ns

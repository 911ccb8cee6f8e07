"""Common form of other profilers' buffers: entries of units, by the device's globaltimer.

A *unit* is whatever recorded on its own: a group of threads of a CTA, or a lane. Some profilers write an entry for each
start and each end (``Points``), others one for the whole scope (``Spans``).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

UNKNOWN_SM = -1

UNIT_COLUMNS = np.dtype(
    [("cta", "i4"), ("warp", "i2"), ("sm", "i4"), ("written", "i8"), ("lost", "i8"), ("damaged", "i8")]
)
"""Unit that wrote something: its block, its number in it, the SM (``UNKNOWN_SM`` if the buffer lacks it); the numbers
of entries that it wrote, that found no room, and that are invalid. Units are in order of ``cta`` and ``warp``.
"""


def sm_of_blocks(blocks: int, block: NDArray[np.int64], sm: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the SM of each block according to its entries.

    It is ``UNKNOWN_SM`` if no entry has it, or if entries contradict each other, because a block stays on its SM.
    """
    found = np.full(blocks, UNKNOWN_SM)
    found[block] = sm
    found[block[found[block] != sm]] = UNKNOWN_SM
    return found


class PointKind(IntEnum):
    """Kind of a point."""

    START = 0
    END = 1
    INSTANT = 2


POINT_COLUMNS = np.dtype([("unit", "i8"), ("event", "i4"), ("side", "i1"), ("ns", "i8")])
"""Point: ``unit`` is the index of its unit, ``event`` the number given by the kernel's author, ``side`` a
``PointKind``.
"""

SPAN_COLUMNS = np.dtype(
    [("unit", "i8"), ("event", "i4"), ("is_instant", "?"), ("start_ns", "i8"), ("end_ns", "i8"), ("place", "i8")]
)
"""Scope or instant. Of those that began in one step of the timer, the one with the smallest ``place`` began first."""

OPEN_COLUMNS = np.dtype([("unit", "i8"), ("event", "i4")])
"""Scope that began and has no end."""


class Points(Struct, frozen=True):
    """Starts, ends and instants by unit, and within a unit in the order of writing."""

    units: NDArray[np.void]
    points: NDArray[np.void]
    silent_ctas: int
    """Number of CTAs of the grid that wrote nothing."""

    def kinds(self) -> set[tuple[int, bool]]:
        """Return the events that occur, and whether as instants."""
        return _kinds(self.points["event"], self.points["side"] == PointKind.INSTANT)


class Spans(Struct, frozen=True):
    """Whole scopes and instants, in any order; no scope ends before it begins."""

    units: NDArray[np.void]
    spans: NDArray[np.void]
    opened: NDArray[np.void]
    silent_ctas: int
    lost_elsewhere: int = 0
    """Number of further lost entries whose unit is unknown."""

    def kinds(self) -> set[tuple[int, bool]]:
        """Return the events that occur, and whether as instants."""
        found = _kinds(self.spans["event"], self.spans["is_instant"])
        return found | {(event, False) for event in self.opened["event"].tolist()}


def _kinds(event: NDArray[np.int32], is_instant: NDArray[np.bool_]) -> set[tuple[int, bool]]:
    occurs = np.flatnonzero(np.bincount(2 * event.astype(np.int64) + is_instant)).tolist()
    return {(kind // 2, bool(kind % 2)) for kind in occurs}


Entries = Points | Spans


class Recorded(Struct, frozen=True):
    """Entries of one launch, and the scope of each event in the launch's table.

    ``scope_of_event`` has the shape (event, is an instant), and -1 for events that do not occur.
    """

    entries: Entries
    scope_of_event: NDArray[np.int16]


class Profiler(Struct, frozen=True):
    """Profiler whose buffers can be read.

    ``read`` takes the words of a whole buffer, the number of its slices, and the number of events that the user named.
    It raises ``KprofError`` for a buffer that is not of this profiler; single invalid entries are counted.
    """

    read: Callable[[NDArray[np.uint64], int, int], Entries]
    cta_name: str = "CTA"
    """Name of the unit in place of a CTA."""
    unit_name: str = "group"
    """Name of the unit in place of a warp."""
    takes_units: bool = False
    """True if the buffer is divided into slices and lacks their number."""


# Far longer than any launch, but far less than the error of a damaged time.
_MAX_LAUNCH_NS = 60_000_000_000


def of_one_launch(ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of these times are near most of the others."""
    if not ns.size:
        return np.zeros(0, dtype=bool)
    # Floats, because differences of any two 64-bit numbers may overflow.
    apart = np.abs(ns.astype(np.float64) - float(np.median(ns.astype(np.float64))))
    near: NDArray[np.bool_] = apart <= _MAX_LAUNCH_NS
    return near


def unwrapped(unit: NDArray[np.int64], low_words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Complete times of which only the lower 32 bits were kept.

    They are in order of ``unit``, and within a unit in the order of writing. Neighbours of a unit, and the first times
    of all units, must be within 2.1 seconds of each other.
    """
    if not unit.size:
        return np.zeros(0, dtype=np.int64)
    begins = np.append(True, unit[1:] != unit[:-1])
    before = np.append(low_words[0], low_words[:-1])
    # A unit's first time is relative to the first time of all.
    before[begins] = low_words[0]
    # A difference of more than half the 32-bit period ahead is a step back.
    steps = (low_words - before).view(np.int32).astype(np.int64)
    total = np.cumsum(steps)
    rest = np.repeat((total - steps)[begins], np.diff(np.flatnonzero(begins), append=len(unit)))
    ns: NDArray[np.int64] = int(low_words[0]) + total - rest
    return ns + (1 << 32) if int(ns.min()) < 0 else ns

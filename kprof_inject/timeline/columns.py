"""Columns of a timeline's arrays, and their values by group."""

from __future__ import annotations

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Reals = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.void]  # array of one of the columns below, such as ``SCOPE_COLUMNS``

SCOPE_COLUMNS = np.dtype(
    [
        ("launch", "i4"),
        ("cta", "i4"),
        ("sm", "i4"),
        ("warp", "i2"),
        ("scope", "i2"),
        ("depth", "i2"),
        ("flags", "u2"),
        ("iteration", "i4"),
        ("start_record", "i4"),
        ("end_record", "i4"),
        ("start_cycles", "i8"),
        ("end_cycles", "i8"),
        ("start_ns", "i8"),
        ("end_ns", "i8"),
        ("duration_cycles", "i8"),
        ("duration_ns", "i8"),
        ("self_ns", "i8"),
    ]
)
"""Scope that ran: a warp of a CTA went from its start to its end.

``launch`` is ``Launch.index``, ``scope`` indexes the scope table, ``depth`` is the number of the warp's scopes around
it, ``iteration`` its number in its loop (-1 where there is none or it is unknown), ``flags`` are ``ScopeFlag``.
``*_record`` are the numbers of its two records among all that the warp wrote, including lost ones.

As recorded: ``*_cycles`` by the SM's counter and ``*_ns`` by the device's globaltimer (subject to ``ClockFit.source``).
Without the cost of the records: ``duration_cycles`` and ``duration_ns``, and ``self_ns``, the part of the latter
outside the scopes inside. A scope lasts at least as long as the scopes inside it together, and never less than 0.
"""


NO_TAG = np.iinfo(np.int64).min  # unknown value of a scope's tag: the ring lost it, or it is damaged


def scope_columns(tags: int) -> np.dtype[np.void]:
    """Return ``SCOPE_COLUMNS``, and ``tags`` with up to so many values of a scope's own tags, the rest ``NO_TAG``."""
    return np.dtype([*SCOPE_COLUMNS.descr, ("tags", "i8", (tags,))]) if tags else SCOPE_COLUMNS


class ScopeFlag(IntFlag):
    """Properties of a scope other than its times."""

    CROSSES = 1  # crosses another scope: it begins inside it and ends after it, or the other way round
    CUT = 2  # too short: its records cost as much time as it took, or more, so nothing is left


CTA_COLUMNS = np.dtype(
    [("cta", "i4"), ("sm", "i4"), ("init_ns", "i8"), ("pre_final_ns", "i8"), ("post_final_ns", "i8")]
)
"""CTA that ran, by the device's globaltimer: its begin, the end of its work, the end of copying its records."""

INCOMPLETE_COLUMNS = np.dtype(
    [
        ("cta", "i4"),
        ("sm", "i4"),
        ("warp", "i2"),
        ("records_written", "i8"),
        ("records_lost", "i8"),
        ("open_starts", "i8"),
        ("stray_ends", "i8"),
        ("records_damaged", "i8"),
        ("lost_start_ns", "i8"),
        ("lost_end_ns", "i8"),
    ]
)
"""Warp that lacks records: how many the ring overwrote and their window in time (of length 0 if there are none), how
many starts and ends are unpaired, how many entries cannot be records.
"""


NO_SMALLEST = np.iinfo(np.int64).max
NO_LARGEST = np.iinfo(np.int64).min


def smallest(group: Numbers, values: Numbers, count: int) -> Numbers:
    """Return the smallest value of each of ``count`` groups; ``NO_SMALLEST`` for an empty group."""
    found = np.full(count, NO_SMALLEST)
    np.minimum.at(found, group, values)
    return found


def largest(group: Numbers, values: Numbers, count: int) -> Numbers:
    """Return the largest value of each of ``count`` groups; ``NO_LARGEST`` for an empty group."""
    found = np.full(count, NO_LARGEST)
    np.maximum.at(found, group, values)
    return found


def group_begins(begins: Mask) -> Numbers:
    """Return the index of the first row of each row's group; ``begins`` is true for these first rows."""
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))


def never_falling(values: Numbers, group: Numbers) -> Numbers:
    """Raise each value, in place, to the largest before it in its group; the values are in order of ``group``."""
    falls = np.flatnonzero((np.diff(values) < 0) & (np.diff(group) == 0))
    for number in np.unique(group[falls]).tolist():
        rows = slice(*np.searchsorted(group, (number, number + 1)).tolist())
        values[rows] = np.maximum.accumulate(values[rows])
    return values


def outermost_rows(block: Rows) -> Mask:
    """Determine which scopes begin outside of all others in the block, in which the scopes around may not be."""
    cta, warp = block["cta"], block["warp"]
    begins_warp = np.append(True, (cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1]))
    # Offsets make record numbers ascend from one warp to the next.
    before = np.cumsum(begins_warp) << 32
    latest_end = np.maximum.accumulate(before + block["end_record"])
    return np.append(True, (before + block["start_record"])[1:] > latest_end[:-1])


def distinct(values: Numbers) -> Numbers:
    """Return the different values of an array, ascending."""
    # NumPy's ``unique`` hashes since 2.3, which takes a hundred times as long for a million values.
    ordered = values.ravel()
    if (ordered[1:] < ordered[:-1]).any():
        ordered = np.sort(ordered)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered


def merged_ranges(starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Merge ranges, given in any order, into ascending ones with gaps between them."""
    if not starts.size:
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    first = np.flatnonzero(np.append(True, starts[1:] > reached[:-1]))
    return starts[first], reached[np.append(first[1:], starts.size) - 1]


def merged_spans(spans: Numbers) -> Numbers:
    """Merge spans of a place that touch each other; rows are place, begin and end, and the result is in order."""
    if not len(spans):
        return spans
    places, number = np.unique(spans[:, 0], return_inverse=True)
    first = spans[:, 1].min()
    # Places are so far apart that no span of one reaches the next.
    far = spans[:, 2].max() - first + 1
    begins, ends = merged_ranges(*(spans[:, side] - first + number * far for side in (1, 2)))
    number = begins // far
    moved = number * far - first
    return np.stack([places[number], begins - moved, ends - moved], axis=1)

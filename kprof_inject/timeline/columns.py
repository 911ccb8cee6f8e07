"""The columns of a timeline: what its arrays are made of."""

from __future__ import annotations

from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

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
"""One scope that ran: a warp of a CTA went from its start to its end.

``launch`` is ``Launch.index``, ``scope`` indexes the scope table, ``depth`` is how many scopes of the warp stood around
it, ``iteration`` its number in its loop (-1 where there is none or it is unknown), ``flags`` are ``ScopeFlag``.
``*_record`` are the numbers of its two records among all that the warp wrote, those that were lost too.

As they were recorded: ``*_cycles`` by the SM's counter and ``*_ns`` by the device's globaltimer (as far as
``ClockFit.source`` goes). Without what the records themselves cost: ``duration_cycles`` and ``duration_ns``, and of
that ``self_ns`` outside the scopes in it. A scope lasts at least as long as those in it together, and never less than
0.
"""


NO_TAG = np.iinfo(np.int64).min
"""A scope's tag whose value is unknown: the ring lost it, or it is damaged."""


def scope_columns(tags: int) -> np.dtype[np.void]:
    """``SCOPE_COLUMNS`` of a launch whose scopes have up to so many tags; if they have some, then with ``tags``: the
    values of a scope's own, in their order, and ``NO_TAG`` for the rest."""
    return np.dtype([*SCOPE_COLUMNS.descr, ("tags", "i8", (tags,))]) if tags else SCOPE_COLUMNS


class ScopeFlag(IntFlag):
    """What is to be known of a scope beside its times."""

    CROSSES = 1
    """It begins in a scope and ends behind it, or the other way round."""
    CUT = 2
    """Its records took all of its time, or more of it than there was: nothing is left of it."""


CTA_COLUMNS = np.dtype(
    [("cta", "i4"), ("sm", "i4"), ("init_ns", "i8"), ("pre_final_ns", "i8"), ("post_final_ns", "i8")]
)
"""One CTA that ran, by the device's globaltimer: its begin, the end of its work, the end of copying its records."""

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
"""One warp that lacks something of what it wrote: how many records the ring overwrote and the window that they were in
(of no length if there are none), how many starts and ends have no partner, how many entries are none of a record's."""


NO_SMALLEST = np.iinfo(np.int64).max
NO_LARGEST = np.iinfo(np.int64).min


def smallest(group: NDArray[np.int64], values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The smallest value of each of ``count`` groups; ``NO_SMALLEST`` for a group without any."""
    found = np.full(count, NO_SMALLEST)
    np.minimum.at(found, group, values)
    return found


def largest(group: NDArray[np.int64], values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The largest value of each of ``count`` groups; ``NO_LARGEST`` for a group without any."""
    found = np.full(count, NO_LARGEST)
    np.maximum.at(found, group, values)
    return found


def never_falling(values: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values, which are in order of ``group``, each at least as large as those before it in its group. The array is
    changed where it must be."""
    falls = np.flatnonzero((np.diff(values) < 0) & (np.diff(group) == 0))
    for number in np.unique(group[falls]).tolist():
        mine = slice(*np.searchsorted(group, (number, number + 1)).tolist())
        values[mine] = np.maximum.accumulate(values[mine])
    return values


def outermost_rows(block: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which scopes begin in no other one of the block: not by ``depth``, for the scopes around may not be in it."""
    cta, warp = block["cta"], block["warp"]
    begins_warp = np.append(True, (cta[1:] != cta[:-1]) | (warp[1:] != warp[:-1]))
    # Numbers of records that go on from one warp to the next.
    before = np.cumsum(begins_warp) << 32
    latest_end = np.maximum.accumulate(before + block["end_record"])
    outermost: NDArray[np.bool_] = np.append(True, (before + block["start_record"])[1:] > latest_end[:-1])
    return outermost

"""Which rows of a launch's buffer cannot be what a CTA of it wrote: by what they say and by what the others say.

A buffer that was not cleared holds what was in its memory before, and that may be the rows of an earlier launch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# No CTA outlasts half the period of 43 bits of cycles, and the timer counts no slower than an SM.
_LONGEST_NS = 1 << 41
# From its first CTA to its last, a launch is never so long without one that runs.
_LONGEST_PAUSE_NS = 60_000_000_000
# The year 2116. Two such times still have a difference in 64 bits.
_END_OF_TIME_NS = 1 << 62

# The kernel counts its words in a signed one.
_MOST_WORDS = (1 << 31) - 1
# More records than this must have taken their time: no warp writes one in less than a nanosecond.
_RECORDS_AT_ONCE = 1 << 20
_WORDS_PER_RECORD = 2


def usual_size(sizes: NDArray[np.uint32], rings: int, room_words: int) -> int:
    """The most frequent of the rows' ring sizes in bytes, of those that fit: ``rings`` rings of whole records in
    ``room_words``. 0 if none does."""
    found, counts = np.unique(sizes, return_counts=True)
    ring_words = found // 4 // rings
    fits = (ring_words > 0) & (ring_words % _WORDS_PER_RECORD == 0) & (ring_words <= room_words // rings)
    return int(found[fits][np.argmax(counts[fits])]) if fits.any() else 0


def sound_times(times: NDArray[np.uint64], rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the ``rows`` have times (row, 3) that can be of one launch: an end not before the begin, and both where
    most others are."""
    begin, end = times[:, 0], times[:, 1]
    at = np.flatnonzero(rows & (begin <= end) & (end < _END_OF_TIME_NS) & (end - begin <= _LONGEST_NS))
    sound = np.zeros_like(rows)
    if at.size:
        order = at[np.argsort(begin[at], kind="stable")]
        last_end = np.maximum.accumulate(end[order]).astype(np.int64)
        pauses_ns = begin[order[1:]].astype(np.int64) - last_end[:-1]
        part = np.append(0, np.cumsum(pauses_ns > _LONGEST_PAUSE_NS))
        sound[order[part == np.argmax(np.bincount(part))]] = True
    return sound


def possible_copying(pre_final_ns: NDArray[np.int64], post_final_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """When each CTA had copied its records. Where that cannot be, it is taken to have had none to copy."""
    copying_ns = post_final_ns - pre_final_ns
    return np.where((post_final_ns < pre_final_ns) | (copying_ns > _LONGEST_NS), pre_final_ns, post_final_ns)


def impossible_counts(
    written_words: NDArray[np.int64], durations_ns: NDArray[np.int64] | None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which counts (row, warp) no warp can have come to: those of no whole records, and those that are too high for the
    CTA's time (None: it is unknown)."""
    most: NDArray[np.int64] | int = _MOST_WORDS
    if durations_ns is not None:
        most = np.minimum(np.maximum(durations_ns, _RECORDS_AT_ONCE) * _WORDS_PER_RECORD, _MOST_WORDS)[:, None]
    return written_words % _WORDS_PER_RECORD != 0, written_words > most


def first_of_each(ids: NDArray[np.uint32], rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of the ``rows`` with the same id only one: that which stands where its id says, else the first. Every id of them
    is less than the number of rows."""
    at = np.flatnonzero(rows)
    holder = np.full(len(rows), -1)
    # Where an index is repeated, the last one stays.
    holder[ids[at[::-1]]] = at[::-1]
    home = at[ids[at] == at]
    holder[home] = home
    first = np.zeros_like(rows)
    first[holder[holder >= 0]] = True
    return first

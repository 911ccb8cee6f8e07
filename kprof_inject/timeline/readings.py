"""Timer readings of a launch, each with the clock value that it belongs to: what the clock is fitted to.

Every CTA reads the device's globaltimer when it begins (init) and when all its warps are done (pre-final). A record
reads the SM's cycle counter shortly after the one and shortly before the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas
from kprof_inject.timeline.groups import NO_LARGEST, NO_SMALLEST
from kprof_inject.timeline.tally import WarpTally

# globaltimer moves in steps of 32 ns on an H200: a reading is off by 32/sqrt(12) ns.
_STEP_ERROR_NS = 9.2
# From init to the first record of a scope around the function, in the warp that reads the timer, and from the last of
# all warps to pre-final. Measured on an H200 against readings of the kernel's own (tests/gpu/timed_kernels.py).
_AFTER_INIT_NS = 30.0
_BEFORE_FINAL_NS = 28.0
# How much more it may be: to a scope around the function, and to one somewhere within it.
_MORE_AROUND_FUNCTION_NS = 0.1
_MORE_WITHIN_FUNCTION_NS = 300.0
# How much of that may differ from CTA to CTA.
_SHIFT_VARIATION = 0.2
# How far the records that a ring lost may have been from the mean distance of those that it kept.
_LOST_DISTANCE_ERROR = 0.1
# A clock does not run this many times as fast as the others, nor at 10 GHz.
_WILD = 4.0
_FASTEST_CYCLES_PER_NS = 10.0
# Readings within so many standard errors of a fit count in full.
_TRUSTED_ERRORS = 3.0


@dataclass(frozen=True, slots=True)
class Readings:
    """One row for each reading. At the clock value ``cycles`` of SM ``sm`` the globaltimer showed ``ns`` (a whole
    number of nanoseconds) plus ``shift_ns``, with a standard error of ``error_ns``.

    ``shift_ns`` is the least that lies between the reading and the record. All readings of a side (``side`` is +1 for
    init and -1 for pre-final, 0 for neither) may have more of it, in the order of ``more_shift_ns``. What is reckoned
    is reckoned alike for all: that part of the error, ``shared_error_ns``, does not average out.
    """

    sm: NDArray[np.int64]
    cycles: NDArray[np.int64]
    ns: NDArray[np.int64]
    shift_ns: NDArray[np.float64]
    side: NDArray[np.float64]
    error_ns: NDArray[np.float64]
    shared_error_ns: NDArray[np.float64]
    more_shift_ns: float


def readings_of(ctas: RawCtas, warps: WarpTally, *, spans_function: bool, all_warps: bool = True) -> Readings:
    """Two readings for each CTA that recorded something, less those whose clock values cannot be.

    ``spans_function`` says that a scope stands around the function, ``all_warps`` that each warp of a CTA recorded:
    else nobody knows how long before pre-final, which waits for all, the last of the others was done.

    Where a ring lost its first records, their place is reckoned from how many they are and how far apart the others
    stand: a weak reading, but the only one of the rate if each SM ran a single CTA.
    """
    first, reckoned_error_cycles = first_cycles(ctas, warps)
    last = warps.last_cycles.max(axis=1, initial=NO_LARGEST)
    recorded = np.flatnonzero(warps.kept.any(axis=1))
    rows = _sound_rows(recorded, first, last, ctas)
    # An SM of which nothing else is known: the middle of its records belongs to the middle of the CTA's time.
    rest = recorded[~np.isin(ctas.sm[recorded], ctas.sm[rows])]
    middle_cycles = first[rest] + (last[rest] - first[rest]) // 2
    duration_ns = ctas.pre_final_ns[rest] - ctas.init_ns[rest]

    more_shift_ns = _MORE_AROUND_FUNCTION_NS if spans_function else _MORE_WITHIN_FUNCTION_NS
    init_error_ns = np.hypot(_STEP_ERROR_NS, _SHIFT_VARIATION * more_shift_ns)
    final_error_ns = init_error_ns if all_warps else _MORE_WITHIN_FUNCTION_NS
    counts = (len(rows), len(rows), len(rest))
    # A cycle is about half a nanosecond to one: close enough for an error.
    reckoned_ns = np.concatenate((reckoned_error_cycles[rows], np.zeros(len(rows) + len(rest))))
    return Readings(
        np.concatenate((ctas.sm[rows], ctas.sm[rows], ctas.sm[rest])),
        np.concatenate((first[rows], last[rows], middle_cycles)),
        np.concatenate((ctas.init_ns[rows], ctas.pre_final_ns[rows], ctas.init_ns[rest] + duration_ns // 2)),
        np.repeat((_AFTER_INIT_NS, -_BEFORE_FINAL_NS, 0.0), counts),
        np.repeat((1.0, -1.0, 0.0), counts),
        np.hypot(np.repeat((init_error_ns, final_error_ns, final_error_ns), counts), reckoned_ns)
        + np.concatenate((np.zeros(2 * len(rows)), np.abs(duration_ns) / 4)),
        reckoned_ns,
        more_shift_ns,
    )


def _sound_rows(
    rows: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64], ctas: RawCtas
) -> NDArray[np.int64]:
    """The CTAs whose cycles and nanoseconds are in about the proportion of the others'.

    One corrupted word can put a record hours away, and a least squares fit with it."""
    cycles = (last[rows] - first[rows]).astype(np.float64)
    duration_ns = (ctas.pre_final_ns[rows] - ctas.init_ns[rows]).astype(np.float64)
    cycles_per_ns = np.maximum(cycles, 1) / np.maximum(duration_ns, 1)
    usual = np.median(cycles_per_ns) if rows.size else 1.0
    return rows[(cycles_per_ns < min(_WILD * usual, _FASTEST_CYCLES_PER_NS)) & (duration_ns > 0)]


def first_cycles(ctas: RawCtas, warps: WarpTally) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The clock value of each CTA's first record, and its error: of lost ones, reckoned.

    The first of warp 0, whose first thread reads the timer; if that recorded nothing, the first of all.
    """
    kept = warps.kept > 0
    begin = np.where(kept, warps.first_cycles - np.rint(warps.lost_cycles).astype(np.int64), NO_SMALLEST)
    has_warp_0 = kept[:, 0] & (ctas.warps[0] == 0)
    chosen = np.where(has_warp_0, 0, np.argmin(begin, axis=1))
    rows = np.arange(len(begin))
    return begin[rows, chosen], _LOST_DISTANCE_ERROR * warps.lost_cycles[rows, chosen]


def trust(errors: NDArray[np.float64], side: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much each reading counts, 0 to 1, by how many standard errors it is later than a fit.

    A reading can only be too far from its record: where the memory is busy, the store of the timer's value holds the
    warp up. So what is off to that side (too early for init, too late for pre-final) is trusted less.
    """
    deviation = errors / _TRUSTED_ERRORS
    is_delay = deviation * side < 0
    return np.where(is_delay, 1 / (1 + deviation**2), 1 / np.maximum(np.abs(deviation), 1))

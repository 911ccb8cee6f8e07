"""Timer readings of a launch, each with the clock value that it belongs to: what the clock is fitted to.

Every CTA reads the device's globaltimer when it begins (init) and when all its warps are done (pre-final). A record
reads the SM's cycle counter shortly after the one and shortly before the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas
from kprof_inject.timeline.clocks.timer import timer_step
from kprof_inject.timeline.decoding.tally import WarpTally
from kprof_inject.timeline.groups import NO_LARGEST, NO_SMALLEST

# From init to the first record of a scope around the function, in the warp that reads the timer, and from the last of
# all warps to pre-final. Measured on an H200 against readings of the kernel's own (tests/gpu/timed_kernels.py).
_AFTER_INIT_NS = 30.0
_BEFORE_FINAL_NS = 28.0
# How much more it may be: to a scope around the function, and to one somewhere within it. That is anything from none to
# all of the CTA's time, half of it on either side: this share as a root mean square, but never less than so much.
_MORE_AROUND_FUNCTION_NS = 0.1
_MORE_WITHIN_FUNCTION_SHARE = 1 / np.sqrt(12)
LEAST_MORE_WITHIN_FUNCTION_NS = 300.0
# How much of that may differ from CTA to CTA, and how much of what is known.
_SHIFT_VARIATION = 0.2
_SHIFT_JITTER_NS = 3.0
# How far the records that a ring lost may have been from the mean distance of those that it kept.
_LOST_DISTANCE_ERROR = 0.1
# Readings within so many standard errors of a fit count in full, and beyond so many times that less and less.
_TRUSTED_ERRORS = 3.0
_FAR = 4.0


@dataclass(frozen=True, slots=True)
class Readings:
    """One row for each reading, in order of ``sm`` and ``cycles``. At the clock value ``cycles`` of SM ``sm`` the
    globaltimer showed ``ns`` plus ``shift_ns``, with a standard error of ``error_ns``.

    ``side`` is +1 for init and -1 for pre-final. ``shift_ns`` is the least that lies between the reading and the
    record; all of a launch may have more of it, to their ``side``, in the order of ``more_shift_ns``, and of a launch
    that does not tell, no more than ``most_shift_ns`` is taken for likely. A clock value that was reckoned is off by
    ``reckoned_cycles``, and all such are off alike.
    The timer moves in steps of ``step_ns``. A reading shows the last one, which is half a step late on the average; so
    are all times that are fitted to readings, and so they agree with any other reading of that timer.
    """

    sm: NDArray[np.int32]
    cycles: NDArray[np.int64]
    ns: NDArray[np.int64]
    side: NDArray[np.int8]
    error_ns: NDArray[np.float32]
    reckoned_cycles: NDArray[np.float32]
    more_shift_ns: float
    most_shift_ns: float
    step_ns: int

    @property
    def shift_ns(self) -> NDArray[np.float32]:
        return np.where(self.side > 0, np.float32(_AFTER_INIT_NS), np.float32(-_BEFORE_FINAL_NS))

    def at(self, rows: slice | NDArray[np.int64]) -> Readings:
        """Some of the readings."""
        return replace(
            self,
            sm=self.sm[rows],
            cycles=self.cycles[rows],
            ns=self.ns[rows],
            side=self.side[rows],
            error_ns=self.error_ns[rows],
            reckoned_cycles=self.reckoned_cycles[rows],
        )


def readings_of(ctas: RawCtas, warps: WarpTally, *, spans_function: bool, all_warps: bool = True) -> Readings:
    """Two readings for each CTA that recorded something.

    ``spans_function`` says that a scope stands around the function, ``all_warps`` that each warp of a CTA recorded:
    else nobody knows how long before pre-final, which waits for all, the last of the others was done.

    Where a ring lost its first records, their place is reckoned from how many they are and how far apart the others
    stand: a weak reading, but the only one of the rate if each SM ran a single CTA.
    """
    first, reckoned_cycles = first_cycles(ctas, warps)
    last = warps.last_cycles.max(axis=1, initial=NO_LARGEST)
    rows = np.flatnonzero(warps.kept.any(axis=1))
    sm, cycles, row, is_init = _in_order(ctas.sm, first, last, rows)
    step_ns = timer_step(ctas, rows, first, last)
    least_more_ns = _MORE_AROUND_FUNCTION_NS if spans_function else LEAST_MORE_WITHIN_FUNCTION_NS
    cta_ns = _usual_cta_ns(ctas, rows)
    # A reading that is late by anything up to a step has the standard error of a uniform distribution.
    init_error_ns = float(np.linalg.norm((step_ns / np.sqrt(12), _SHIFT_VARIATION * least_more_ns, _SHIFT_JITTER_NS)))
    final_error_ns = init_error_ns if all_warps else max(init_error_ns, LEAST_MORE_WITHIN_FUNCTION_NS)
    return Readings(
        sm,
        cycles,
        np.where(is_init, ctas.init_ns[row], ctas.pre_final_ns[row]),
        np.where(is_init, np.int8(1), np.int8(-1)),
        np.where(is_init, np.float32(init_error_ns), np.float32(final_error_ns)),
        np.where(is_init, reckoned_cycles[row], np.float32(0)),
        least_more_ns if spans_function else max(least_more_ns, _MORE_WITHIN_FUNCTION_SHARE * cta_ns),
        0.0 if spans_function else cta_ns / 2,
        step_ns,
    )


def _usual_cta_ns(ctas: RawCtas, rows: NDArray[np.int64]) -> float:
    """What the CTAs ``rows`` take in the median: of two, the shorter, for one may be damaged."""
    durations_ns = ctas.pre_final_ns[rows] - ctas.init_ns[rows]
    return max(float(np.quantile(durations_ns, 0.5, method="lower")), 0.0) if durations_ns.size else 0.0


def _in_order(
    sm: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Of each reading of the CTAs ``rows`` its SM, its clock value, its row, and whether it is init."""
    cycles = np.concatenate((first[rows], last[rows]))
    sms = np.tile(sm[rows].astype(np.int32), 2)
    order = np.lexsort((cycles, sms))
    return sms[order], cycles[order], rows[order % max(len(rows), 1)], order < len(rows)


def first_cycles(ctas: RawCtas, warps: WarpTally) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The clock value of each CTA's first record, and its error: of lost ones, reckoned.

    The first of warp 0, whose first thread reads the timer; if that recorded nothing, the first of all.
    """
    kept = warps.kept > 0
    begin = np.where(kept, warps.first_cycles - np.rint(warps.lost_cycles).astype(np.int64), NO_SMALLEST)
    has_warp_0 = kept[:, 0] & (ctas.warps[0] == 0)
    chosen = np.where(has_warp_0, 0, np.argmin(begin, axis=1))
    rows = np.arange(len(begin))
    return begin[rows, chosen], (_LOST_DISTANCE_ERROR * warps.lost_cycles[rows, chosen]).astype(np.float32)


def trust(errors: NDArray[np.float64], side: NDArray[np.int8]) -> NDArray[np.float64]:
    """How much each reading counts, 0 to 1, by how many standard errors it is later than a fit.

    A reading can only be too far from its record: where the memory is busy, the store of the timer's value holds the
    warp up. So what is off to that side (too early for init, too late for pre-final) is trusted less.
    """
    far = np.abs(errors) / _TRUSTED_ERRORS
    is_delay = errors * side < 0
    return np.where(is_delay, 1 / (1 + far**2), 1 / np.maximum(np.maximum(far, 1), far**2 / _FAR))

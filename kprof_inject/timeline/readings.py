"""First pass over a launch's records: timer readings for the clock, missing records, and lanes of scopes."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import CLOCK_BITS, RawCtas
from kprof_inject.timeline.columns import NO_LARGEST, NO_SMALLEST, Mask, Numbers, Reals
from kprof_inject.timeline.nesting import crossing_kinds, lanes_of, nest
from kprof_inject.timeline.pairs import NO_RULES, ScopeRules, scopes_of
from kprof_inject.timeline.records import RecordDecoder, Records

# Damaged counts or clock values may give more: half the period of 43 bits, which no CTA outlasts.
_MAX_LOST_CYCLES = float(1 << (CLOCK_BITS - 1))
_USUAL_DISTANCES = 0.96  # share of distances that count in full; the widest ones are limited to this quantile


class WarpTally(Struct, frozen=True):
    """Records of each recorded warp of each CTA; every array has the shape (CTA, warp).

    ``first_cycles`` and ``last_cycles`` are those of its ``kept`` sound records (``NO_SMALLEST`` and ``NO_LARGEST``
    without any). ``lost`` records were written before ``oldest_cycles``, the end of the oldest kept one; they began an
    estimated ``lost_cycles`` before the first record, by the mean distance of the others.
    """

    kept: NDArray[np.int32]
    lost: Numbers
    first_cycles: Numbers
    last_cycles: Numbers
    oldest_cycles: Numbers
    lost_cycles: Reals
    damaged: NDArray[np.int32]
    open_starts: NDArray[np.int32]
    stray_ends: NDArray[np.int32]


class Tally(Struct, frozen=True):
    """Totals of a launch's records.

    ``scopes`` is the number of scopes that ran. ``open_starts``, ``stray_ends`` and ``lanes`` are by scope of the
    table, as in ``Timeline``; ``groups`` counts the records of each group of scopes by warp: shape (group, warp).
    """

    warps: WarpTally
    scopes: int
    open_starts: Numbers
    stray_ends: Numbers
    lanes: Numbers
    groups: Numbers


def tally_launch(
    decoder: RecordDecoder, scope_count: int, rules: ScopeRules = NO_RULES, group_of_scope: Numbers | None = None
) -> Tally:
    """Count all records of a launch; ``group_of_scope`` has the group of each scope number that a record can have."""
    lost = decoder.ctas.records_lost
    warps = WarpTally(
        np.zeros(lost.shape, dtype=np.int32),
        lost,
        np.full_like(lost, NO_SMALLEST),
        np.full_like(lost, NO_LARGEST),
        np.full_like(lost, NO_SMALLEST),
        np.zeros(lost.shape),
        *np.zeros((3, *lost.shape), dtype=np.int32),
    )
    scopes = 0
    open_starts, stray_ends = np.zeros((2, scope_count), dtype=np.int64)
    crosses = np.zeros((scope_count, scope_count), dtype=bool)
    group_count = 0 if group_of_scope is None else int(group_of_scope.max(initial=-1)) + 1
    groups = np.zeros((group_count, lost.shape[1]), dtype=np.int64)
    for rows in decoder.blocks():
        records = decoder.decode(rows)
        with_ends, pairs = scopes_of(records, rules)
        _count_warps(warps, records, rows)
        shape = warps.kept[rows].shape
        warps.open_starts[rows] = _by_warp(with_ends, with_ends.group[pairs.open_starts], shape)
        warps.stray_ends[rows] = _by_warp(with_ends, with_ends.group[pairs.stray_ends], shape)
        scopes += len(pairs.scope)
        open_starts += np.bincount(with_ends.scope[pairs.open_starts], minlength=scope_count)
        stray_ends += np.bincount(with_ends.scope[pairs.stray_ends], minlength=scope_count)
        if group_of_scope is not None:
            cells = group_of_scope[records.scope] * lost.shape[1] + records.group % lost.shape[1]
            groups += np.bincount(cells, minlength=groups.size).reshape(groups.shape)
        if not nest(pairs, len(with_ends.scope)).is_proper:
            crosses |= crossing_kinds(pairs.scope, pairs.start_at, pairs.end_at, scope_count)
    return Tally(warps, scopes, open_starts, stray_ends, lanes_of(crosses), groups)


def _by_warp(records: Records, group: Numbers, shape: tuple[int, ...]) -> Numbers:
    return np.bincount(group - records.first_group, minlength=len(records.lost)).reshape(shape)


def _count_warps(warps: WarpTally, records: Records, rows: slice) -> None:
    shape = warps.kept[rows].shape
    kept = _by_warp(records, records.group, shape)
    begins = np.cumsum(kept.reshape(-1)).reshape(shape) - kept
    has_any = kept > 0
    warps.kept[rows] = kept
    warps.first_cycles[rows][has_any] = records.cycles[begins[has_any]]
    warps.last_cycles[rows][has_any] = records.cycles[(begins + kept - 1)[has_any]]
    warps.oldest_cycles[rows] = records.oldest[1].reshape(shape)
    warps.damaged[rows] = _by_warp(records, records.damaged, shape)
    # Moved stores may keep a scope older than all lost records; the lost records then do not precede the first one.
    is_first = warps.first_cycles[rows] == records.oldest[0].reshape(shape)
    lossy = np.flatnonzero((warps.lost[rows] > 0) & (kept > 1) & is_first)
    if lossy.size:
        distance = _usual_distance(records, lossy + records.first_group)
        lost_cycles = np.minimum(warps.lost[rows].reshape(-1)[lossy] * distance, _MAX_LOST_CYCLES)
        warps.lost_cycles[rows].reshape(-1)[lossy] = lost_cycles


def _usual_distance(records: Records, groups: Numbers) -> Reals:
    """Return the mean distance of the entries of each of ``groups``, which ascend.

    The widest distances count for less: after a loop, few records take long, and the lost ones were in the loop.
    """
    chosen = np.isin(records.group, groups)
    group, cycles = records.group[chosen], records.cycles[chosen]
    same = np.diff(group) == 0
    group, distances, entries = group[1:][same], np.diff(cycles)[same], np.diff(records.number[chosen])[same]
    order = np.lexsort((distances, group))
    begins = np.searchsorted(group, groups)
    counts = np.diff(np.append(begins, group.size))
    widest = distances[order][begins + np.maximum((counts * _USUAL_DISTANCES).astype(np.int64) - 1, 0)]
    usual = np.minimum(distances, np.repeat(widest, counts))
    return np.add.reduceat(usual, begins) / np.add.reduceat(entries, begins)


# 1,024 ns: a power of two that gaps do not share by accident. A timer that did not move between a CTA's begin and the
# copying of its records has no finer steps.
_COARSE_STEP_NS = 1024
# Steps that even few gaps between times can show; 1 if the gaps are multiples of none.
_KNOWN_STEPS_NS = (_COARSE_STEP_NS, 1000, 32, 10)
_FINE_STEP_NS = 32
_ENOUGH_GAPS = 16  # minimum number of gaps to find an unknown step
_MAX_CTAS = 1 << 12  # CTAs whose times are used
_SOUND_SHARE = 0.75  # share of the gaps that are multiples of the step, even if some times are damaged
_GAPS_PER_DIVISOR = 4  # number of gaps per greatest common divisor: few enough that often no damaged time is among them
# A timer may show multiples of its unit and yet pause for many units: then most gaps are as long as the pause,
# and the others are nearly all multiples of it.
_MIN_PAUSE_NS = 256
_MAX_MULTIPLE = 8
_MULTIPLE_ERROR = 0.05
_MULTIPLE_SHARE = 0.9
_SINGLE_SHARE = 0.6
# Minimum difference between the durations of CTAs and their cycles, in steps: of the tenth that differs most.
_UNUSUAL_SHARE = 0.9
_MIN_DIFFERENCE = 0.25
# Fewer CTAs cannot differ. Steps up to a fiftieth of their duration hardly matter.
_ENOUGH_CTAS = 3
_HARDLY = 1 / 200


def timer_step(ctas: RawCtas, rows: Numbers, first_cycles: Numbers, last_cycles: Numbers) -> int:
    """Estimate the step of the device's globaltimer in nanoseconds from the times of the CTAs ``rows``.

    It is 32 ns on an H200; about 1 µs on other NVIDIA GPUs, though perhaps in units of 32 ns; 10 ns on AMD, where
    Proton multiplies ``s_memrealtime``, a counter of 100 MHz, by ten. ``first_cycles`` and ``last_cycles`` (CTA) belong
    to the init and pre-final times.
    """
    sample = rows[:_MAX_CTAS]
    init_ns, final_ns = ctas.init_ns[sample], ctas.pre_final_ns[sample]
    times_ns = np.unique(np.concatenate((init_ns, final_ns, ctas.post_final_ns[sample])))
    gaps = times_ns[1:] - times_ns[:-1]
    if not gaps.size:
        return _COARSE_STEP_NS
    difference_ns = _unusual_difference(final_ns - init_ns, last_cycles[sample] - first_cycles[sample])
    found = []
    if gaps.size >= _ENOUGH_GAPS:
        batches = gaps[: gaps.size // _GAPS_PER_DIVISOR * _GAPS_PER_DIVISOR].reshape(-1, _GAPS_PER_DIVISOR)
        divisors = np.unique(np.gcd.reduce(batches, axis=1))[::-1].tolist()
        found.append(max(next((divisor for divisor in divisors if _divides(divisor, gaps)), 1), _pause_ns(gaps)))
    known = [step for step in _KNOWN_STEPS_NS if _divides(step, gaps)]
    # Invented times are round numbers too, but agree with their cycles.
    likely = (
        step
        for step in (*found, *known)
        if step <= _FINE_STEP_NS or step == _COARSE_STEP_NS or difference_ns >= _MIN_DIFFERENCE * step
    )
    return next(likely, 1)


def _divides(step: int, gaps: Numbers) -> bool:
    return bool(np.mean(gaps % step == 0) >= _SOUND_SHARE)


def _pause_ns(gaps: Numbers) -> int:
    """Return the length of the timer's pauses; 0 if it has none, or if the times are too sparse to show them."""
    single = float(np.median(gaps))
    multiples = gaps[gaps < (_MAX_MULTIPLE + 0.5) * single] / single
    is_multiple = np.abs(multiples - np.rint(multiples)) < _MULTIPLE_ERROR * np.rint(multiples)
    is_single = np.abs(gaps / single - 1) < _MULTIPLE_ERROR
    if single < _MIN_PAUSE_NS or is_multiple.mean() < _MULTIPLE_SHARE or is_single.mean() < _SINGLE_SHARE:
        return 0
    return round(float(gaps[is_single].mean()))


def _unusual_difference(durations_ns: Numbers, cycles: Numbers) -> float:
    if durations_ns.size < _ENOUGH_CTAS:
        # They show no difference: accept the steps that hardly matter.
        return float(durations_ns.min()) * _HARDLY
    rest_ns = durations_ns - np.median(durations_ns / np.maximum(cycles, 1)) * cycles
    return float(np.quantile(np.abs(rest_ns - np.median(rest_ns)), _UNUSUAL_SHARE))


# Time from init to the first record of a scope around the function, in the warp that reads the timer, and from the last
# record of all warps to pre-final. Measured on an H200 against readings of the kernel's own
# (tests/gpu/timed_kernels.py).
_AFTER_INIT_NS = 30.0
_BEFORE_FINAL_NS = 28.0
# Additional time that is likely: up to a scope around the function, and up to one somewhere within it. The latter is
# anything from none to all of the CTA's time, half of it on either side: this share as a root mean square, but never
# below the minimum.
_SHIFT_AROUND_FUNCTION_NS = 0.1
_SHIFT_WITHIN_FUNCTION_SHARE = 1 / np.sqrt(12)
MIN_SHIFT_WITHIN_FUNCTION_NS = 300.0
# Share of the additional time that differs from CTA to CTA, and the jitter of the known time.
_SHIFT_VARIATION = 0.2
_SHIFT_JITTER_NS = 3.0
# Relative error of the distance of lost records, estimated as the mean distance of the kept ones.
_LOST_DISTANCE_ERROR = 0.1
# Readings within this many standard errors of a fit count in full; those beyond this multiple of that count less and
# less.
_TRUSTED_ERRORS = 3.0
_FAR = 4.0


class Readings(Struct, frozen=True):
    """Timer readings of a launch, each with the clock value that it belongs to: the data to which the clock is fitted.

    Every CTA reads the device's globaltimer when it begins (init, ``side`` +1) and when all its warps are done
    (pre-final, ``side`` -1). A record reads the SM's cycle counter shortly after init and shortly before pre-final.

    Rows are readings, in order of ``sm`` and ``cycles``. At the clock value ``cycles`` of SM ``sm`` the globaltimer
    showed ``ns`` plus ``shift_ns``, with a standard error of ``error_ns``. ``shift_ns`` is the minimum time between the
    reading and the record. All readings of a launch may have more of it, towards their ``side``, on the order of
    ``more_shift_ns``; where the launch does not determine it, at most ``max_shift_ns`` is likely. Estimated clock
    values are off by ``estimated_error_cycles``, all in the same direction. ``cta_ns`` is the duration of the reading's
    CTA. No clock is slower than ``min_hz``: the cycles that the records of a CTA span, over its time.

    The timer moves in steps of ``step_ns``. A reading is half a step late on average, and so are all times that are
    fitted to readings.
    """

    sm: NDArray[np.int32]
    cycles: Numbers
    ns: Numbers
    side: NDArray[np.int8]
    error_ns: NDArray[np.float32]
    estimated_error_cycles: NDArray[np.float32]
    cta_ns: NDArray[np.float32]
    more_shift_ns: float
    max_shift_ns: float
    step_ns: int
    min_hz: float = 0.0

    @property
    def shift_ns(self) -> NDArray[np.float32]:
        """Minimum time from each reading to its record, with sign."""
        return np.where(self.side > 0, np.float32(_AFTER_INIT_NS), np.float32(-_BEFORE_FINAL_NS))

    def at(self, rows: slice | Numbers) -> Readings:
        """Return the readings in ``rows``."""
        columns = ("sm", "cycles", "ns", "side", "error_ns", "estimated_error_cycles", "cta_ns")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


def readings_of(ctas: RawCtas, warps: WarpTally, *, spans_function: bool, all_warps: bool = True) -> Readings:
    """Return two readings for each CTA that recorded something.

    ``spans_function`` is true if a scope surrounds the function. Without ``all_warps``, the time between the last other
    warp's end and pre-final, which waits for all, is unknown. Where a ring lost its first records, their time is
    estimated from their number and the distance of the others: a weak reading, but the only one of the rate if each SM
    ran a single CTA.
    """
    first, estimated_error_cycles = first_cycles(ctas, warps)
    last = warps.last_cycles.max(axis=1, initial=NO_LARGEST)
    rows = np.flatnonzero(warps.kept.any(axis=1))
    sm, cycles, row, is_init = _in_order(ctas.sm, first, last, rows)
    step_ns = timer_step(ctas, rows, first, last)
    min_more_ns = _SHIFT_AROUND_FUNCTION_NS if spans_function else MIN_SHIFT_WITHIN_FUNCTION_NS
    durations_ns = (ctas.pre_final_ns - ctas.init_ns)[rows]
    # Of two, the shorter: one may be damaged.
    cta_ns = max(float(np.quantile(durations_ns, 0.5, method="lower")), 0.0) if rows.size else 0.0
    # A reading that is late by up to a step has the standard error of a uniform distribution.
    lasted = durations_ns > 0
    # The cycles that the records of a CTA span, over its time.
    rates = (last - first)[rows][lasted] / durations_ns[lasted]
    init_error_ns = float(np.linalg.norm((step_ns / np.sqrt(12), _SHIFT_VARIATION * min_more_ns, _SHIFT_JITTER_NS)))
    final_error_ns = init_error_ns if all_warps else max(init_error_ns, MIN_SHIFT_WITHIN_FUNCTION_NS)
    return Readings(
        sm=sm,
        cycles=cycles,
        ns=np.where(is_init, ctas.init_ns[row], ctas.pre_final_ns[row]),
        side=np.where(is_init, np.int8(1), np.int8(-1)),
        error_ns=np.where(is_init, np.float32(init_error_ns), np.float32(final_error_ns)),
        estimated_error_cycles=np.where(is_init, estimated_error_cycles[row], np.float32(0)),
        cta_ns=(ctas.pre_final_ns - ctas.init_ns)[row].astype(np.float32),
        more_shift_ns=min_more_ns if spans_function else max(min_more_ns, _SHIFT_WITHIN_FUNCTION_SHARE * cta_ns),
        max_shift_ns=0.0 if spans_function else cta_ns / 2,
        step_ns=step_ns,
        min_hz=1e9 * float(np.median(rates)) if rates.size and not spans_function else 0.0,
    )


def _in_order(
    sm: Numbers, first: Numbers, last: Numbers, rows: Numbers
) -> tuple[NDArray[np.int32], Numbers, Numbers, Mask]:
    cycles = np.concatenate((first[rows], last[rows]))
    sms = np.tile(sm[rows].astype(np.int32), 2)
    order = np.lexsort((cycles, sms))
    return sms[order], cycles[order], rows[order % max(len(rows), 1)], order < len(rows)


def first_cycles(ctas: RawCtas, warps: WarpTally) -> tuple[Numbers, NDArray[np.float32]]:
    """Return the clock value of each CTA's first record, estimated if that was lost, and its error.

    It is warp 0's, whose first thread reads the timer; if that recorded nothing, the first of all warps. All warps
    begin together, so the range of their estimates is an error of each.
    """
    kept = warps.kept > 0
    begin = np.where(kept, warps.first_cycles - np.rint(warps.lost_cycles).astype(np.int64), NO_SMALLEST)
    has_warp_0 = kept[:, 0] & (ctas.warps[0] == 0)
    chosen = np.where(has_warp_0, 0, np.argmin(begin, axis=1))
    rows = np.arange(len(begin))
    lost_cycles = warps.lost_cycles[rows, chosen]
    estimated = kept & (warps.lost_cycles > 0)
    lowest, highest = np.where(estimated, begin, NO_SMALLEST), np.where(estimated, begin, NO_LARGEST)
    # Damaged words may be so far apart that integers would overflow.
    apart = (highest.max(axis=1).astype(np.float64) - lowest.min(axis=1).astype(np.float64)) / 2
    error = np.where(lost_cycles > 0, np.hypot(_LOST_DISTANCE_ERROR * lost_cycles, apart), 0.0)
    return begin[rows, chosen], error.astype(np.float32)


def reading_weights(errors: Reals, side: NDArray[np.int8]) -> Reals:
    """Return the weight of each reading, 0 to 1, by its distance from a fit in standard errors.

    A busy memory delays the store of the timer's value, so a reading can only be too far from its record. Those that
    are (too early for init, too late for pre-final) count less.
    """
    far = np.abs(errors) / _TRUSTED_ERRORS
    is_delay = errors * side < 0
    return np.where(is_delay, 1 / (1 + far**2), 1 / np.maximum(np.maximum(far, 1), far**2 / _FAR))

"""The first pass over a launch's records: what its clock is fitted to, what it lacks, and how its scopes stand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import CLOCK_BITS, RawCtas
from kprof_inject.timeline.columns import NO_LARGEST, NO_SMALLEST
from kprof_inject.timeline.nesting import crossing_kinds, lanes_of, nest
from kprof_inject.timeline.pairs import NO_RULES, Pairs, ScopeRules, scopes_of
from kprof_inject.timeline.records import RecordDecoder, Records, lost_records

# What a damaged count or clock value tells may be more: half the period of 43 bits, which no CTA outlasts.
_MAX_LOST_CYCLES = float(1 << (CLOCK_BITS - 1))
# The share of distances that count as they are.
_USUAL_DISTANCES = 0.96


@dataclass(frozen=True, slots=True)
class WarpTally:
    """What each recorded warp of each CTA wrote; every array has the shape (CTA, warp).

    ``first_cycles`` and ``last_cycles`` are those of its sound records (``NO_SMALLEST`` and ``NO_LARGEST`` without
    any), ``kept`` how many there are. Those ``lost`` were written before ``oldest_cycles``, where the oldest that the
    ring kept end; ``lost_cycles`` is how long before the first record they began, by the mean distance of the others.
    ``damaged`` entries are none of a record's; ``open_starts`` and ``stray_ends`` have no partner."""

    kept: NDArray[np.int32]
    lost: NDArray[np.int64]
    first_cycles: NDArray[np.int64]
    last_cycles: NDArray[np.int64]
    oldest_cycles: NDArray[np.int64]
    lost_cycles: NDArray[np.float64]
    damaged: NDArray[np.int32]
    open_starts: NDArray[np.int32]
    stray_ends: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tally:
    """What a launch's records add up to. ``scopes`` is how many ran; ``open_starts`` and ``stray_ends`` count, for each
    scope of the table, the records without a partner; scopes of the table with the same number in ``lanes`` never
    cross. ``groups`` has how many records of each group of scopes each warp wrote: shape (group, warp)."""

    warps: WarpTally
    scopes: int
    open_starts: NDArray[np.int64]
    stray_ends: NDArray[np.int64]
    lanes: NDArray[np.int64]
    groups: NDArray[np.int64]


def tally_launch(
    decoder: RecordDecoder,
    scope_count: int,
    rules: ScopeRules = NO_RULES,
    group_of_scope: NDArray[np.int64] | None = None,
) -> Tally:
    """Count all records of a launch; ``scope_count`` is how many scopes its table has, and ``rules`` are
    its. ``group_of_scope`` puts each number that a record can have into a group, numbered from 0; None if there are
    none."""
    lost = lost_records(decoder.ctas)
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
        told, pairs = scopes_of(records, rules)
        _count_warps(warps, records, rows)
        _count_unpaired(warps, told, pairs, rows)
        scopes += len(pairs.scope)
        open_starts += np.bincount(told.scope[pairs.open_starts], minlength=scope_count)
        stray_ends += np.bincount(told.scope[pairs.stray_ends], minlength=scope_count)
        if group_of_scope is not None:
            cells = group_of_scope[records.scope] * lost.shape[1] + records.group % lost.shape[1]
            groups += np.bincount(cells, minlength=groups.size).reshape(groups.shape)
        if not nest(pairs, len(told.scope)).is_proper:
            crosses |= crossing_kinds(pairs.scope, pairs.start_at, pairs.end_at, scope_count)
    return Tally(warps, scopes, open_starts, stray_ends, lanes_of(crosses), groups)


def _by_warp(records: Records, group: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """How often each group of the block occurs."""
    return np.bincount(group - records.first_group, minlength=len(records.lost)).reshape(shape)


def _count_unpaired(warps: WarpTally, records: Records, pairs: Pairs, rows: slice) -> None:
    """Fill in the CTAs ``rows``."""
    shape = warps.kept[rows].shape
    warps.open_starts[rows] = _by_warp(records, records.group[pairs.open_starts], shape)
    warps.stray_ends[rows] = _by_warp(records, records.group[pairs.stray_ends], shape)


def _count_warps(warps: WarpTally, records: Records, rows: slice) -> None:
    """Fill in the CTAs ``rows``."""
    shape = warps.kept[rows].shape
    kept = _by_warp(records, records.group, shape)
    begins = np.cumsum(kept.reshape(-1)).reshape(shape) - kept
    has_any = kept > 0
    warps.kept[rows] = kept
    warps.first_cycles[rows][has_any] = records.cycles[begins[has_any]]
    warps.last_cycles[rows][has_any] = records.cycles[(begins + kept - 1)[has_any]]
    warps.oldest_cycles[rows] = records.oldest[1].reshape(shape)
    warps.damaged[rows] = _by_warp(records, records.damaged, shape)
    # Where a scope is older than all that were lost, which moved stores make possible, it begins before them.
    is_first = warps.first_cycles[rows] == records.oldest[0].reshape(shape)
    losers = np.flatnonzero((warps.lost[rows] > 0) & (kept > 1) & is_first)
    if losers.size:
        distance = _usual_distance(records, losers + records.first_group)
        lost_cycles = np.minimum(warps.lost[rows].reshape(-1)[losers] * distance, _MAX_LOST_CYCLES)
        warps.lost_cycles[rows].reshape(-1)[losers] = lost_cycles


def _usual_distance(records: Records, groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean distance of the entries of each of ``groups``, which ascend: tags have entries between the records.

    The widest distances count for less: what follows a loop takes long for few records, and the lost ones were in it.
    """
    mine = np.isin(records.group, groups)
    group, cycles = records.group[mine], records.cycles[mine]
    same = np.diff(group) == 0
    group, distances, entries = group[1:][same], np.diff(cycles)[same], np.diff(records.number[mine])[same]
    order = np.lexsort((distances, group))
    begins = np.searchsorted(group, groups)
    counts = np.diff(np.append(begins, group.size))
    widest = distances[order][begins + np.maximum((counts * _USUAL_DISTANCES).astype(np.int64) - 1, 0)]
    usual = np.minimum(distances, np.repeat(widest, counts))
    return np.add.reduceat(usual, begins) / np.add.reduceat(entries, begins)


# About a microsecond, in binary: nothing comes in multiples of that by chance. A timer that has not moved from a CTA's
# begin until its records are copied has no finer steps.
_COARSE_STEP_NS = 1024
# Steps that few gaps between times can tell; 1 if they are no multiples of any of these.
_KNOWN_STEPS_NS = (_COARSE_STEP_NS, 1000, 32, 10)
_FINE_STEP_NS = 32
# So many gaps can tell any step.
_ENOUGH_GAPS = 16
_MAX_CTAS = 1 << 12
# So many gaps have the step for a divisor, however many times are damaged.
_SOUND_SHARE = 0.75
# The gaps of one greatest common divisor: few enough that often no damaged time is among them.
_TOGETHER = 4
# A timer may show its unit's multiples and yet stand still for many of them: then most gaps are as long as it does, and
# few are no multiple of that.
_MIN_STANDSTILL_NS = 256
_MAX_MULTIPLE = 8
_MULTIPLE_ERROR = 0.05
_MULTIPLE_SHARE = 0.9
_SINGLE_SHARE = 0.6
# By how much of a step the durations of CTAs differ from what their cycles say: the tenth that differs most.
_UNUSUAL_SHARE = 0.9
_MIN_DIFFERENCE = 0.25
# So many CTAs can differ. Steps of a fiftieth of their duration hardly matter.
_ENOUGH_CTAS = 3
_HARDLY = 1 / 200


def timer_step(
    ctas: RawCtas, rows: NDArray[np.int64], first_cycles: NDArray[np.int64], last_cycles: NDArray[np.int64]
) -> int:
    """The step of the device's globaltimer in nanoseconds, read off the times of the CTAs ``rows``: 32 ns on an H200;
    about 1 µs on other NVIDIA GPUs, perhaps in units of 32 ns all the same; 10 ns on AMD, where Proton multiplies
    ``s_memrealtime``, a counter of 100 MHz, by ten. ``first_cycles`` and ``last_cycles`` (CTA) belong to their init
    and pre-final times."""
    some = rows[:_MAX_CTAS]
    init_ns, final_ns = ctas.init_ns[some], ctas.pre_final_ns[some]
    times_ns = np.unique(np.concatenate((init_ns, final_ns, ctas.post_final_ns[some])))
    gaps = times_ns[1:] - times_ns[:-1]
    if not gaps.size:
        return _COARSE_STEP_NS
    difference_ns = _unusual_difference(final_ns - init_ns, last_cycles[some] - first_cycles[some])
    found = [max(_common_divisor(gaps), _standstill(gaps))] if gaps.size >= _ENOUGH_GAPS else []
    known = [step for step in _KNOWN_STEPS_NS if _divides(step, gaps)]
    # Times that somebody made up come in round numbers too, but go with their cycles.
    likely = (
        step
        for step in (*found, *known)
        if step <= _FINE_STEP_NS or step == _COARSE_STEP_NS or difference_ns >= _MIN_DIFFERENCE * step
    )
    return next(likely, 1)


def _divides(step: int, gaps: NDArray[np.int64]) -> bool:
    return bool(np.mean(gaps % step == 0) >= _SOUND_SHARE)


def _common_divisor(gaps: NDArray[np.int64]) -> int:
    """The largest that most gaps have."""
    together = gaps[: gaps.size // _TOGETHER * _TOGETHER].reshape(-1, _TOGETHER)
    divisors = np.unique(np.gcd.reduce(together, axis=1))[::-1].tolist()
    return next((divisor for divisor in divisors if _divides(divisor, gaps)), 1)


def _standstill(gaps: NDArray[np.int64]) -> int:
    """How long the timer stands still; 0 if it does not, or if the times are too sparse to tell."""
    single = float(np.median(gaps))
    multiples = gaps[gaps < (_MAX_MULTIPLE + 0.5) * single] / single
    is_multiple = np.abs(multiples - np.rint(multiples)) < _MULTIPLE_ERROR * np.rint(multiples)
    is_single = np.abs(gaps / single - 1) < _MULTIPLE_ERROR
    if single < _MIN_STANDSTILL_NS or is_multiple.mean() < _MULTIPLE_SHARE or is_single.mean() < _SINGLE_SHARE:
        return 0
    return round(float(gaps[is_single].mean()))


def _unusual_difference(durations_ns: NDArray[np.int64], cycles: NDArray[np.int64]) -> float:
    """By how much the durations of CTAs differ from what their cycles say, in nanoseconds. Of few CTAs, which tell
    nothing: by what steps make of them that hardly matter."""
    if durations_ns.size < _ENOUGH_CTAS:
        return float(durations_ns.min()) * _HARDLY
    rest_ns = durations_ns - np.median(durations_ns / np.maximum(cycles, 1)) * cycles
    return float(np.quantile(np.abs(rest_ns - np.median(rest_ns)), _UNUSUAL_SHARE))


# From init to the first record of a scope around the function, in the warp that reads the timer, and from the last of
# all warps to pre-final. Measured on an H200 against readings of the kernel's own (tests/gpu/timed_kernels.py).
_AFTER_INIT_NS = 30.0
_BEFORE_FINAL_NS = 28.0
# How much more it may be: to a scope around the function, and to one somewhere within it. That is anything from none to
# all of the CTA's time, half of it on either side: this share as a root mean square, but never less than so much.
_MORE_AROUND_FUNCTION_NS = 0.1
_MORE_WITHIN_FUNCTION_SHARE = 1 / np.sqrt(12)
MIN_SHIFT_WITHIN_FUNCTION_NS = 300.0
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
    """Timer readings of a launch, each with the clock value that it belongs to: what the clock is fitted to. Every CTA
    reads the device's globaltimer when it begins (init) and when all its warps are done (pre-final). A record reads the
    SM's cycle counter shortly after the one and shortly before the other.

    One row for each reading, in order of ``sm`` and ``cycles``. At the clock value ``cycles`` of SM ``sm`` the
    globaltimer showed ``ns`` plus ``shift_ns``, with a standard error of ``error_ns``.

    ``side`` is +1 for init and -1 for pre-final. ``shift_ns`` is the least that lies between the reading and the
    record; all of a launch may have more of it, to their ``side``, in the order of ``more_shift_ns``, and of a launch
    that does not tell, no more than ``max_shift_ns`` is taken for likely. A clock value that was reckoned is off by
    ``reckoned_cycles``, and all such are off alike. ``cta_ns`` is how long the reading's CTA took.
    ``min_hz`` is what the records of a CTA span, in cycles, over its time: no clock is slower. It is 0 where they
    span all of it.
    The timer moves in steps of ``step_ns``. A reading shows the last one, which is half a step late on the average; so
    are all times that are fitted to readings, and so they agree with any other reading of that timer.
    """

    sm: NDArray[np.int32]
    cycles: NDArray[np.int64]
    ns: NDArray[np.int64]
    side: NDArray[np.int8]
    error_ns: NDArray[np.float32]
    reckoned_cycles: NDArray[np.float32]
    cta_ns: NDArray[np.float32]
    more_shift_ns: float
    max_shift_ns: float
    step_ns: int
    min_hz: float = 0.0

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
            cta_ns=self.cta_ns[rows],
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
    least_more_ns = _MORE_AROUND_FUNCTION_NS if spans_function else MIN_SHIFT_WITHIN_FUNCTION_NS
    cta_ns = _usual_cta_ns(ctas, rows)
    # A reading that is late by anything up to a step has the standard error of a uniform distribution.
    init_error_ns = float(np.linalg.norm((step_ns / np.sqrt(12), _SHIFT_VARIATION * least_more_ns, _SHIFT_JITTER_NS)))
    final_error_ns = init_error_ns if all_warps else max(init_error_ns, MIN_SHIFT_WITHIN_FUNCTION_NS)
    return Readings(
        sm,
        cycles,
        np.where(is_init, ctas.init_ns[row], ctas.pre_final_ns[row]),
        np.where(is_init, np.int8(1), np.int8(-1)),
        np.where(is_init, np.float32(init_error_ns), np.float32(final_error_ns)),
        np.where(is_init, reckoned_cycles[row], np.float32(0)),
        (ctas.pre_final_ns - ctas.init_ns)[row].astype(np.float32),
        least_more_ns if spans_function else max(least_more_ns, _MORE_WITHIN_FUNCTION_SHARE * cta_ns),
        0.0 if spans_function else cta_ns / 2,
        step_ns,
        0.0 if spans_function else _least_hz(ctas, rows, last - first),
    )


def _least_hz(ctas: RawCtas, rows: NDArray[np.int64], cycles: NDArray[np.int64]) -> float:
    """The cycles that the records of each CTA span, over its time, in the median of the CTAs ``rows``."""
    durations_ns = (ctas.pre_final_ns - ctas.init_ns)[rows]
    lasted = durations_ns > 0
    return 1e9 * float(np.median(cycles[rows][lasted] / durations_ns[lasted])) if lasted.any() else 0.0


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

    The first of warp 0, whose first thread reads the timer; if that recorded nothing, the first of all. All warps begin
    together: by how much what is reckoned for them differs, each may be off.
    """
    kept = warps.kept > 0
    begin = np.where(kept, warps.first_cycles - np.rint(warps.lost_cycles).astype(np.int64), NO_SMALLEST)
    has_warp_0 = kept[:, 0] & (ctas.warps[0] == 0)
    chosen = np.where(has_warp_0, 0, np.argmin(begin, axis=1))
    rows = np.arange(len(begin))
    lost_cycles = warps.lost_cycles[rows, chosen]
    apart = _half_range(begin, kept & (warps.lost_cycles > 0))
    error = np.where(lost_cycles > 0, np.hypot(_LOST_DISTANCE_ERROR * lost_cycles, apart), 0.0)
    return begin[rows, chosen], error.astype(np.float32)


def _half_range(values: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Of the chosen values in each row; 0 where there are none."""
    least = np.where(chosen, values, NO_SMALLEST).min(axis=1)
    most = np.where(chosen, values, NO_LARGEST).max(axis=1)
    # They may be as far apart as damaged words are.
    return np.where(chosen.any(axis=1), most.astype(np.float64) - least.astype(np.float64), 0.0) / 2


def reading_weights(errors: NDArray[np.float64], side: NDArray[np.int8]) -> NDArray[np.float64]:
    """How much each reading counts, 0 to 1, by how many standard errors it is later than a fit.

    A reading can only be too far from its record: where the memory is busy, the store of the timer's value holds the
    warp up. So what is off to that side (too early for init, too late for pre-final) is trusted less.
    """
    far = np.abs(errors) / _TRUSTED_ERRORS
    is_delay = errors * side < 0
    return np.where(is_delay, 1 / (1 + far**2), 1 / np.maximum(np.maximum(far, 1), far**2 / _FAR))

"""Spread of a scope's time over warps, CTAs, SMs and iterations, and what a sample of the CTAs leaves open.

Only some CTAs of a large launch record. The intervals hold the value that all CTAs would show in 19 of 20 cases. The
durations in one CTA may be alike, so a CTA counts as one observation. That is at most too careful. What the fit of the
clock leaves open is added, and the time by which CTAs that record are slower or faster, as nothing shows in which
scopes they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.slowdown import DEVIATIONS
from kprof_inject.timeline.clock import ClockFit
from kprof_inject.timeline.columns import Numbers, Reals, Rows
from kprof_inject.timeline.timeline import Timeline

_NARROW = np.iinfo(np.int32)
# Larger pieces, from 32 MiB on, return to the system whenever they are freed (mallopt(3), M_MMAP_THRESHOLD).
_MAX_PIECE = 1 << 23


class ScopeColumn:
    """Column that grows block by block, and returns the part of each scope."""

    def __init__(self, scope_count: int) -> None:
        self._numbers = np.arange(scope_count + 1)
        self._blocks: list[tuple[NDArray[Any], Numbers]] = []
        self._room: dict[np.dtype[Any], NDArray[Any]] = {}
        self._size = 0

    def add(self, scope: NDArray[np.int16], values: NDArray[Any]) -> None:
        """Add the values of one block with their scopes, in the order of scopes."""
        room = self._room.get(values.dtype, values[:0])
        if len(room) < len(values):
            # Doubling bounds the unused memory by the used one.
            room = np.empty(max(len(values), min(self._size, _MAX_PIECE)), dtype=values.dtype)
        room[: len(values)] = values
        self._room[values.dtype] = room[len(values) :]
        self._size += len(values)
        self._blocks.append((room[: len(values)], np.searchsorted(scope, self._numbers)))

    def parts(self, scope: int) -> list[NDArray[Any]]:
        """Return a scope's values block by block; one empty part if there was no block."""
        parts = [values[bounds[scope] : bounds[scope + 1]] for values, bounds in self._blocks]
        return parts or [np.empty(0, dtype=np.int32)]

    def joined(self, scope: int) -> NDArray[Any]:
        """Return a copy of all of a scope's values, in the order of the blocks."""
        return np.concatenate(self.parts(scope))


def narrow(values: Numbers) -> NDArray[np.signedinteger]:
    """Return the values in 4 bytes each, if they fit."""
    fits = not values.size or (values.min() >= _NARROW.min and values.max() <= _NARROW.max)
    return values.astype(np.int32) if fits else values


def take_quantiles(values: NDArray[np.signedinteger], points: Sequence[float]) -> list[float]:
    """Return exact quantiles (``points`` from 0 to 1) of at least one value, linear between neighbours.

    The values are reordered in place.
    """
    at = np.asarray(points, dtype=np.float64) * (len(values) - 1)
    below, above = np.floor(at).astype(np.int64), np.ceil(at).astype(np.int64)
    values.partition(np.unique(np.concatenate((below, above))))
    low, high = (values[found].astype(np.float64) for found in (below, above))
    quantiles: list[float] = (low + (high - low) * (at - below)).tolist()
    return quantiles


class SpreadGroups(Struct, frozen=True, eq=False):
    """Counts and total times of a scope's runs, by the ``ids`` of the warps, CTAs or SMs in which it ran."""

    ids: Numbers
    counts: Numbers
    totals_ns: Numbers


class GroupSpread(Struct, frozen=True):
    """Spread of one scope's mean duration over ``groups`` warps, CTAs or SMs."""

    groups: int
    least_ns: float
    least_id: int  # warp, CTA or SM with the smallest mean; the first of equal ones
    median_ns: float
    mean_ns: float
    greatest_ns: float
    greatest_id: int
    imbalance: float  # largest mean over the mean of all; 1 if no time was taken at all


class CtaBalance(Struct, frozen=True):
    """Balance of a scope's time between the warps of one CTA.

    The imbalance is the total of the CTA's slowest warp over the mean of those that ran the scope: as median and as
    maximum over the ``ctas`` in which at least two did.
    """

    ctas: int
    median_imbalance: float
    greatest_imbalance: float
    greatest_cta: int


def spread_of(groups: SpreadGroups) -> GroupSpread | None:
    """Compute the spread; None if the scope ran nowhere."""
    if not groups.ids.size:
        return None
    means = groups.totals_ns / groups.counts
    least, greatest = int(means.argmin()), int(means.argmax())
    mean_ns = float(means.mean())
    return GroupSpread(
        len(means),
        float(means[least]),
        int(groups.ids[least]),
        float(np.median(means)),
        mean_ns,
        float(means[greatest]),
        int(groups.ids[greatest]),
        float(means[greatest]) / mean_ns if mean_ns else 1.0,
    )


class GroupSums:
    """Accumulator of each scope's time in each of a known set of warps or SMs, whose ids ascend."""

    def __init__(self, scope_count: int, ids: Numbers) -> None:
        self._ids = ids
        self._counts = np.zeros((scope_count, len(ids)), dtype=np.int64)
        self._totals_ns = np.zeros((scope_count, len(ids)), dtype=np.int64)

    def add(self, scope: NDArray[np.int16], group: NDArray[np.integer], duration_ns: Numbers) -> None:
        """Add runs of scopes in warps or SMs of the set."""
        scopes, groups = self._counts.shape
        cell = scope.astype(np.int64) * groups + np.searchsorted(self._ids, group)
        counts = np.bincount(cell, minlength=scopes * groups)
        # Doubles are exact up to 2^53 ns in one block, 104 days.
        totals_ns = np.bincount(cell, duration_ns, scopes * groups)
        self._counts += counts.reshape(scopes, groups)
        self._totals_ns += totals_ns.reshape(scopes, groups).astype(np.int64)

    def of(self, scope: int) -> SpreadGroups:
        """Return the sums of a scope in the warps or SMs in which it ran."""
        ran = np.flatnonzero(self._counts[scope])
        return SpreadGroups(self._ids[ran], self._counts[scope, ran], self._totals_ns[scope, ran])

    def total_ns(self, scopes: Sequence[int], ids: Sequence[int]) -> int:
        """Return the total time of these scopes in these warps or SMs."""
        rows, columns = np.array(scopes, dtype=np.int64), np.searchsorted(self._ids, ids)
        return int(self._totals_ns[np.ix_(rows, columns)].sum())


class CtaSums:
    """Accumulator of each scope's time in each CTA: 16 bytes for each pair of them that occurs."""

    def __init__(self, scope_count: int) -> None:
        self._ctas = ScopeColumn(scope_count)
        self._counts = ScopeColumn(scope_count)
        self._totals_ns = ScopeColumn(scope_count)
        self._imbalances = ScopeColumn(scope_count)

    def add(
        self, scope: NDArray[np.int16], cta: NDArray[np.int32], warp: NDArray[np.int16], duration_ns: Numbers
    ) -> None:
        """Add the scopes of whole CTAs, at least one, ordered by scope, CTA and warp."""
        begins_cta = np.append(True, (scope[1:] != scope[:-1]) | (cta[1:] != cta[:-1]))
        begins_warp = begins_cta | np.append(True, warp[1:] != warp[:-1])
        first, first_of_warp = np.flatnonzero(begins_cta), np.flatnonzero(begins_warp)
        warp_ns = np.add.reduceat(duration_ns, first_of_warp)
        at = np.searchsorted(first_of_warp, first)
        cta_ns = np.add.reduceat(warp_ns, at)
        warps = np.diff(at, append=len(warp_ns))
        imbalance = np.maximum.reduceat(warp_ns, at) * warps / np.maximum(cta_ns, 1)
        imbalance[cta_ns == 0] = 1.0
        imbalance[warps == 1] = np.nan

        owner = scope[first]
        self._ctas.add(owner, cta[first])
        self._counts.add(owner, narrow(np.diff(first, append=len(scope))))
        self._totals_ns.add(owner, narrow(cta_ns))
        self._imbalances.add(owner, imbalance.astype(np.float32))

    def groups(self, scope: int) -> SpreadGroups:
        """Return the sums of a scope in the CTAs in which it ran."""
        return SpreadGroups(self._ctas.joined(scope), self._counts.joined(scope), self._totals_ns.joined(scope))

    def of(self, scope: int) -> tuple[GroupSpread | None, CtaBalance | None]:
        """Return a scope's spread over the CTAs, and its balance within them."""
        groups, imbalances = self.groups(scope), self._imbalances.joined(scope)
        shared = np.flatnonzero(~np.isnan(imbalances))
        if not shared.size:
            return spread_of(groups), None
        found = imbalances[shared]
        worst = int(found.argmax())
        balance = CtaBalance(len(found), float(np.median(found)), float(found[worst]), int(groups.ids[shared[worst]]))
        return spread_of(groups), balance


_KEY_BITS = 63


class IterationSeries(Struct, frozen=True, eq=False):
    """Times of a loop's iterations by their number, over all runs of the loop; a run is one warp's pass through it.

    Iterations whose number is unknown do not count. ``numbers`` are those that occur, ascending from 0, with their
    ``counts``, ``mean_ns`` and ``p50_ns``. The ``runs`` had from ``fewest`` to ``most`` iterations, with this
    ``median``. ``first_ns`` is the median of the iterations with number 0; in runs of at least two, ``last_ns`` is that
    of the last ones and ``steady_ns`` that of all in between. The ratios are to ``steady_ns``. Values without
    iterations are None.
    """

    numbers: Numbers
    counts: Numbers
    mean_ns: Reals
    p50_ns: Reals
    runs: int
    fewest: int
    median: float
    most: int
    first_ns: float | None
    steady_ns: float | None
    last_ns: float | None
    first_over_steady: float | None
    last_over_steady: float | None


def turns_of(
    scope: NDArray[np.int16], cta: NDArray[np.int32], warp: NDArray[np.int16], iteration: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return a number for each iteration, its *turn*: from 1 up, negative if it is the last of its run, 0 if unknown.

    The iterations are ordered by scope, CTA, warp and start, and complete for each warp of a CTA. After one that is
    followed by an unknown number, its run may go on.
    """
    goes_on = np.zeros(len(scope), dtype=bool)
    is_same_warp = (scope[1:] == scope[:-1]) & (cta[1:] == cta[:-1]) & (warp[1:] == warp[:-1])
    goes_on[:-1] = is_same_warp & ((iteration[1:] > iteration[:-1]) | (iteration[1:] < 0))
    return np.where(goes_on, iteration + 1, -(iteration + 1))


def series_of(
    turns: Sequence[NDArray[np.int32]], durations_ns: Sequence[NDArray[np.signedinteger]]
) -> IterationSeries | None:
    """Compute the series of one scope from iterations' turns and durations; None if no number is known."""
    parts = list(zip(turns, durations_ns, strict=True))
    lengths = np.concatenate([-turn[turn < 0] for turn in turns])
    if not lengths.size:
        return None
    numbers, counts, mean_ns, p50_ns = _by_number(parts, int(lengths.max()))
    first_ns = float(p50_ns[0]) if numbers[0] == 0 else None
    steady_ns = _median([durations[turn > 1] for turn, durations in parts])
    last_ns = _median([durations[turn < -1] for turn, durations in parts])
    return IterationSeries(
        numbers=numbers,
        counts=counts,
        mean_ns=mean_ns,
        p50_ns=p50_ns,
        runs=len(lengths),
        fewest=int(lengths.min()),
        median=float(np.median(lengths)),
        most=int(lengths.max()),
        first_ns=first_ns,
        steady_ns=steady_ns,
        last_ns=last_ns,
        first_over_steady=_ratio(first_ns, steady_ns),
        last_over_steady=_ratio(last_ns, steady_ns),
    )


def _by_number(
    parts: Sequence[tuple[NDArray[np.int32], NDArray[np.signedinteger]]], longest_run: int
) -> tuple[Numbers, Numbers, Reals, Reals]:
    # Number and duration in one key, which sorts in place and fast. Durations that do not fit below 2^63 are of
    # minutes, from damaged records: they are clamped.
    shift = _KEY_BITS - longest_run.bit_length()
    longest_ns = np.int64((1 << shift) - 1)
    keys = np.empty(sum(np.count_nonzero(turn) for turn, _ in parts), dtype=np.int64)
    filled = 0
    for turn, durations_ns in parts:
        known = np.flatnonzero(turn)
        number = np.abs(turn[known]).astype(np.int64) - 1
        keys[filled : filled + len(known)] = number << shift | np.minimum(durations_ns[known], longest_ns)
        filled += len(known)
    keys.sort()
    begins = np.searchsorted(keys, np.arange(longest_run) << shift)
    keys &= longest_ns
    counts = np.diff(begins, append=len(keys))
    numbers = np.flatnonzero(counts)
    begins, counts = begins[numbers], counts[numbers]
    mean_ns = np.add.reduceat(keys, begins) / counts
    p50_ns = (keys[begins + (counts - 1) // 2] + keys[begins + counts // 2]) / 2
    return numbers, counts, mean_ns, p50_ns


def _median(parts: Sequence[NDArray[np.signedinteger]]) -> float | None:
    values = np.concatenate(parts)
    return take_quantiles(values, [0.5])[0] if values.size else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


_MIN_OTHER_TIME = 0.25  # if less of an SM's time is outside of a CTA, nothing shows how far its clock's rate is off
Interval = tuple[float, float | None]  # its upper end is None if the sample is too small to have one


class ClockBend:
    """Measure of how far the fit of a sample's clock can be trusted inside CTAs.

    With readings of few CTAs on an SM, the clock's curve can follow their errors: it bends inside each CTA, and back
    between them. (On an H200, curves were up to 8 % steeper inside CTAs of a few microseconds, and the shares of scopes
    as much too large.) The mean rate has the same errors, the more the longer a CTA's part of an SM's time is.
    """

    def __init__(self, clock: ClockFit) -> None:
        self._clock = clock
        self._cycles = self._ns = self._scopes = 0

    def add(self, block: Rows) -> None:
        """Add scopes that ran."""
        outermost = block[block["depth"] == 0]
        self._scopes += len(outermost)
        self._cycles += int((outermost["end_cycles"] - outermost["start_cycles"]).sum())
        self._ns += int((outermost["end_ns"] - outermost["start_ns"]).sum())

    @property
    def part(self) -> float:
        """Relative error of times inside of the scopes, from how the clock runs there and on their SMs."""
        rate_ns, curves = self._clock.rate_ns, self._clock.curves
        straight_ns = self._cycles * rate_ns * (1 + curves.mean_slope / rate_ns)
        if straight_ns <= 0:
            return 0.0
        of_sm = self._cycles / self._scopes / max(curves.mean_cycles, 1.0)
        return abs(self._ns / straight_ns - 1) / max(1 - of_sm, _MIN_OTHER_TIME)


class SamplingError(Struct, frozen=True):
    """Intervals of a scope's figures; the durations are None for a scope without any."""

    share: Interval | None
    p50_ns: Interval | None
    p99_ns: Interval | None


def sampling_error(
    timeline: Timeline,
    bend: float,
    ctas: SpreadGroups,
    durations_ns: NDArray[np.signedinteger],
    share: float | None,
    whole_ns: int,
) -> SamplingError:
    """Compute the error of a scope, given the clock's ``bend`` (``ClockBend.part``) and its times in the CTAs.

    ``durations_ns`` are reordered; ``share`` is their part of ``whole_ns``.
    """
    if not ctas.ids.size or not durations_ns.size:
        return SamplingError(None, None, None)
    left_out = 1 - 1 / timeline.ctas_per_recorded
    slower = timeline.slowdown.beyond_error if timeline.slowdown is not None else 0.0
    extra, missing = max(slower, 0.0), max(-slower, 0.0)  # parts of a CTA's time
    of_share = None
    if share is not None:
        # A ratio of sums: each CTA's distance from the ratio is an error of its own.
        rows = timeline.ctas[np.argsort(timeline.ctas["cta"])]
        own_ns = np.zeros(len(rows))
        own_ns[np.searchsorted(rows["cta"], ctas.ids)] = ctas.totals_ns
        lasts_ns = (rows["pre_final_ns"] - rows["init_ns"]).astype(np.float64)
        apart_ns = own_ns - share * whole_ns * lasts_ns / max(float(lasts_ns.sum()), 1.0)
        of_sample = float(np.sqrt(left_out * (apart_ns @ apart_ns))) / max(whole_ns, 1)
        # Scopes are timed by the SM's clock, whose rate is fitted, and CTAs by the device's timer.
        error = DEVIATIONS * float(np.hypot(of_sample, share * timeline.clock.rate_error)) + share * bend
        below = error + extra * (1 - share) + missing * share
        above = error + extra * share + missing * (1 - share)
        of_share = max(share - below, 0.0), min(share + above, 1.0)
    # The slowdown is a part of the others' time, and the share is one of the time of CTAs that record. All of the extra
    # or missing time may be in this scope.
    shorter = extra / (1 + extra) / (share or 1.0)
    longer = missing / max(1 - missing, 1e-9) / (share or 1.0)
    intervals: list[Interval] = []
    for point in (0.5, 0.99):
        # The durations whose ranks differ from the quantile's by the error of a share among the CTAs.
        error = DEVIATIONS * float(np.sqrt(left_out * point * (1 - point) / len(ctas.ids)))
        low, high = take_quantiles(durations_ns, (max(point - error, 0.0), min(point + error, 1.0)))
        most = high * (1 + bend + longer) if point + error < 1 else None
        intervals.append((low * max(1 - bend - shorter, 0.0), most))
    return SamplingError(of_share, *intervals)

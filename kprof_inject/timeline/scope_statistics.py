"""Statistics of each scope of a launch, and of its waits for memory: one pass over the blocks of its timeline.

A scope that ran costs 16 bytes at the peak, 8 more for each of its tags, and 16 for each CTA; no block is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.columns import Numbers, Reals, Rows, ScopeFlag, merged_spans, outermost_rows
from kprof_inject.timeline.partitions import shared_scopes
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.spread import (
    ClockBend,
    CtaBalance,
    CtaSums,
    GroupSpread,
    GroupSums,
    IterationSeries,
    SamplingError,
    ScopeColumn,
    SpreadGroups,
    narrow,
    sampling_error,
    series_of,
    spread_of,
    take_quantiles,
    turns_of,
)
from kprof_inject.timeline.timeline import Timeline


class ScopeStatistics(Struct, frozen=True, eq=False, kw_only=True):
    """Statistics of one scope of the table, over all warps and CTAs of a launch.

    Durations exclude the cost of records, except for ``raw_total_ns``. They are None for a scope without any, and so
    are sums where no start has its end, because 0 would be a time. A mark only has a ``count``.

    ``self_ns`` is the part of ``total_ns`` outside the scopes inside. ``share`` is the total's share of
    ``Timeline.warp_time_ns``, or of its partition's time, 0 to 1; None if that is 0 because the launch was shorter than
    a step of the timer. ``subtracted_ns`` is the cost of records subtracted from runs outside of all other scopes.
    ``cut`` and ``crossing`` count runs with the flag (``ScopeFlag``). ``warps`` and ``sms`` are where it ran,
    ``warps_self_ns`` is the self time of each of the warps, and the spreads are the differences between means there.
    """

    count: int
    total_ns: int | None
    self_ns: int | None
    raw_total_ns: int | None
    subtracted_ns: int
    share: float | None
    mean_ns: float | None
    min_ns: int | None
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: int | None
    mean_cycles: float | None
    p50_cycles: float | None
    cut: int
    crossing: int
    warps: SpreadGroups
    warps_self_ns: Numbers
    sms: SpreadGroups
    warp_spread: GroupSpread | None
    cta_spread: GroupSpread | None
    sm_spread: GroupSpread | None
    cta_balance: CtaBalance | None
    iterations: IterationSeries | None
    sampling: SamplingError | None = None  # error of the figures; None if all CTAs recorded


class ScopeSums:
    """Accumulator of a launch's scope statistics, block by block."""

    def __init__(self, timeline: Timeline) -> None:
        scopes = timeline.table.scopes
        self._timeline = timeline
        self._groups: list[SpreadGroups] = []
        self._count = len(scopes)
        self._is_instant = np.array([scope.kind == ScopeKind.INSTANT for scope in scopes], dtype=bool)
        self._is_iteration = np.array([scope.kind == ScopeKind.ITERATION for scope in scopes], dtype=bool)
        self._shared = shared_scopes(timeline.partitions)
        self._counts = np.zeros(self._count, dtype=np.int64)
        self._durations_ns = ScopeColumn(self._count)
        self._durations_cycles = ScopeColumn(self._count)
        self._turns = ScopeColumn(self._count)
        names = ("self_ns", "raw_total_ns", "subtracted_ns", "cut", "crossing")
        self._sums = {name: np.zeros(self._count, dtype=np.int64) for name in names}
        warps = np.array(recorded_warps(timeline.launch), dtype=np.int64)
        self._warps, self._warps_self = GroupSums(self._count, warps), GroupSums(self._count, warps)
        sms = np.unique(timeline.ctas["sm"]).astype(np.int64)
        self._sms = GroupSums(self._count, sms[sms >= 0])
        self._ctas = CtaSums(self._count)
        self._bend = ClockBend(timeline.clock) if timeline.unrecorded.size else None

    def add(self, block: Rows) -> None:
        """Add a block that has all scopes of its CTAs."""
        if not block.size:
            return
        if self._bend is not None:
            self._bend.add(block)
        self._counts += np.bincount(block["scope"], minlength=self._count)
        is_instant = self._is_instant[block["scope"]]
        if is_instant.all():
            return
        block = block[~is_instant] if is_instant.any() else block
        # A stable sort keeps the scopes of one kind in the order of CTA, warp and start.
        order = np.argsort(block["scope"], kind="stable")
        scope, cta, warp, sm, iteration, duration_ns, duration_cycles, self_ns = (
            block[name][order]
            for name in ("scope", "cta", "warp", "sm", "iteration", "duration_ns", "duration_cycles", "self_ns")
        )
        self._durations_ns.add(scope, narrow(duration_ns))
        self._durations_cycles.add(scope, narrow(duration_cycles))
        rows = np.flatnonzero(self._is_iteration[scope])
        self._turns.add(scope[rows], turns_of(scope[rows], cta[rows], warp[rows], iteration[rows]))
        starts_ns: Numbers = block["start_ns"]
        raw_ns = block["end_ns"] - starts_ns
        values = {
            "self_ns": block["self_ns"],
            "raw_total_ns": raw_ns,
            "subtracted_ns": np.where(outermost_rows(block), raw_ns - block["duration_ns"], 0),
            "cut": (block["flags"] & ScopeFlag.CUT) != 0,
            "crossing": (block["flags"] & ScopeFlag.CROSSES) != 0,
        }
        for name, weights in values.items():
            # Doubles are exact up to 104 days in a block.
            self._sums[name] += np.bincount(block["scope"], weights, self._count).astype(np.int64)
        self._warps.add(scope, warp, duration_ns)
        self._warps_self.add(scope, warp, self_ns)
        # Another profiler's buffer may lack the SM, of some CTAs or of all.
        known = slice(None) if sm.min() >= 0 else np.flatnonzero(sm >= 0)
        self._sms.add(scope[known], sm[known], duration_ns[known])
        self._ctas.add(scope, cta, warp, duration_ns)

    def partition_times_ns(self) -> list[tuple[int, int]]:
        """Return the times of the warps of ``Timeline.partitions``, summed, and the parts outside of their scopes."""
        times = []
        for partition in self._timeline.partitions:
            time_ns = self._timeline.time_of_warps_ns(partition.warps)
            inside_ns = self._warps_self.total_ns(sorted({*partition.scopes, *self._shared}), partition.warps)
            # The clock's fit may place a record outside of its CTA.
            times.append((max(time_ns, inside_ns), max(time_ns - inside_ns, 0)))
        return times

    def statistics(self) -> tuple[ScopeStatistics, ...]:
        """Return the statistics; can be called once, because it frees memory."""
        scopes = range(self._count)
        # The whole that each scope's share refers to. With a timer of large steps, or by the clock's fit, CTAs may seem
        # shorter than the scopes inside; where they take no time at all, the whole is unknown.
        inside_ns = self._warps_self.total_ns(scopes, recorded_warps(self._timeline.launch))
        warp_time_ns = self._timeline.warp_time_ns
        wholes_ns = [max(warp_time_ns, inside_ns) if warp_time_ns else 0] * self._count
        for partition, (whole_ns, _) in zip(self._timeline.partitions, self.partition_times_ns(), strict=True):
            for scope in partition.scopes:
                wholes_ns[scope] = whole_ns
        ctas = [self._ctas.of(scope) for scope in scopes]
        if self._bend is not None:
            self._groups = [self._ctas.groups(scope) for scope in scopes]
        cycles = [
            (float(values.mean()), take_quantiles(values, (0.5,))[0]) if values.size else (None, None)
            for values in map(self._durations_cycles.joined, scopes)
        ]
        del self._ctas, self._durations_cycles
        series = [
            series_of(self._turns.parts(scope), self._durations_ns.parts(scope)) if self._is_iteration[scope] else None
            for scope in scopes
        ]
        del self._turns
        return tuple(map(self._scope, scopes, wholes_ns, ctas, cycles, series))

    def _scope(
        self,
        scope: int,
        whole_ns: int,
        cta: tuple[GroupSpread | None, CtaBalance | None],
        cycles: tuple[float | None, float | None],
        iterations: IterationSeries | None,
    ) -> ScopeStatistics:
        is_shared = scope in self._shared
        durations_ns = self._durations_ns.joined(scope)
        total_ns = int(durations_ns.sum(dtype=np.int64))
        # Scopes of other profilers may overlap others of their kind.
        share = min(total_ns / whole_ns, 1.0) if whole_ns else None
        times: dict[str, Any] = {"total_ns": total_ns, "share": share}
        if not durations_ns.size:
            times = dict.fromkeys(("total_ns", "share", "self_ns", "raw_total_ns"))
        warps, sms = self._warps.of(scope), self._sms.of(scope)
        sampling = None
        if self._bend is not None:
            sampling = sampling_error(
                self._timeline, self._bend.part, self._groups[scope], durations_ns, share, whole_ns
            )
        return ScopeStatistics(
            count=int(self._counts[scope]),
            **{**{name: int(sums[scope]) for name, sums in self._sums.items()}, **times},
            **_durations(durations_ns),
            mean_cycles=cycles[0],
            p50_cycles=cycles[1],
            warps=warps,
            warps_self_ns=self._warps_self.of(scope).totals_ns,
            sms=sms,
            warp_spread=None if is_shared else spread_of(warps),
            cta_spread=cta[0],
            sm_spread=spread_of(sms),
            cta_balance=None if is_shared else cta[1],
            iterations=iterations,
            sampling=sampling,
        )


def _durations(values: NDArray[np.signedinteger]) -> dict[str, Any]:
    names = ("p50_ns", "p90_ns", "p99_ns", "mean_ns", "min_ns", "max_ns")
    if not values.size:
        return dict.fromkeys(names)
    figures = *take_quantiles(values, (0.5, 0.9, 0.99)), float(values.mean()), int(values.min()), int(values.max())
    return dict(zip(names, figures, strict=True))


_SCOPES = 1 << 16  # more than any table has


class SmCycles:
    """Accumulator of the cycles of the SMs in which each scope ran, from blocks of scopes (``SCOPE_COLUMNS``).

    Warps and CTAs on one SM share its units, so the cycles that they have in common count once. With ``place`` "cta",
    CTAs share nothing.
    """

    def __init__(self, scopes: int, place: str = "sm") -> None:
        self._scopes = scopes
        self._place = place
        self._spans = [np.empty((0, 3), np.int64)]

    def add(self, block: Rows) -> None:
        """Add a block of scopes."""
        place = block[self._place].astype(np.int64) * _SCOPES + block["scope"]
        self._spans.append(merged_spans(np.stack([place, block["start_cycles"], block["end_cycles"]], axis=1)))

    def cycles(self) -> Numbers:
        """Return the cycles of each scope of the table, summed over the SMs."""
        spans = merged_spans(np.concatenate(self._spans))
        found = np.zeros(self._scopes, np.int64)
        np.add.at(found, spans[:, 0] % _SCOPES, spans[:, 2] - spans[:, 1])
        return found


class MemoryWait(Struct, frozen=True):
    """Time of ``ctas`` in a scope that does nothing but wait until memory changes; ``index`` is in the scope table.

    ``median_ns``, ``min_ns`` and ``max_ns`` are of the CTAs' total times, of each the mean of its warps, without
    records.
    """

    index: int
    ctas: int
    median_ns: float
    min_ns: float
    max_ns: float


class MemoryWaitSums:
    """Accumulator of a launch's waits for memory, block by block."""

    def __init__(self, timeline: Timeline) -> None:
        spins = (index for index, scope in enumerate(timeline.table.scopes) if scope.kind == ScopeKind.SPIN)
        self._totals_ns: dict[int, list[Reals]] = {index: [] for index in spins}

    def add(self, block: Rows) -> None:
        """Add a block that has all scopes of its CTAs, by CTA and warp, and by start."""
        for index, totals_ns in self._totals_ns.items():
            rows = block[block["scope"] == index]
            if not rows.size:
                continue
            is_new_cta = np.diff(rows["cta"], prepend=-1) != 0
            is_new_warp = is_new_cta | (np.diff(rows["warp"], prepend=-1) != 0)
            begins = np.flatnonzero(is_new_cta)
            warps = np.add.reduceat(is_new_warp.astype(np.int64), begins)
            totals_ns.append(np.add.reduceat(rows["duration_ns"], begins) / warps)

    def waits(self) -> tuple[MemoryWait, ...]:
        """Return the waits for memory, in the order of the scope table; without those that never ran."""
        found = {index: np.concatenate(parts) for index, parts in self._totals_ns.items() if parts}
        return tuple(
            MemoryWait(index, len(times_ns), float(np.median(times_ns)), float(times_ns.min()), float(times_ns.max()))
            for index, times_ns in found.items()
        )

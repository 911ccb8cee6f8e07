"""Verdicts on the change from A to B, kernel by kernel and scope by scope: the kernel, the clock, or noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.comparison import matching, runs
from kprof_inject.analysis.comparison.matching import ScopeIdentity, ScopeMatch, ScopeMatching
from kprof_inject.analysis.comparison.runs import Both, KernelRuns, LaunchSides, ScopeFigures, Sides
from kprof_inject.capture.model import several_ranks
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.columns import Reals
from kprof_inject.timeline.comparison import Change, change_between, noise_floor, timer_step_ns, typical
from kprof_inject.timeline.timeline import Timeline

# Each fit of a clock is within a quarter of a per cent or so, and the times then differ by less than the noise from
# process to process.
_SAME_CLOCK = 0.01
_TOO_COARSE_PERCENT = 25.0  # wider intervals are uninformative: users compare kernels for smaller changes


class ChangeVerdict(Enum):
    """Verdict on a change; ``NEW`` and ``GONE`` are for a scope that ran in B alone, or in A alone."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no difference"
    CLOCK = "the clock"
    UNKNOWN = "cannot tell"
    NEW = "new"
    GONE = "gone"


ONE_SIDED = (ChangeVerdict.NEW, ChangeVerdict.GONE)
_BY_DIRECTION = {1: ChangeVerdict.SLOWER, 0: ChangeVerdict.SAME, -1: ChangeVerdict.FASTER}


class Judged(Struct, frozen=True):
    """Verdict on a change, with the change in time and in cycles."""

    verdict: ChangeVerdict
    change: Change | None = None
    cycles: Change | None = None
    other_clock: bool = False

    @property
    def changed(self) -> bool:
        """True if the verdict is slower or faster."""
        return self.verdict in (ChangeVerdict.SLOWER, ChangeVerdict.FASTER)

    @property
    def sure_percent(self) -> float:
        """Lower bound of the slowdown; if the clocks differ, of that in cycles too."""
        changes = (self.change, self.cycles if self.other_clock else None)
        return min((change.low_percent for change in changes if change is not None), default=0.0)


def judge_change(change: Change | None, cycles: Change | None, clocks: Both) -> Judged:
    """Return the change in time and in cycles with the verdict on them, on sides with these clock rates.

    If the clocks differ and the cycles do not confirm the change, only the clock is known to have changed.
    """
    other_clock = bool(clocks.a and clocks.b and abs(math.log(clocks.b / clocks.a)) > _SAME_CLOCK)
    if change is None or (change.direction == 0 and change.detectable_percent > _TOO_COARSE_PERCENT):
        verdict = ChangeVerdict.UNKNOWN
    elif change.direction and other_clock and cycles is not None and cycles.direction != change.direction:
        verdict = ChangeVerdict.CLOCK
    else:
        verdict = _BY_DIRECTION[change.direction]
    return Judged(verdict, change, cycles, other_clock)


class Basis(Struct, frozen=True):
    """Figure by which a scope is compared, in time and in cycles."""

    name: str
    time_ns: Callable[[ScopeFigures], float | None]
    cycles: Callable[[ScopeFigures], float | None]


TOTAL = Basis("total", lambda scope: scope.warp_ns, lambda scope: scope.warp_cycles)
"""Total over all CTAs per warp that ran the scope: warps run in parallel, and twice as many take no longer."""

MEAN = Basis("mean", lambda scope: scope.statistics.mean_ns, lambda scope: scope.statistics.mean_cycles)
"""For sides with missing records, whose totals are incomplete."""


@dataclass(frozen=True, eq=False)
class ScopeChange:
    """Scope that is on both sides, with its verdict."""

    sides: Sides[ScopeFigures]
    match: ScopeMatch
    a: ScopeIdentity
    b: ScopeIdentity
    depth: int
    judged: Judged | None = None  # none if there is nothing to compare: a mark, or a scope that ran on neither side

    @property
    def basis(self) -> Basis:
        """Basis of the verdict: totals, or means if records are missing."""
        return TOTAL if all(figures.is_whole for figures in self.sides.launches) else MEAN

    @property
    def compared_ns(self) -> Both:
        """Time that the verdict compares."""
        return self.both(self.basis.time_ns)

    @property
    def cta_ns(self) -> Both:
        """Time in a CTA, of a warp that runs it."""
        return self.both(lambda figures: figures.cta_ns)

    def both(self, value: Callable[[ScopeFigures], float | None]) -> Both:
        """Return the typical ``value`` of a launch on each side."""
        return self.sides.both(value)

    def tags(self) -> dict[str, dict[int, Both]]:
        """Return the median durations by tag of all launches and value of any; noise is unknown, so is a verdict."""
        shown = [figures.tags for figures in self.sides.launches]
        found: dict[str, dict[int, Both]] = {}
        for name, value in dict.fromkeys((tag, value) for tags in shown for tag in tags for value in tags[tag]):
            if all(name in tags for tags in shown):
                medians = self.both(lambda scope: scope.tags[name].get(value))  # noqa: B023 (used at once)
                found.setdefault(name, {})[value] = medians
        return found

    def ran(self) -> tuple[bool, bool]:
        """Return True for each side on which it took time in any launch; a mark takes none."""
        takes_time = self.b.info.kind != ScopeKind.INSTANT
        in_a, in_b = (takes_time and any(one.count for one in side) for side in (self.sides.a, self.sides.b))
        return in_a, in_b


@dataclass(frozen=True, eq=False)
class KernelDiff:
    """Comparison of a variant of a kernel in A and in B, each launched with one grid."""

    a: KernelRuns
    b: KernelRuns
    all_launches: LaunchSides
    sides: LaunchSides  # launches with records that are compared: without the first of each process
    warps: tuple[int, ...] | None  # warps that were compared; None for all
    matching: ScopeMatching
    globs: Sequence[str]  # scopes to show; all if there are none
    comparisons: tuple[int, int, int] = (1, 1, 1)
    """Numbers of launches, chosen scopes and all scopes compared in all kernels, whose intervals hold together."""

    @cached_property
    def clocks(self) -> Both:
        """Typical SM clock rates; None for a side with a launch whose rate was not measured."""
        rates = self.sides.both(lambda launch: launch.timeline.clock.measured_hz)
        is_known = [all(one.timeline.clock.measured_hz for one in side) for side in (self.sides.a, self.sides.b)]
        return Both(rates.a if is_known[0] else None, rates.b if is_known[1] else None)

    @cached_property
    def recorded(self) -> Judged:
        """Change of the launch's span with records, from the first CTA's begin to the last one's end."""
        shorter_ns = self._shorter_span_ns
        if not shorter_ns:
            return judge_change(None, None, self.clocks)
        floor, comparisons = noise_floor(shorter_ns, shorter_ns), self.comparisons[0]
        step = max(launch.timeline.clock.timer_step_ns for launch in self.sides.launches) / shorter_ns
        time = self.sides.change(lambda one: one.duration_ns, floor=floor, comparisons=comparisons, step=step)
        cycles = self.sides.change(lambda one: one.duration_cycles, floor=floor, comparisons=comparisons, step=step)
        return judge_change(time, cycles, self.clocks)

    @property
    def _shorter_span_ns(self) -> float:
        span_ns = self.sides.duration_ns
        return min(span_ns.a or 0.0, span_ns.b or 0.0)

    @cached_property
    def clean_times_ns(self) -> tuple[list[Reals], list[Reals]]:
        """Times without records of each process of A, and of B."""
        return runs.comparable_clean_times_ns(self.a, self.b)

    @cached_property
    def same_clean_times(self) -> bool:
        """True if both sides have the times without records of one dump."""
        a, b = self.clean_times_ns
        return any(np.array_equal(times_a, times_b) for times_a in a for times_b in b)

    @property
    def clean_ns(self) -> Both:
        """Typical times without records."""
        return Both(*map(typical, self.clean_times_ns))

    @cached_property
    def clean(self) -> Judged | None:
        """Change of the time without records, unless both sides have the same times.

        The clock is known only from the launches with records. Their change in cycles is used here if the two changes
        in time have the same direction.
        """
        a, b = self.clean_times_ns
        if not a or not b or self.same_clean_times:
            return None
        shorter_ns = min(float(np.median(np.concatenate(side))) for side in (a, b))
        floor, step = noise_floor(shorter_ns, shorter_ns), timer_step_ns((*a, *b)) / shorter_ns
        change, recorded = change_between(a, b, floor=floor, comparisons=self.comparisons[0], step=step), self.recorded
        agree = change is not None and recorded.change is not None and change.direction == recorded.change.direction
        return judge_change(change, recorded.cycles if agree else None, self.clocks)

    @property
    def by_clean_times(self) -> bool:
        """True if the verdict is based on times without records, because these suffice."""
        return self.clean is not None and self.clean.verdict is not ChangeVerdict.UNKNOWN

    @property
    def launch(self) -> Judged:
        """Verdict on the launch as a whole."""
        return self.clean if self.clean is not None and self.by_clean_times else self.recorded

    @property
    def compared_ns(self) -> Both:
        """Typical times of a launch that the verdict compares."""
        return self.clean_ns if self.by_clean_times else self.sides.duration_ns

    @property
    def worth_ns(self) -> float:
        """Difference in time between all launches in B's program and as many launches of A; 0 if unknown."""
        is_known = self.compared_ns.a and self.compared_ns.b
        return abs(self.compared_ns.change or 0.0) * self.b.launches_in_program if is_known else 0.0

    @cached_property
    def unjudged(self) -> tuple[ScopeChange, ...]:
        """Scopes on both sides, in the order of their matches, without a verdict."""
        return self.scopes_of(self.sides)

    def scopes_of(self, sides: LaunchSides) -> tuple[ScopeChange, ...]:
        """Return the same with the figures of these launches."""
        a, b, around = self.matching.a, self.matching.b, self.b.kernel.scopes.around
        return tuple(
            ScopeChange(sides.of_scope(one.a, one.b), one, a[one.a], b[one.b], len([*around(one.b)]))
            for one in self.matching.matches
        )

    @cached_property
    def scopes(self) -> tuple[ScopeChange, ...]:
        """Chosen scopes that are on both sides, by partition."""
        return tuple(self._judged(self.is_chosen, self.comparisons[1]))

    @cached_property
    def every_scope(self) -> tuple[ScopeChange, ...]:
        """Scopes on both sides, chosen or not, which explain the launch's change."""
        return tuple(self._judged(lambda _: True, self.comparisons[2])) if self.globs else self.scopes

    def is_chosen(self, scope: ScopeChange) -> bool:
        """Return True if a scope is to be shown."""
        return not self.globs or any(matching.is_named(scope.a, scope.b, glob) for glob in self.globs)

    def _judged(self, is_wanted: Callable[[ScopeChange], bool], comparisons: int) -> list[ScopeChange]:
        found = []
        for scope, in_all in zip(self.unjudged, self.scopes_of(self.all_launches), strict=True):
            if not is_wanted(scope):
                continue
            ran_a, ran_b = in_all.ran()
            judged = None
            if ran_a and ran_b:
                judged = self._judge(scope, comparisons)
            elif ran_a or ran_b:
                one_sided = ChangeVerdict.NEW if ran_b else ChangeVerdict.GONE
                # Records of the other side may be among the missing ones.
                judged = Judged(one_sided if in_all.basis is TOTAL else ChangeVerdict.UNKNOWN)
            found.append(replace(scope, judged=judged))
        partitions = list(dict.fromkeys(scope.b.partition for scope in found))
        return sorted(found, key=lambda scope: partitions.index(scope.b.partition))

    def _judge(self, scope: ScopeChange, comparisons: int) -> Judged:
        shares = scope.both(lambda figures: figures.statistics.share)
        part_ns = self._shorter_span_ns * min(shares.a or 0.0, shares.b or 0.0)
        if part_ns <= 0:
            return judge_change(None, None, self.clocks)
        floor = noise_floor(self._shorter_span_ns, part_ns)
        time = scope.sides.change(scope.basis.time_ns, floor=floor, comparisons=comparisons)
        cycles = scope.sides.change(scope.basis.cycles, floor=floor, comparisons=comparisons)
        return judge_change(time, cycles, self.clocks)


class CaptureDiff(Struct, frozen=True, eq=False):
    """Comparisons of the kernels on both sides, changes of large ``worth_ns`` first, and the kernels of one side."""

    kernels: Sequence[KernelDiff]
    only_a: Sequence[KernelRuns]
    only_b: Sequence[KernelRuns]

    @property
    def is_by_rank(self) -> bool:
        """True if each comparison is of one rank."""
        return any(kernel.b.rank is not None for kernel in self.kernels)


def diff_captures(
    a: Sequence[Timeline],
    b: Sequence[Timeline],
    *,
    scopes: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> CaptureDiff:
    """Compare A's launches with B's, in order; each side may come from several captures.

    ``scopes`` are globs of the scopes to show, all if there are none; they do not affect what explains a launch's
    change. ``renamed`` maps names of A's kernels or variants to their names in B. If both sides have several ranks,
    each rank is compared with itself. All scopes shown are one family of comparisons, the kernels' launches another.
    Raises ``KprofError`` if no kernel is on both sides, or a glob or a name matches nothing.
    """
    names = renamed or {}
    ranks_a, ranks_b = (several_ranks(timeline.launch.place for timeline in side) for side in (a, b))
    by_rank = not {*ranks_a}.isdisjoint(ranks_b)
    all_a = runs.runs_of(a, names, by_rank=by_rank)
    all_b = runs.runs_of(b, {name: name for name in names.values()}, by_rank=by_rank)
    matching.require_names(names, all_a, all_b)
    pairing = matching.pair_runs(all_a, all_b)
    pairs = []
    for of_a, of_b in pairing.pairs:
        sides, warps = runs.sides_of(of_a, of_b)
        matched = matching.match_scopes(*map(matching.identities, (of_a.kernel, of_b.kernel)))
        pairs.append(KernelDiff(of_a, of_b, sides, sides.without_first(), warps, matched, scopes))
    for glob in scopes:
        matching.require_scope(glob, [pair.matching for pair in pairs])
    compared = [(pair, scope) for pair in pairs for scope in pair.scopes_of(pair.all_launches) if all(scope.ran())]
    chosen = [pair.is_chosen(scope) for pair, scope in compared]
    comparisons = (len(pairs), max(sum(chosen), 1), max(len(chosen), 1))
    kernels = [replace(pair, comparisons=comparisons) for pair in pairs]
    kernels.sort(key=lambda kernel: (not kernel.launch.changed, -kernel.worth_ns))
    return CaptureDiff(kernels, pairing.only_a, pairing.only_b)

"""Comparison of two captures, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter, methodcaller

import numpy as np
from msgspec import Struct

from kprof_inject.capture.model import several_ranks
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.errors import KprofError, printable
from kprof_inject.report.diff.change_verdicts import (
    TOTAL,
    Both,
    ChangeExplanation,
    ChangeVerdict,
    Judged,
    Sides,
    clean_change,
    decisive,
    explanation,
    own_cta_changes_ns,
)
from kprof_inject.report.diff.runs import (
    Difference,
    KernelRuns,
    comparable_clean_times_ns,
    comparable_figures,
    differences,
    runs_of,
)
from kprof_inject.report.diff.scope_matching import (
    ScopeIdentity,
    ScopeMatch,
    ScopeMatching,
    Unmatched,
    identities,
    match_scopes,
    pair_runs,
    require_names,
)
from kprof_inject.timeline.choice import matches_scope
from kprof_inject.timeline.comparison import typical
from kprof_inject.timeline.timeline import Timeline


class TagChange(Struct, frozen=True):
    """Median duration of a scope's executions with one value of a tag, in a launch of each side."""

    name: str
    value: int
    p50_ns: Both


class ScopeChange(Struct, frozen=True):
    """Scope that is on both sides; figures are per launch, the median of the launches."""

    index_a: int
    """Index in A's scope table; ``index_b`` is that in B's."""
    index_b: int
    name: str
    distinct_name: str
    """Name in B, with the site if other scopes have the same name there."""
    title: str
    """Name for use next to its source line; with the partition for outermost scopes."""
    kind: str
    partition: str
    """Name of the partition that runs it in B; empty if there are none."""
    depth: int
    source_a: str
    source_b: str
    note: str
    """What differs in the scope itself between A and B."""
    basis: str
    """Name of the figure that ``judged`` compares."""
    compared_ns: Both
    count: Both
    total_ns: Both
    mean_ns: Both
    p50_ns: Both
    share: Both
    judged: Judged | None
    """None if there is nothing to compare: a mark, or a scope that ran on neither side."""
    explained: float | None
    """Its own part of the launch's change; None if the launch did not change or it is unknown."""
    own_cta_change_ns: float | None
    """How much longer it takes in a CTA, without the matched scopes in it; None if unknown."""
    tags: tuple[TagChange, ...] = ()
    """For tags on both sides, the values that occur in any launch."""


class KernelDiff(Struct, frozen=True, eq=False):
    """Comparison of a variant of a kernel in A and in B, each launched with one grid."""

    a: KernelRuns
    b: KernelRuns
    differences: tuple[Difference, ...]
    sides: Sides
    """Launches with records that are compared."""
    left_out: int
    """Number of launches left out on both sides, each the first of its process."""
    warps: tuple[int, ...] | None
    """Warps that were compared; None for all."""
    recorded: Judged
    clean: Judged | None
    """Without records; None if a side has no such times, or both have the same ones."""
    clean_ns: Both
    clean_launches: tuple[int, int]
    same_clean_times: bool
    by_scopes_percent: float | None
    """Change of the launch, in per cent, if nothing but its scopes had changed; None if the launch did not change or it
    is unknown."""
    scopes: tuple[ScopeChange, ...]
    """Chosen scopes that are on both sides."""
    every_scope: tuple[ScopeChange, ...]
    """All scopes that are on both sides, chosen or not, which explain the launch's change."""
    only_a: tuple[Unmatched, ...]
    only_b: tuple[Unmatched, ...]

    @property
    def cta_change_ns(self) -> float | None:
        """Change of a warp's time in a CTA, without records; None for partitions, which run in parallel."""
        net_ns = self.sides.both(lambda launch: launch.net_cta_ns)
        if net_ns.a is None or net_ns.b is None or any(scope.partition for scope in self.every_scope):
            return None
        return net_ns.b - net_ns.a

    @property
    def resolution_ns(self) -> Both:
        """Durations of A and of B below which a duration is within the cost of a record."""
        return self.sides.both(lambda launch: launch.resolution_ns)

    @property
    def launch(self) -> Judged:
        """Verdict on the launch as a whole, by its times without records if these suffice."""
        return decisive(self.recorded, self.clean)

    @property
    def is_of_one_capture(self) -> bool:
        """True if both sides are the same launches."""
        a, b = (
            {(timeline.launch.folder.resolve(), timeline.launch.file) for timeline in side.timelines}
            for side in (self.a, self.b)
        )
        return a == b

    @property
    def by_clean_times(self) -> bool:
        """True if the verdict is based on times without records."""
        return self.launch is self.clean

    @property
    def compared_ns(self) -> Both:
        """Typical times of a launch that the verdict compares."""
        return self.clean_ns if self.by_clean_times else self.sides.duration_ns

    @property
    def worth_ns(self) -> float:
        """Difference in time between all launches in B's program and as many launches of A.

        It is at least 0, and 0 if a side has no time. Only the verdict says whether it is noise.
        """
        times_ns = self.compared_ns
        if not times_ns.a or not times_ns.b:
            return 0.0
        return abs(times_ns.b - times_ns.a) * self.b.launches_in_program


class CaptureDiff(Struct, frozen=True, eq=False):
    """Comparisons of the kernels on both sides, and the kernels of one side alone.

    Kernels that changed come first, then the others; both are sorted by ``worth_ns``, largest first.
    """

    kernels: tuple[KernelDiff, ...]
    only_a: tuple[KernelRuns, ...]
    only_b: tuple[KernelRuns, ...]

    @property
    def is_by_rank(self) -> bool:
        """True if each comparison is of one rank."""
        return any(kernel.b.rank is not None for kernel in self.kernels)


class MeasuredPair(Struct, frozen=True, eq=False):
    """Matching kernels of A and B, with the figures of their launches and their matched scopes."""

    a: KernelRuns
    b: KernelRuns
    sides: Sides
    """All launches."""
    warps: tuple[int, ...] | None
    identities_a: tuple[ScopeIdentity, ...]
    identities_b: tuple[ScopeIdentity, ...]
    matching: ScopeMatching
    wanted: tuple[ScopeMatch, ...]
    """Matched scopes to compare."""

    @classmethod
    def of(cls, a: KernelRuns, b: KernelRuns, globs: Sequence[str]) -> MeasuredPair:
        """Measure and match a pair; ``globs`` choose the scopes to compare, all if there are none."""
        all_a, all_b, warps = comparable_figures(a, b)
        identities_a, identities_b = identities(a.kernel), identities(b.kernel)
        matching = match_scopes(identities_a, identities_b)
        wanted = tuple(
            match
            for match in matching.matches
            if not globs or _is_one_of(globs, identities_a[match.a].name, identities_b[match.b].name)
        )
        return cls(a, b, Sides(all_a, all_b), warps, identities_a, identities_b, matching, wanted)

    def comparisons(self, matches: Sequence[ScopeMatch]) -> int:
        """Return how many of the matches take time and ran on both sides."""
        return sum(self._takes_time(match) and all(self.sides.ran(match)) for match in matches)

    def _takes_time(self, match: ScopeMatch) -> bool:
        return self.identities_b[match.b].kind != ScopeKind.INSTANT

    def finds(self, glob: str) -> bool:
        """Return whether the glob names a matched scope."""
        return any(
            _is_one_of([glob], self.identities_a[match.a].name, self.identities_b[match.b].name)
            for match in self.matching.matches
        )

    def judged(self, kernels: int, chosen: int, comparisons: int) -> KernelDiff:
        """Compare the pair.

        Over all pairs, ``kernels`` is the number of launches compared, ``chosen`` the number of chosen scopes, and
        ``comparisons`` the number of scopes that can be compared.
        """
        sides = self.sides.without_first()
        recorded = sides.launch_change(kernels)
        clean_a, clean_b = comparable_clean_times_ns(self.a, self.b)
        same = any(np.array_equal(times_a, times_b) for times_a in clean_a for times_b in clean_b)
        comparable = clean_a and clean_b and not same
        clean = clean_change(clean_a, clean_b, recorded, sides.clocks, kernels) if comparable else None
        clean_ns = Both(typical(clean_a), typical(clean_b))
        answer = decisive(recorded, clean)
        took_ns = (clean_ns if answer is clean else sides.duration_ns).a
        matches = self.matching.matches
        why = explanation(sides, matches, self.identities_b, answer, recorded, took_ns)
        scopes = self._scopes(sides, self.wanted, chosen, why)
        return KernelDiff(
            a=self.a,
            b=self.b,
            differences=differences(self.a, self.b),
            sides=sides,
            left_out=len(self.sides.launches) - len(sides.launches),
            warps=self.warps,
            recorded=recorded,
            clean=clean,
            clean_ns=clean_ns,
            clean_launches=(sum(map(len, clean_a)), sum(map(len, clean_b))),
            same_clean_times=same,
            by_scopes_percent=why.percent if why else None,
            scopes=scopes,
            every_scope=scopes if self.wanted == matches else self._scopes(sides, matches, comparisons, why),
            only_a=self.matching.only_a,
            only_b=self.matching.only_b,
        )

    def _scopes(
        self, sides: Sides, wanted: Sequence[ScopeMatch], comparisons: int, why: ChangeExplanation | None
    ) -> tuple[ScopeChange, ...]:
        matches = self.matching.matches
        parts: Sequence[float | None] = why.parts if why else [None] * len(matches)
        own_ns = own_cta_changes_ns(sides, matches, self.identities_b)
        scopes = [
            self._scope(sides, match, comparisons, part, cta_ns)
            for match, part, cta_ns in zip(matches, parts, own_ns, strict=True)
            if match in wanted
        ]
        # Group by partition; the sort is stable.
        partitions = list(dict.fromkeys(scope.partition for scope in scopes))
        return tuple(sorted(scopes, key=lambda scope: partitions.index(scope.partition)))

    def _scope(
        self,
        sides: Sides,
        match: ScopeMatch,
        comparisons: int,
        explained: float | None,
        own_cta_change_ns: float | None,
    ) -> ScopeChange:
        scope_a, scope_b = self.identities_a[match.a], self.identities_b[match.b]
        depth = _depth(self.identities_b, match.b)
        basis = sides.basis(match)

        return ScopeChange(
            index_a=match.a,
            index_b=match.b,
            name=scope_b.name,
            distinct_name=scope_b.distinct_name,
            title=f"{scope_b.title} ({scope_b.partition})" if scope_b.partition and not depth else scope_b.title,
            kind=scope_b.kind,
            partition=scope_b.partition,
            depth=depth,
            source_a=scope_a.source,
            source_b=scope_b.source,
            note=match.note,
            basis=basis.name,
            compared_ns=sides.both_of(match, basis.time_ns),
            count=sides.both_of(match, attrgetter("count")),
            total_ns=sides.both_of(match, attrgetter("total_ns")),
            mean_ns=sides.both_of(match, attrgetter("mean_ns")),
            p50_ns=sides.both_of(match, attrgetter("p50_ns")),
            share=sides.both_of(match, attrgetter("share")),
            judged=self._judged_scope(sides, match, comparisons),
            explained=explained,
            own_cta_change_ns=own_cta_change_ns,
            tags=tuple(_tags(sides, match)),
        )

    def _judged_scope(self, sides: Sides, match: ScopeMatch, comparisons: int) -> Judged | None:
        ran_a, ran_b = self.sides.ran(match)
        if not self._takes_time(match) or not (ran_a or ran_b):
            return None
        if ran_a and ran_b:
            return sides.scope_change(match, comparisons)
        if self.sides.basis(match) is not TOTAL:
            # Its records may be among the missing ones.
            return Judged(ChangeVerdict.UNKNOWN, None, None)
        return Judged(ChangeVerdict.NEW if ran_b else ChangeVerdict.GONE, None, None)


def _tags(sides: Sides, match: ScopeMatch) -> Iterator[TagChange]:
    """Yield the medians by tag, without a verdict: they have no measure of noise."""
    shown = [launch.scopes[at].tags for side, at in ((sides.a, match.a), (sides.b, match.b)) for launch in side]
    in_all = set.intersection(*({tag.name for tag in tags} for tags in shown)) if shown else set()
    values = {(tag.name, row.value): None for tags in shown for tag in tags for row in tag.values}
    for name, value in values:
        if name in in_all:
            yield TagChange(name, value, sides.both_of(match, methodcaller("median_ns", name, value)))


def _is_one_of(globs: Sequence[str], *names: str) -> bool:
    return any(matches_scope(name, glob) for name in names for glob in globs)


def _depth(scopes: Sequence[ScopeIdentity], index: int) -> int:
    depth = 0
    while (index := scopes[index].parent) >= 0:
        depth += 1
    return depth


def diff_captures(
    a: Sequence[Timeline],
    b: Sequence[Timeline],
    *,
    scopes: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> CaptureDiff:
    """Compare the launches of A with those of B, in order; each side may come from several captures.

    ``scopes`` are globs of the scopes to show, all if there are none; they do not affect what explains a launch's
    change. ``renamed`` maps names of A's kernels or variants to their names in B. If both sides have several ranks,
    each rank is compared with itself. All scopes shown are one family of comparisons, the kernels' launches another.
    Raises ``KprofError`` if no kernel is on both sides, or a glob or a name matches nothing.
    """
    names = renamed or {}
    ranks_a, ranks_b = (several_ranks(timeline.launch.place for timeline in side) for side in (a, b))
    by_rank = not {*ranks_a}.isdisjoint(ranks_b)
    all_a = runs_of(a, names, by_rank=by_rank)
    all_b = runs_of(b, {name: name for name in names.values()}, by_rank=by_rank)
    require_names(names, all_a, all_b)
    pairing = pair_runs(all_a, all_b)
    measured = [MeasuredPair.of(runs_a, runs_b, scopes) for runs_a, runs_b in pairing.pairs]
    for glob in scopes:
        _require_scope(glob, measured)
    chosen = max(sum(pair.comparisons(pair.wanted) for pair in measured), 1)
    comparisons = max(sum(pair.comparisons(pair.matching.matches) for pair in measured), 1)
    kernels = [pair.judged(len(measured), chosen, comparisons) for pair in measured]
    kernels.sort(key=lambda kernel: (not kernel.launch.changed, -kernel.worth_ns))
    return CaptureDiff(tuple(kernels), pairing.only_a, pairing.only_b)


def _require_scope(glob: str, pairs: Sequence[MeasuredPair]) -> None:
    """Raise an error that lists the scopes on both sides if the glob names none of them."""
    if any(pair.finds(glob) for pair in pairs):
        return
    both = dict.fromkeys(pair.identities_b[match.b].name for pair in pairs for match in pair.matching.matches)
    alone = [
        f"only {side} has {item.scope.distinct_name}"
        for pair in pairs
        for side, unmatched in (("A", pair.matching.only_a), ("B", pair.matching.only_b))
        for item in unmatched
        if matches_scope(item.scope.name, glob)
    ]
    there = f"both have {', '.join(both)}" if both else "A and B have no scope in common"
    raise KprofError(
        f"--scope {glob} matches no scope that is in both A and B",
        hint=printable("; ".join([*dict.fromkeys(alone), there])),
    )

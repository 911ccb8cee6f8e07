"""What there is to say of two captures, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.errors import KprofError, printable
from kprof_inject.report.diff.change_verdicts import (
    TOTAL,
    Both,
    ChangeExplanation,
    ChangeVerdict,
    Clocks,
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
    ScopeFigures,
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


@dataclass(frozen=True, slots=True)
class TagChange:
    """What a scope takes where one of its tags has a value: the median of all that ran with it, in a launch."""

    name: str
    value: int
    p50_ns: Both


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """One scope that is in both: figures are of a launch, the median of the launches."""

    index_a: int
    """In A's scope table; ``index_b`` in B's."""
    index_b: int
    name: str
    distinct_name: str
    """Its name in B, and its site where others have that name there."""
    title: str
    """Its name next to its source line, and of an outermost scope whose it is."""
    kind: str
    partition: str
    """The name of the partition that runs it in B, empty if there are none."""
    depth: int
    source_a: str
    source_b: str
    note: str
    """In what it is not the same scope."""
    basis: str
    """What ``judged`` is about."""
    compared_ns: Both
    count: Both
    total_ns: Both
    mean_ns: Both
    p50_ns: Both
    share: Both
    judged: Judged | None
    """None where there is nothing to compare: a mark, or a scope that ran on neither side."""
    explained: float | None
    """Its own part of the launch's change, None if that did not change or it cannot be told."""
    own_cta_change_ns: float | None
    """By how much it takes longer in a CTA, without the matched scopes in it; None if that cannot be told."""
    tags: tuple[TagChange, ...] = ()
    """Of tags that are in both, the values that they have in any launch."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelDiff:
    """A variant of a kernel in A and in B, launched with one grid on either side."""

    a: KernelRuns
    b: KernelRuns
    differences: tuple[Difference, ...]
    sides: Sides
    """The launches with records that are compared."""
    left_out: int
    """Other launches of both sides: each was the first of its process."""
    warps: tuple[int, ...] | None
    """Those that were compared, None for all."""
    recorded: Judged
    clean: Judged | None
    """Without records: None if there are no such times on a side, or they are the same ones."""
    clean_ns: Both
    clean_launches: tuple[int, int]
    same_clean_times: bool
    by_scopes_percent: float | None
    """By how much the launch would take longer if nothing but its scopes had changed; None if it did not change, or
    that cannot be told."""
    scopes: tuple[ScopeChange, ...]
    """The chosen ones that are in both."""
    every_scope: tuple[ScopeChange, ...]
    """All that are in both, chosen or not: what the launch's change comes of."""
    only_a: tuple[Unmatched, ...]
    only_b: tuple[Unmatched, ...]

    @property
    def cta_change_ns(self) -> float | None:
        """The change of a warp's time in a CTA, without records; None for partitions, which run side by side."""
        net_ns = self.sides.both(lambda launch: launch.net_cta_ns)
        if net_ns.a is None or net_ns.b is None or any(scope.partition for scope in self.every_scope):
            return None
        return net_ns.b - net_ns.a

    @property
    def resolution_ns(self) -> Both:
        """The durations of A and of B below which a duration is within what a record costs."""
        return self.sides.both(lambda launch: launch.resolution_ns)

    @property
    def clocks(self) -> Clocks:
        return self.sides.clocks

    @property
    def duration_ns(self) -> Both:
        return self.sides.duration_ns

    @property
    def launch(self) -> Judged:
        """What is said of the launch as a whole: by its times without records, if they can tell."""
        return decisive(self.recorded, self.clean)

    @property
    def is_of_one_capture(self) -> bool:
        """Whether both sides are the same launches."""
        a, b = ({(one.launch.folder.resolve(), one.launch.file) for one in side.timelines} for side in (self.a, self.b))
        return a == b

    @property
    def by_clean_times(self) -> bool:
        return self.launch is self.clean

    @property
    def worth_ns(self) -> float:
        """By how much all launches of it in B's program take longer or shorter than as many of A: whether that is
        chance says the verdict. 0 if a side has no time."""
        times_ns = self.clean_ns if self.by_clean_times else self.duration_ns
        if not times_ns.a or not times_ns.b:
            return 0.0
        return abs(times_ns.b - times_ns.a) * self.b.launches_in_program


@dataclass(frozen=True, slots=True, eq=False)
class CaptureDiff:
    """All kernels that are in both, and those of one side alone. Kernels that changed come first, and of these and of
    the others that whose change is worth most."""

    kernels: tuple[KernelDiff, ...]
    only_a: tuple[KernelRuns, ...]
    only_b: tuple[KernelRuns, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredPair:
    """A kernel of A and the same of B, with the figures of their launches, and which scope is which."""

    a: KernelRuns
    b: KernelRuns
    sides: Sides
    """All launches."""
    warps: tuple[int, ...] | None
    identities_a: tuple[ScopeIdentity, ...]
    identities_b: tuple[ScopeIdentity, ...]
    matching: ScopeMatching
    wanted: tuple[ScopeMatch, ...]
    """The matched scopes to compare."""

    @classmethod
    def of(cls, a: KernelRuns, b: KernelRuns, globs: Sequence[str]) -> MeasuredPair:
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
        return sum(self._takes_time(match) and all(self.sides.ran(match)) for match in matches)

    def _takes_time(self, match: ScopeMatch) -> bool:
        return self.identities_b[match.b].kind != ScopeKind.INSTANT

    def finds(self, glob: str) -> bool:
        return any(
            _is_one_of([glob], self.identities_a[match.a].name, self.identities_b[match.b].name)
            for match in self.matching.matches
        )

    def judged(self, kernels: int, chosen: int, comparisons: int) -> KernelDiff:
        """``kernels`` is how many launches are compared, ``chosen`` how many of the chosen scopes, ``comparisons`` how
        many scopes there are to compare, of all pairs."""
        sides = self.sides.without_first()
        recorded = sides.launch_change(kernels)
        clean_a, clean_b = comparable_clean_times_ns(self.a, self.b)
        same = any(np.array_equal(mine, theirs) for mine in clean_a for theirs in clean_b)
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
        # Each partition's together, and else as they were.
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
        mine, theirs = self.identities_a[match.a], self.identities_b[match.b]
        depth = _depth(self.identities_b, match.b)
        basis = sides.basis(match)

        def both(name: str) -> Both:
            return sides.both_of(match, lambda scope: _figure(scope, name))

        return ScopeChange(
            index_a=match.a,
            index_b=match.b,
            name=theirs.name,
            distinct_name=theirs.distinct_name,
            title=f"{theirs.title} ({theirs.partition})" if theirs.partition and not depth else theirs.title,
            kind=theirs.kind,
            partition=theirs.partition,
            depth=depth,
            source_a=mine.source,
            source_b=theirs.source,
            note=match.note,
            basis=basis.name,
            compared_ns=sides.both_of(match, basis.time_ns),
            count=both("count"),
            total_ns=both("total_ns"),
            mean_ns=both("mean_ns"),
            p50_ns=both("p50_ns"),
            share=both("share"),
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
            # Its records may be among those that are missing.
            return Judged(ChangeVerdict.UNKNOWN, None, None)
        return Judged(ChangeVerdict.NEW if ran_b else ChangeVerdict.GONE, None, None)


def _tags(sides: Sides, match: ScopeMatch) -> Iterator[TagChange]:
    """No verdict: they are not compared with what differs by chance."""
    shown = [launch.scopes[at].tags for side, at in ((sides.a, match.a), (sides.b, match.b)) for launch in side]
    in_all = set.intersection(*({tag.name for tag in tags} for tags in shown)) if shown else set()
    values = {(tag.name, row.value): None for tags in shown for tag in tags for row in tag.values}
    for name, value in values:
        if name in in_all:
            yield TagChange(name, value, sides.both_of(match, partial(_median_of_value, name, value)))


def _median_of_value(tag: str, value: int, scope: ScopeFigures) -> float | None:
    return scope.median_ns(tag, value)


def _is_one_of(globs: Sequence[str], *names: str) -> bool:
    return any(matches_scope(name, glob) for name in names for glob in globs)


def _figure(scope: ScopeFigures, name: str) -> float | None:
    value: float | None = getattr(scope, name)
    return value


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
    """Compare the launches of A to those of B, in order; each may come from several captures.

    ``scopes`` are globs of the scopes that are shown, all if there is none: what a launch's change comes of does not
    depend on them. ``renamed`` are names of A's kernels, or of variants, with what they are called in B. All scopes
    that are shown are one family of comparisons, the kernels' launches another. Raises ``KprofError`` if no kernel is
    in both, or if a glob or a name matches nothing."""
    names = renamed or {}
    runs_a, runs_b = runs_of(a, names), runs_of(b, {name: name for name in names.values()})
    require_names(names, runs_a, runs_b)
    pairing = pair_runs(runs_a, runs_b)
    measured = [MeasuredPair.of(mine, theirs, scopes) for mine, theirs in pairing.pairs]
    for glob in scopes:
        _require_scope(glob, measured)
    chosen = max(sum(pair.comparisons(pair.wanted) for pair in measured), 1)
    comparisons = max(sum(pair.comparisons(pair.matching.matches) for pair in measured), 1)
    kernels = [pair.judged(len(measured), chosen, comparisons) for pair in measured]
    kernels.sort(key=lambda kernel: (not kernel.launch.changed, -kernel.worth_ns))
    return CaptureDiff(tuple(kernels), pairing.only_a, pairing.only_b)


def _require_scope(glob: str, pairs: Sequence[MeasuredPair]) -> None:
    """Raise if it names no scope that is in both, and say which are."""
    if any(pair.finds(glob) for pair in pairs):
        return
    both = dict.fromkeys(pair.identities_b[match.b].name for pair in pairs for match in pair.matching.matches)
    alone = [
        f"only {side} has {one.scope.distinct_name}"
        for pair in pairs
        for side, unmatched in (("A", pair.matching.only_a), ("B", pair.matching.only_b))
        for one in unmatched
        if matches_scope(one.scope.name, glob)
    ]
    there = f"both have {', '.join(both)}" if both else "A and B have no scope in common"
    raise KprofError(
        f"--scope {glob} matches no scope that is in both A and B",
        hint=printable("; ".join([*dict.fromkeys(alone), there])),
    )

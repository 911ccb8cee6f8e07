"""What there is to say of two captures, kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import INSTANT
from kprof_inject.errors import KprofError, printable
from kprof_inject.report.diff.changes import (
    TOTAL,
    Both,
    Explanation,
    clean_change,
    clocks_of,
    compared_ns,
    explanation,
    launch_change,
    scope_basis,
    scope_change,
    without_first,
)
from kprof_inject.report.diff.matching import (
    Match,
    Matching,
    ScopeIdentity,
    Unmatched,
    identities,
    match_scopes,
    pair_runs,
    require_names,
)
from kprof_inject.report.diff.runs import (
    Difference,
    KernelRuns,
    LaunchFigures,
    ScopeFigures,
    comparable_figures,
    differences,
    runs_of,
)
from kprof_inject.report.diff.verdict import ChangeVerdict, Clocks, Judged, decisive
from kprof_inject.timeline.choice import matches_scope
from kprof_inject.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """One scope that is in both: figures are of a launch, the median of the launches. ``note`` says in what it is not
    the same scope, ``basis`` what ``judged`` is about. ``judged`` is None where there is nothing to compare: a mark, or
    a scope that ran on neither side. ``partition`` is the name of the partition that runs it in B, empty if there are
    none.

    ``explained`` is its own part of the launch's change, None if that did not change or it cannot be told."""

    name: str
    kind: str
    partition: str
    depth: int
    source_a: str
    source_b: str
    note: str
    basis: str
    compared_ns: Both
    count: Both
    total_ns: Both
    mean_ns: Both
    p50_ns: Both
    share: Both
    judged: Judged | None
    explained: float | None

    @property
    def title(self) -> str:
        """Its name, and of an outermost scope whose it is."""
        return f"{self.name} ({self.partition})" if self.partition and not self.depth else self.name


@dataclass(frozen=True, slots=True, eq=False)
class KernelDiff:
    """A variant of a kernel in A and in B, launched with one grid on either side.

    ``recorded`` compares the launches with records, ``clean`` those without: None if there are none on a side, or they
    are the same ones; ``clean_launches`` is how many there were. ``duration_ns`` and ``clean_ns`` are medians.
    ``by_scopes_percent`` is by how much the launch would take longer if nothing but its scopes had changed; None if it
    did not change, or that cannot be told. ``warps`` are those that were compared, None for all. ``figures_a`` and
    ``figures_b`` are of the launches with records; ``left_out`` others of both sides are not among them, for each was
    the first of its process. ``only_a`` and ``only_b`` are scopes."""

    a: KernelRuns
    b: KernelRuns
    differences: tuple[Difference, ...]
    clocks: Clocks
    duration_ns: Both
    clean_ns: Both
    recorded: Judged
    clean: Judged | None
    clean_launches: tuple[int, int]
    same_clean_times: bool
    by_scopes_percent: float | None
    scopes: tuple[ScopeChange, ...]
    only_a: tuple[Unmatched, ...]
    only_b: tuple[Unmatched, ...]
    warps: tuple[int, ...] | None
    figures_a: tuple[LaunchFigures, ...]
    figures_b: tuple[LaunchFigures, ...]
    left_out: int

    @property
    def launch(self) -> Judged:
        """What is said of the launch as a whole: by its times without records, if they can tell."""
        return decisive(self.recorded, self.clean)

    @property
    def by_clean_times(self) -> bool:
        return self.launch is self.clean


@dataclass(frozen=True, slots=True, eq=False)
class CaptureDiff:
    """All kernels that are in both, and those of one side alone."""

    kernels: tuple[KernelDiff, ...]
    only_a: tuple[KernelRuns, ...]
    only_b: tuple[KernelRuns, ...]


# A kernel of A and the same of B, measured: their launches' figures, and which scope is which.

_Launches = tuple[LaunchFigures, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredPair:
    """A pair with the figures of its launches; ``wanted`` are the matched scopes to compare."""

    a: KernelRuns
    b: KernelRuns
    all_a: tuple[LaunchFigures, ...]
    all_b: tuple[LaunchFigures, ...]
    warps: tuple[int, ...] | None
    identities_b: tuple[ScopeIdentity, ...]
    identities_a: tuple[ScopeIdentity, ...]
    matching: Matching
    wanted: tuple[Match, ...]

    @property
    def comparisons(self) -> int:
        return sum(self._takes_time(match) and all(self._ran(match)) for match in self.wanted)

    def _takes_time(self, match: Match) -> bool:
        return self.identities_b[match.b].kind != INSTANT

    def _ran(self, match: Match) -> tuple[bool, bool]:
        """In a launch of A, and of B."""
        return _any_ran(self.all_a, match.a), _any_ran(self.all_b, match.b)

    def finds(self, glob: str) -> bool:
        return any(_is_one_of([glob], *self._names(match)) for match in self.matching.matches)

    def _names(self, match: Match) -> tuple[str, str]:
        return self.identities_a[match.a].name, self.identities_b[match.b].name

    def judged(self, kernels: int, comparisons: int) -> KernelDiff:
        """``kernels`` is how many launches are compared, ``comparisons`` how many scopes, of all pairs."""
        a, b = without_first(self.all_a), without_first(self.all_b)
        clocks = clocks_of(a, b)
        recorded = launch_change(a, b, clocks, kernels)
        clean_a, clean_b = self.a.clean_times_ns(), self.b.clean_times_ns()
        same = bool(clean_a and clean_b) and any(np.array_equal(mine, theirs) for mine in clean_a for theirs in clean_b)
        clean = clean_change(clean_a, clean_b, recorded, clocks, kernels) if clean_a and clean_b and not same else None
        clean_ns = Both(_median_ns(clean_a), _median_ns(clean_b))
        duration_ns = Both.of(a, b, _duration_ns, _duration_ns)
        answer = decisive(recorded, clean)
        matches, took_ns = self.matching.matches, clean_ns if answer is clean else duration_ns
        why = explanation(matches, self.identities_b, a, b, answer, took_ns.a)
        return KernelDiff(
            a=self.a,
            b=self.b,
            differences=differences(self.a, self.b),
            clocks=clocks,
            duration_ns=duration_ns,
            clean_ns=clean_ns,
            recorded=recorded,
            clean=clean,
            clean_launches=(sum(map(len, clean_a)), sum(map(len, clean_b))),
            same_clean_times=same,
            by_scopes_percent=why.percent if why else None,
            scopes=tuple(self._scopes(a, b, clocks, comparisons, why)),
            only_a=self.matching.only_a,
            only_b=self.matching.only_b,
            warps=self.warps,
            figures_a=a,
            figures_b=b,
            left_out=len(self.all_a) + len(self.all_b) - len(a) - len(b),
        )

    def _scopes(
        self, a: _Launches, b: _Launches, clocks: Clocks, comparisons: int, why: Explanation | None
    ) -> list[ScopeChange]:
        matches = self.matching.matches
        parts: Sequence[float | None] = why.parts if why else [None] * len(matches)
        scopes = [
            self._scope(a, b, match, clocks, comparisons, part)
            for match, part in zip(matches, parts, strict=True)
            if match in self.wanted
        ]
        # Each partition's together, and else as they were.
        partitions = list(dict.fromkeys(scope.partition for scope in scopes))
        return sorted(scopes, key=lambda scope: partitions.index(scope.partition))

    def _scope(
        self,
        a: _Launches,
        b: _Launches,
        match: Match,
        clocks: Clocks,
        comparisons: int,
        explained: float | None,
    ) -> ScopeChange:
        mine, theirs = self.identities_a[match.a], self.identities_b[match.b]
        basis = scope_basis(a, b, match.a, match.b)

        def both(name: str) -> Both:
            return Both.of(
                a, b, lambda one: _figure(one.scopes[match.a], name), lambda one: _figure(one.scopes[match.b], name)
            )

        return ScopeChange(
            name=theirs.name,
            kind=theirs.kind,
            partition=theirs.partition,
            depth=_depth(self.identities_b, match.b),
            source_a=mine.source,
            source_b=theirs.source,
            note=match.note,
            basis=basis.name,
            compared_ns=compared_ns(a, b, match.a, match.b, basis),
            count=both("count"),
            total_ns=both("total_ns"),
            mean_ns=both("mean_ns"),
            p50_ns=both("p50_ns"),
            share=both("share"),
            judged=self._judged_scope(a, b, match, clocks, comparisons),
            explained=explained,
        )

    def _judged_scope(
        self, a: _Launches, b: _Launches, match: Match, clocks: Clocks, comparisons: int
    ) -> Judged | None:
        ran_a, ran_b = self._ran(match)
        if not self._takes_time(match) or not (ran_a or ran_b):
            return None
        if ran_a and ran_b:
            return scope_change(a, b, match.a, match.b, clocks, comparisons)
        if scope_basis(self.all_a, self.all_b, match.a, match.b) is not TOTAL:
            # Its records may be among those that are missing.
            return Judged(ChangeVerdict.UNKNOWN, None, None)
        return Judged(ChangeVerdict.NEW if ran_b else ChangeVerdict.GONE, None, None)


def _any_ran(launches: _Launches, index: int) -> bool:
    return any(launch.scopes[index].count for launch in launches)


def measure(a: KernelRuns, b: KernelRuns, globs: Sequence[str]) -> MeasuredPair:
    all_a, all_b, warps = comparable_figures(a, b)
    identities_a, identities_b = identities(a.kernel), identities(b.kernel)
    matching = match_scopes(identities_a, identities_b)
    wanted = tuple(
        match
        for match in matching.matches
        if not globs or _is_one_of(globs, identities_a[match.a].name, identities_b[match.b].name)
    )
    return MeasuredPair(a, b, all_a, all_b, warps, identities_b, identities_a, matching, wanted)


def _is_one_of(globs: Sequence[str], *names: str) -> bool:
    return any(matches_scope(name, glob) for name in names for glob in globs)


def _figure(scope: ScopeFigures, name: str) -> float | None:
    value: float | None = getattr(scope, name)
    return value


def _duration_ns(launch: LaunchFigures) -> float:
    return float(launch.duration_ns)


def _median_ns(samples: Sequence[NDArray[np.float64]]) -> float | None:
    return float(np.median(np.concatenate(samples))) if samples else None


def _depth(scopes: Sequence[ScopeIdentity], index: int) -> int:
    depth = 0
    while (index := scopes[index].parent) >= 0:
        depth += 1
    return depth


# Two captures side by side.


def diff_captures(
    a: Sequence[Timeline],
    b: Sequence[Timeline],
    *,
    scopes: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> CaptureDiff:
    """Compare the launches of A to those of B, in order; each may come from several captures.

    ``scopes`` are globs of the scopes that are compared, all if there is none. ``renamed`` are names of A's kernels, or
    of variants, with what they are called in B. All scopes are one family of comparisons, the kernels' launches
    another. Raises ``KprofError`` if no kernel is in both, or if a glob or a name finds nothing."""
    names = renamed or {}
    runs_a, runs_b = runs_of(a, names), runs_of(b, {name: name for name in names.values()})
    require_names(names, runs_a, runs_b)
    pairing = pair_runs(runs_a, runs_b)
    measured = [measure(mine, theirs, scopes) for mine, theirs in pairing.pairs]
    for glob in scopes:
        _require_scope(glob, measured)
    comparisons = max(sum(pair.comparisons for pair in measured), 1)
    kernels = tuple(pair.judged(len(measured), comparisons) for pair in measured)
    return CaptureDiff(kernels, pairing.only_a, pairing.only_b)


def _require_scope(glob: str, pairs: Sequence[MeasuredPair]) -> None:
    """Raise if it names no scope that is in both, and say which are."""
    if any(pair.finds(glob) for pair in pairs):
        return
    both = dict.fromkeys(pair.identities_b[match.b].name for pair in pairs for match in pair.matching.matches)
    alone = [
        f"{one.scope.name} is in {side} alone"
        for pair in pairs
        for side, unmatched in (("A", pair.matching.only_a), ("B", pair.matching.only_b))
        for one in unmatched
        if matches_scope(one.scope.name, glob)
    ]
    there = f"in both are {', '.join(both)}" if both else "A and B have no scope in common"
    raise KprofError(
        f"--scope {glob} finds no scope that is in both A and B",
        hint=printable("; ".join([*dict.fromkeys(alone), there])),
    )

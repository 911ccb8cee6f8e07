"""Two captures side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kprof_inject.errors import KprofError
from kprof_inject.printable import printable
from kprof_inject.report.diff.kernel_diff import CaptureDiff
from kprof_inject.report.diff.measured import MeasuredPair, measure
from kprof_inject.report.diff.pairing import pair_runs, require_names
from kprof_inject.report.diff.runs import runs_of
from kprof_inject.timeline.choice import matches_scope
from kprof_inject.timeline.timeline import Timeline


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

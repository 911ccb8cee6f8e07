"""Two captures side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kprof_inject.errors import KprofError
from kprof_inject.report.diff.kernel_diff import CaptureDiff
from kprof_inject.report.diff.measured import measure
from kprof_inject.report.diff.pairing import pair_runs
from kprof_inject.report.diff.runs import runs_of
from kprof_inject.timeline.timeline import Timeline


def diff_captures(
    a: Sequence[Timeline],
    b: Sequence[Timeline],
    *,
    scopes: Sequence[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> CaptureDiff:
    """Compare the launches of A to those of B, in order; each may come from several captures.

    ``scopes`` are globs of the scopes that are compared, all if there is none. ``renamed`` are names of A's kernels
    with what they are called in B. All scopes are one family of comparisons, the kernels' launches another. Raises
    ``KprofError`` if no kernel, or none of those scopes, is in both."""
    pairing = pair_runs(runs_of(a, renamed or {}), runs_of(b, {}))
    measured = [measure(mine, theirs, scopes) for mine, theirs in pairing.pairs]
    if scopes and not any(pair.wanted for pair in measured):
        names = dict.fromkeys(pair.identities_b[match.b].name for pair in measured for match in pair.matching.matches)
        raise KprofError(
            f"--scope {' '.join(scopes)} finds no scope that is in both A and B",
            hint=f"in both are {', '.join(names)}" if names else "A and B have no scope in common",
        )
    comparisons = max(sum(pair.comparisons for pair in measured), 1)
    kernels = tuple(pair.judged(len(measured), comparisons) for pair in measured)
    return CaptureDiff(kernels, pairing.only_a, pairing.only_b)

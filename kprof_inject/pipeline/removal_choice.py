"""Choose which operations of a kernel to remove virtually: those that its findings concern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.causal.slopes import KernelSlopes
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.structure.dependence import body_of
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.pipeline.removals.accesses import COPY, STORE
from kprof_inject.pipeline.removals.kinds import is_removable
from kprof_inject.ttgir.nodes import Module, Operation

MAX_REMOVALS = 6

_BY_ITERATIONS = ("exposed-loads", "not-pipelined")
"""Rules on how a loop waits for its operations: half of its iterations are removed, not the operations."""


class Removal(Struct, frozen=True):
    """Operations to remove together, because of a finding.

    ``predicted`` is the upper bound of the gain by the finding; None for a loop, of which half is removed. ``low`` is
    the lower bound by a causal experiment; None without one.
    """

    operations: tuple[Operation, ...]
    reason: str
    predicted: float | None
    low: float | None = None


def removals_for(module: Module, analysis: LaunchAnalysis) -> list[Removal]:
    """Return what to remove, at most ``MAX_REMOVALS``, the largest promise first."""
    groups = [*_groups_on_lines(module, analysis.findings), *_groups_without_lines(module, analysis)]
    groups.sort(key=lambda one: -one[0].share)
    return [_removal(module, finding, group, analysis.slopes) for finding, group in groups[:MAX_REMOVALS]]


def _removal(module: Module, finding: Finding, group: Sequence[Operation], slopes: KernelSlopes | None) -> Removal:
    if group[0].traits.is_loop:
        return Removal(tuple(group), finding.rule, None)
    low = _lower_bound(module, group, finding, slopes)
    return Removal(tuple(group), finding.rule, min(max(finding.share, 0.0), 1.0), low)


_Groups = Iterator[tuple[Finding, list[Operation]]]


def _groups_on_lines(module: Module, findings: Sequence[Finding]) -> _Groups:
    """Yield what to remove for each finding that names its operations, if they can be removed."""
    if not any(finding.lines for finding in findings):
        return
    operations = list(module.walk())
    lines = module.line_numbers([one.start for one in operations])
    by_line = dict(zip(reversed(lines), reversed(operations), strict=True))  # of several in a line, the outermost
    for finding in findings:
        concerned = [by_line[line] for line in finding.lines if line in by_line]
        if finding.rule in _BY_ITERATIONS:
            concerned = _innermost_loops_around(concerned)
        if found := [one for one in concerned if is_removable(one)]:
            yield finding, found


def _innermost_loops_around(operations: Sequence[Operation]) -> list[Operation]:
    """Return the loops that directly contain some of the operations, or are among them, and contain no other loop."""
    around = (next((one for one in (inner, *inner.owners()) if one.traits.is_loop), None) for inner in operations)
    loops = dict.fromkeys(one for one in around if one is not None)
    return [one for one in loops if not any(inner.traits.is_loop for inner in one.walk() if inner is not one)]


def _groups_without_lines(module: Module, analysis: LaunchAnalysis) -> _Groups:
    """Yield what to remove for rules on what was recorded, which do not know the operations."""
    for rule, operations_in in _WITHOUT_LINES.items():
        findings = [one for one in analysis.findings if one.rule == rule]
        for group in operations_in(module) if findings else ():
            yield _finding_on(group[0], findings, analysis), group


def _copies(module: Module) -> Iterator[list[Operation]]:
    """Yield the asynchronous copies of each loop."""
    for loop in (one for one in module.walk() if one.traits.is_loop):
        if found := [one for one in body_of(loop) if one.name == COPY and is_removable(one)]:
            yield found


def _last_stores(module: Module) -> Iterator[list[Operation]]:
    """Yield the stores outside of loops."""
    stores = [one for one in module.walk() if one.name == STORE and is_removable(one)]
    if found := [one for one in stores if not any(owner.traits.is_loop for owner in one.owners())]:
        yield found


_WITHOUT_LINES: Mapping[str, Callable[[Module], Iterator[list[Operation]]]] = {
    "waiting": _copies,
    "too-few-stages": _copies,
    "epilogue": _last_stores,
}
"""The operations to remove for rules whose findings have no lines, those of a loop together."""


def _finding_on(operation: Operation, findings: Sequence[Finding], analysis: LaunchAnalysis) -> Finding:
    """Return the finding on the scope of an operation; the first if it has none."""
    if len(findings) > 1 and not isinstance(analysis.executed, Unjudged):
        indices = {one.index for one in findings if one.index is not None}
        innermost = analysis.executed.scope_map.innermost_around(operation, indices)
        return next((one for one in findings if one.index == innermost), findings[0])
    return findings[0]


def _lower_bound(
    module: Module, group: Sequence[Operation], finding: Finding, slopes: KernelSlopes | None
) -> float | None:
    """Return the gain if the kernel answers to less work as it does to more: slope times the operations' time."""
    share = finding.figures.get("time_share")
    if slopes is None or not isinstance(share, float):
        return None
    found = []
    for line in module.line_numbers([one.start for one in group]):
        around = [
            place.response.slope.low
            for place in slopes.places
            if place.response is not None
            and place.scope.lines is not None
            and place.scope.lines[0] <= line <= place.scope.lines[1]
        ]
        if not around:
            return None
        found.append(min(around))
    return min(max(min(found), 0.0) * share, 1.0)

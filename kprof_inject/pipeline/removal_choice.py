"""Choose which operations of a kernel to remove virtually: those that its findings concern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.causal.slopes import KernelSlopes
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.structure.dependence import (
    accumulation_of,
    body_of,
    invariant_operations,
    operations_of_any_cta,
    varying_names,
)
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.pipeline.removals.accesses import COPY, STORE
from kprof_inject.pipeline.removals.elementwise import ARITHMETIC
from kprof_inject.pipeline.removals.iterations import LOOP
from kprof_inject.pipeline.removals.kinds import is_removable
from kprof_inject.pipeline.removals.reductions import REDUCTION
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names
from kprof_inject.ttgir.types import types_of

MAX_REMOVALS = 6
_DIVISIONS = frozenset(("arith.divf", "tt.precise_divf", "tt.approx_divf"))


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
    found: list[tuple[float, Removal]] = []
    for rule, groups_in in _GROUPS.items():
        findings = [one for one in analysis.findings if one.rule == rule]
        for group in groups_in(module) if findings else ():
            finding = _finding_on(group[0], findings, analysis)
            share = min(max(finding.share, 0.0), 1.0)
            if group[0].traits.is_loop:
                removal = Removal(tuple(group), rule, None)
            else:
                low = _lower_bound(module, group, finding, analysis.slopes)
                removal = Removal(tuple(group), rule, share, low)
            found.append((share, removal))
    return [removal for _, removal in sorted(found, key=lambda one: -one[0])][:MAX_REMOVALS]


_Groups = Iterator[list[Operation]]


def _loops(module: Module) -> Iterator[Operation]:
    return (one for one in module.walk() if one.traits.is_loop)


def _invariant(module: Module) -> _Groups:
    """Yield what each loop repeats, and its divisions by a value that is always the same."""
    seen = set[Operation]()
    for loop in _loops(module):
        varying = varying_names(module, loop)
        repeated = [one for one in invariant_operations(module, loop) if is_removable(one)]
        divided = [one for one in body_of(loop) if _is_division_by_invariant(one, varying)]
        if found := [one for one in (*repeated, *divided) if one not in seen and _is_costly(one)]:
            seen.update(found)
            yield found


def _is_division_by_invariant(one: Operation, varying: set[str]) -> bool:
    names = operand_names(one)
    return one.name in _DIVISIONS and len(names) == 2 and names[0] in varying and names[1] not in varying


def _is_costly(one: Operation) -> bool:
    return one.name not in ARITHMETIC or any(printed.shape for printed in types_of(one))


def _reductions(module: Module) -> _Groups:
    """Yield the reductions of each loop whose results are only accumulated."""
    for loop in _loops(module):
        reductions = [one for one in body_of(loop) if one.name == REDUCTION and is_removable(one)]
        if found := [one for one in reductions if accumulation_of(module, loop, one) is not None]:
            yield found


def _special(module: Module) -> _Groups:
    """Yield all special functions on tensors."""
    if found := [one for one in module.walk() if one.name in ARITHMETIC and is_removable(one) and _is_costly(one)]:
        yield found


def _repeated_by_ctas(module: Module) -> _Groups:
    """Yield the special functions on tensors that all CTAs compute alike."""
    function = entry_function(module)
    same = operations_of_any_cta(module, function) if function is not None else []
    if found := [one for one in same if one.name in ARITHMETIC and is_removable(one) and _is_costly(one)]:
        yield found


def _copies(module: Module) -> _Groups:
    """Yield the asynchronous copies of each loop."""
    for loop in _loops(module):
        if found := [one for one in body_of(loop) if one.name == COPY and is_removable(one)]:
            yield found


def _innermost_loops(module: Module) -> _Groups:
    """Yield each loop without another one in it, of which half of the iterations are removed."""
    for loop in _loops(module):
        if loop.name == LOOP and not any(one.traits.is_loop for one in loop.walk() if one is not loop):
            yield [loop]


def _last_stores(module: Module) -> _Groups:
    """Yield the stores outside of loops."""
    stores = [one for one in module.walk() if one.name == STORE and is_removable(one)]
    if found := [one for one in stores if not any(owner.traits.is_loop for owner in one.owners())]:
        yield found


_GROUPS: Mapping[str, Callable[[Module], _Groups]] = {
    "loop-invariant": _invariant,
    "reduction-in-loop": _reductions,
    "special-functions": _special,
    "same-in-all-ctas": _repeated_by_ctas,
    "exposed-loads": _innermost_loops,
    "not-pipelined": _innermost_loops,
    "waiting": _copies,
    "too-few-stages": _copies,
    "epilogue": _last_stores,
}
"""The operations that each rule's findings concern, those of a loop together. Others cannot be removed."""


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

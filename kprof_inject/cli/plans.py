"""What commands print of plans: which scopes they have, where these stand, and what selectors did not reach."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from rich.table import Table
from rich.text import Text

from kprof_inject.cli.console import print_error, say, say_table
from kprof_inject.pipeline.insertion import KernelInsertion, unmatched_selectors
from kprof_inject.quantities import counted
from kprof_inject.select.plan import Plan, Scope, Selection, scope_table
from kprof_inject.select.selectors import Selector
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module
from kprof_inject.workspace_paths import workspace_argument

# A table of more would scroll away what comes before it, and be scrolled away by what comes after.
_MAX_SCOPES = 20


def plan_table(plan: Plan) -> Table:
    """One row for each scope, indented by nesting; each partition's scopes stand together. What no scope has, has no
    column.
    """
    table = Table(box=None, pad_edge=True)
    partitioned = bool(plan.partitions)
    tagged = any(scope.tags for scope in plan.scopes)
    with_others = any(scope.site.other_operations for scope in plan.scopes)
    crossing = any(scope.crosses for scope in plan.scopes)
    for heading in ("scope", *(["partition"] if partitioned else []), "selector", "source", "block"):
        table.add_column(heading, overflow="fold")
    table.add_column("operations", justify="right", no_wrap=True)
    if with_others:
        table.add_column("foreign ops", justify="right", no_wrap=True)
    if crossing:
        table.add_column("crosses", overflow="fold")
    if tagged:
        table.add_column("tags", overflow="fold")
    for scope in sorted(plan.scopes, key=_partition_order) if partitioned else plan.scopes:
        site = scope.site
        table.add_row(
            Text("  " * _depth(plan, scope) + scope.record),
            *([_partition(plan, scope)] if partitioned else []),
            Text(scope.selector),
            Text(_lines(site.source, site.called_from)),
            site.block,
            str(site.operations or ""),
            *([str(site.other_operations or "")] if with_others else []),
            *([Text(", ".join(plan.scopes[index].record for index in scope.crosses))] if crossing else []),
            *([Text(", ".join(f"{tag.name} = {tag.value.name}" for tag in scope.tags))] if tagged else []),
        )
    return table


def _partition_order(scope: Scope) -> float:
    return math.inf if scope.partition is None else scope.partition


def _partition(plan: Plan, scope: Scope) -> str:
    if scope.partition is None:
        return "several"
    name, warps = plan.partitions[scope.partition].name, plan.partitions[scope.partition].warps
    return name if warps is None else f"{name}, {counted(warps, 'warp')}"


def plan_notes(plan: Plan) -> Iterator[str]:
    """One line for each selector, with what it covers and what not, and for whatever a reader should beware of."""
    for selection in plan.selections:
        yield _coverage(selection)
        for dropped in selection.findings.dropped:
            yield f"{selection.selector.text}: {dropped}"
    if plan.inlined:
        yield f"inlined for the measurement, since Proton lowers only one function: {', '.join(plan.inlined)}"
    if any(scope.crosses for scope in plan.scopes):
        yield "crossing scopes contain part of each other's time; '--split runs' separates them"


def plan_json(module: Module, plan: Plan) -> dict[str, Any]:
    """The plan as JSON values: the scope table, and for each selector what it found. ``line`` is that in the TTGIR."""
    return {
        **scope_table(plan),
        "file": module.file,
        "records": len(plan.records),
        "selectors": [
            {
                "selector": selection.selector.text,
                "sites": len(selection.findings.sites),
                "operations_found": _found(selection),
                "operations_covered": _covered(selection),
                "not_covered": [
                    {"operation": missed.operation.name, "line": line, "reason": missed.reason}
                    for missed, line in zip(selection.findings.missed, _lines_of(module, selection), strict=True)
                ],
                "dropped": [dropped.marker for dropped in selection.findings.dropped],
            }
            for selection in plan.selections
        ],
    }


def _lines_of(module: Module, selection: Selection) -> list[int]:
    return module.line_numbers([missed.operation.start for missed in selection.findings.missed])


def _coverage(selection: Selection) -> str:
    sites = len(selection.findings.sites)
    covered = f"{_covered(selection)} of {_found(selection)} operations covered"
    said = f"{selection.selector.text}: {counted(sites, 'site')}, {covered}"
    reasons = Counter(missed.reason for missed in selection.findings.missed)
    return said + "".join(f"; not covered: {count} ({reason})" for reason, count in reasons.most_common())


def _covered(selection: Selection) -> int:
    return len(selection.findings.covered)


def _found(selection: Selection) -> int:
    return _covered(selection) + len(selection.findings.missed)


def _depth(plan: Plan, scope: Scope) -> int:
    depth = 0
    while scope.parent >= 0:
        scope = plan.scopes[scope.parent]
        depth += 1
    return depth


def _lines(source: SourcePoint | None, called_from: tuple[SourcePoint, ...]) -> str:
    if source is None:
        return "no source line"
    return f"{PurePath(source.file).name}:{source.line}" + "".join(f" < {call.line}" for call in called_from)


def say_in_short(workspace: Path, kernels: Sequence[KernelInsertion], selectors: Sequence[Selector]) -> None:
    """As ``say_kernels``, for commands that have more to say: of many scopes, only how many there are."""
    planned = sum(len(done.insertion.plan.scopes) for done in kernels if done.insertion is not None)
    say_kernels(kernels, selectors, whole=planned <= _MAX_SCOPES)
    if planned > _MAX_SCOPES:
        command = f"kprof-inject insert{workspace_argument(workspace)} --dry-run"
        say(f"where these {planned} scopes stand: {command}, with the same --at")


def say_kernels(kernels: Sequence[KernelInsertion], selectors: Sequence[Selector], *, whole: bool = True) -> None:
    """Without the ``whole`` of each plan, only how many scopes it has."""
    say_changes(path for kernel in kernels for path in kernel.changed_sources)
    names = [done.kernel.name for done in kernels]
    for done in kernels:
        name = done.kernel.variant if names.count(done.kernel.name) > 1 else done.kernel.name
        if done.refusal is not None:
            say(f"{name}: left alone")
            print_error(done.refusal)
        elif done.insertion is not None:
            say_plan(name, done.insertion.plan, whole=whole)
    for error in unmatched_selectors(selectors, [done.insertion for done in kernels if done.insertion is not None]):
        say(f"warning: {error.what}; {error.hint}")


def say_changes(changed: Iterable[Path]) -> None:
    for path in dict.fromkeys(changed):
        say(f"{path} has changed since the dump; lines and markers are those of the dump")


def say_plan(name: str, plan: Plan, *, whole: bool = True) -> None:
    say(f"{name}: {counted(len(plan.scopes), 'scope')}, {counted(len(plan.records), 'record')}")
    if not whole:
        return
    if plan.scopes:
        say_table(plan_table(plan))
    for note in plan_notes(plan):
        say(f"  {note}")

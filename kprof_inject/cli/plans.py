"""Output of plans: the scopes, their places, and what selectors did not cover."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Any

from rich.table import Table
from rich.text import Text

from kprof_inject.capture.scopes import Scope
from kprof_inject.cli.console import print_error, say, say_table
from kprof_inject.insertion import KernelInsertion, unmatched_selectors
from kprof_inject.quantities import counted
from kprof_inject.select.plan import Plan, table_json
from kprof_inject.select.selectors import Selector
from kprof_inject.ttgir.nodes import Module
from kprof_inject.workspace_folder import workspace_argument

_MAX_SCOPES = 20  # a longer table would scroll the messages before it away


def _plan_table(plan: Plan) -> Table:
    scopes = sorted(plan.scopes, key=lambda scope: math.inf if scope.partition is None else scope.partition)
    depths = {scope.record: len([*plan.table.around(index)]) for index, scope in enumerate(plan.scopes)}
    columns = {
        "scope": ["  " * depths[scope.record] + scope.record for scope in scopes],
        "partition": [_partition(plan, scope) for scope in scopes] if plan.table.partitions else [],
        "selector": [scope.selector for scope in scopes],
        "source": [_lines(scope) for scope in scopes],
        "block": [scope.block for scope in scopes],
        "operations": [str(scope.operations or "") for scope in scopes],
        "foreign ops": [str(scope.other_operations or "") for scope in scopes],
        "crosses": [", ".join(plan.scopes[index].record for index in scope.crosses) for scope in scopes],
        "tags": [", ".join(f"{tag.name} = {tag.value}" for tag in scope.tags) for scope in scopes],
    }
    table = Table(box=None, pad_edge=True)
    filled = {heading: texts for heading, texts in columns.items() if any(texts)}
    for heading in filled:
        if heading in ("operations", "foreign ops"):
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")
    for row in zip(*filled.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _partition(plan: Plan, scope: Scope) -> str:
    if scope.partition is None:
        return "several"
    partition = plan.table.partitions[scope.partition]
    return partition.name if partition.warps is None else f"{partition.name}, {counted(partition.warps, 'warp')}"


def plan_json(module: Module, plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON values: the scope table, and the result of each selector, with lines of the TTGIR."""
    selectors = []
    for selection in plan.selections:
        found = selection.findings
        lines = module.line_numbers([missed.operation.start for missed in found.missed])
        selectors.append(
            {
                "selector": selection.selector.text,
                "sites": len(found.sites),
                "operations_found": len(found.covered) + len(found.missed),
                "operations_covered": len(found.covered),
                "not_covered": [
                    {"operation": missed.operation.name, "line": line, "reason": missed.reason}
                    for missed, line in zip(found.missed, lines, strict=True)
                ],
                "dropped": [dropped.marker for dropped in found.dropped],
            }
        )
    return {**table_json(plan.table), "file": module.file, "records": len(plan.records), "selectors": selectors}


def _lines(scope: Scope) -> str:
    if scope.place is None:
        return "no source line"
    return PurePath(scope.source).name + "".join(f" < {call.line}" for call in scope.calls if call)


def say_kernels_briefly(workspace: Path, kernels: Sequence[KernelInsertion], selectors: Sequence[Selector]) -> None:
    """Print the plans like ``say_kernels``, but only counts if there are many scopes."""
    planned = sum(len(done.insertion.plan.scopes) for done in kernels if done.insertion is not None)
    say_kernels(kernels, selectors, with_scopes=planned <= _MAX_SCOPES)
    if planned > _MAX_SCOPES:
        command = f"kprof-inject insert{workspace_argument(workspace)} --dry-run"
        say(f"places of these {planned} scopes: {command}, with the same --at")


def say_kernels(kernels: Sequence[KernelInsertion], selectors: Sequence[Selector], *, with_scopes: bool = True) -> None:
    """Print the plan of each kernel, or why it has none, and a warning for each selector that matches nothing."""
    say_changes(path for kernel in kernels for path in kernel.changed_sources)
    names = [done.kernel.name for done in kernels]
    for done in kernels:
        name = done.kernel.variant if names.count(done.kernel.name) > 1 else done.kernel.name
        if done.refusal is not None:
            say(f"{name} takes no records:")
            print_error(done.refusal)
        elif done.insertion is not None:
            say_plan(name, done.insertion.plan, with_scopes=with_scopes)
    for error in unmatched_selectors(selectors, [done.insertion for done in kernels if done.insertion is not None]):
        say(f"warning: {error.what}; {error.hint}")


def say_changes(changed: Iterable[Path]) -> None:
    """Print a line for each source that has changed since the dump."""
    for path in dict.fromkeys(changed):
        say(f"{path} has changed since the dump; lines and markers are those of the dump")


def say_plan(name: str, plan: Plan, *, with_scopes: bool = True) -> None:
    """Print the number of scopes and records of a plan, and its scopes and notes if ``with_scopes``."""
    say(f"{name}: {counted(len(plan.scopes), 'scope')}, {counted(len(plan.records), 'record')}")
    if not with_scopes:
        return
    if plan.scopes:
        say_table(_plan_table(plan))
    for selection in plan.selections:
        found, text = selection.findings, selection.selector.text
        operations = counted(len(found.covered) + len(found.missed), "operation")
        reasons = Counter(missed.reason for missed in found.missed)
        missed = "".join(f"; not covered: {count} ({reason})" for reason, count in reasons.most_common())
        say(f"  {text}: {counted(len(found.sites), 'site')}, {len(found.covered)} of {operations} covered{missed}")
        for dropped in found.dropped:
            say(f"  {text}: {dropped}")
    if plan.inlined:
        say(f"  inlined to be measured, because Proton lowers only one function: {', '.join(plan.inlined)}")
    if any(scope.crosses for scope in plan.scopes):
        say("  crossing scopes contain part of each other's time; '--split runs' separates them")

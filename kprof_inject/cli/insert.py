"""``kprof-inject insert``."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path, PurePath
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.cli.console import print_diff, print_error, read_input, say, say_table, write_result
from kprof_inject.cli.options import at_option, json_option, path_type, split_option
from kprof_inject.files import write_json
from kprof_inject.insertion import (
    KernelInsertion,
    changed_sources,
    empty_handed,
    insert_kernels,
    insert_module,
    view_of,
    write_insertions,
)
from kprof_inject.quantities import counted
from kprof_inject.select.plan import Plan, Scope, Selection, scope_table
from kprof_inject.select.selectors import Selector, parse_selectors
from kprof_inject.select.spans import SPREADS
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module
from kprof_inject.workspace import Workspace, held, snapshot_beside

# What ``insert`` says: which scopes a plan has, where they stand, and what its selectors did not reach.


def plan_table(plan: Plan) -> Table:
    """One row for each scope, indented by nesting; each partition's scopes stand together."""
    table = Table(box=None, pad_edge=True)
    partitioned = bool(plan.partitions)
    for heading in ("scope", *(["partition"] if partitioned else []), "selector", "source", "block"):
        table.add_column(heading, overflow="fold")
    table.add_column("operations", justify="right", no_wrap=True)
    table.add_column("others between", justify="right", no_wrap=True)
    table.add_column("crosses", overflow="fold")
    for scope in sorted(plan.scopes, key=_partition_order) if partitioned else plan.scopes:
        site = scope.site
        table.add_row(
            Text("  " * _depth(plan, scope) + scope.record),
            *([_partition(plan, scope)] if partitioned else []),
            Text(scope.selector),
            Text(_lines(site.source, site.called_from)),
            site.block,
            str(site.operations or ""),
            str(site.other_operations or ""),
            Text(", ".join(plan.scopes[index].record for index in scope.crosses)),
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
        yield f"inlined while it is measured, since Proton lowers one function alone: {', '.join(plan.inlined)}"
    if any(scope.crosses for scope in plan.scopes):
        yield "scopes that cross hold a part of each other's time; '--split runs' takes them apart"


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
    said = (
        f"{selection.selector.text}: {sites} site(s), {_covered(selection)} of {_found(selection)} operations covered"
    )
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


# The kinds of sites that come from the text of a source file.
_MARKED = frozenset({ScopeKind.MARKER, ScopeKind.INSTANT})


@click.command("insert")
@click.argument("place", metavar="WORKSPACE|FILE", type=path_type())
@at_option
@split_option
@click.option("-o", "--output", type=path_type(), help="Where FILE's result goes. [default: stdout]")
@click.option("--plan", "plan_path", type=path_type(), help="Write FILE's scope table to this .json file.")
@click.option("--dry-run", is_flag=True, help="Write nothing; only say what would be inserted.")
@click.option("--diff", "as_diff", is_flag=True, help="Write nothing; show what would change as a unified diff.")
@json_option
def command(
    place: Path,
    selectors: tuple[str, ...],
    split: str,
    output: Path | None,
    plan_path: Path | None,
    dry_run: bool,
    as_diff: bool,
    as_json: bool,
) -> None:
    """Plan and insert records into the kernels of a WORKSPACE, or into one .ttgir FILE (- is stdin)."""
    spread = SPREADS[split]
    writes = not (dry_run or as_diff)
    if as_diff and as_json:
        raise click.UsageError("--diff and --json cannot both go to stdout; give one of them")
    if place.is_dir():
        if output or plan_path:
            raise click.UsageError("-o and --plan are for a FILE; a workspace keeps its own")
        workspace = Workspace.open(place)
        wanted = parse_selectors(selectors)
        with held(place, say) if writes else nullcontext():
            kernels = insert_kernels(workspace, wanted, spread)
            if writes:
                write_insertions(workspace, kernels)
        _say_kernels(kernels, wanted)
        done = [kernel.insertion for kernel in kernels if kernel.insertion is not None]
    else:
        if plan_path and str(plan_path) == "-":
            raise click.UsageError("--plan takes the name of a file")
        if as_json and writes and str(output or "-") == "-":
            raise click.UsageError("--json and the instrumented text cannot both go to stdout; give -o or --dry-run")
        text, name = read_input(place)
        snapshot = snapshot_beside(place)
        view = view_of(text, name, snapshot)
        done = [insert_module(view, parse_selectors(selectors), spread)]
        if writes and plan_path:
            write_json(plan_path, scope_table(done[0].plan))
        if writes:
            write_result(output, done[0].text)
        _say_changes(changed_sources(snapshot))
        if not snapshot and any(scope.site.kind in _MARKED for scope in done[0].plan.scopes):
            say("no sources were dumped beside this file; the markers are those of the source as it is now")
        _say_plan(done[0].plan.kernel, done[0].plan)
    if as_diff:
        for insertion in done:
            print_diff(insertion.module, insertion.text)
    if as_json:
        click.echo(json.dumps([plan_json(insertion.module, insertion.plan) for insertion in done], indent=1))


def insert_into(workspace: Workspace, selectors: Sequence[str], split: str) -> None:
    """Insert into all dumped kernels and say what each selector found, and what was left alone."""
    wanted = parse_selectors(selectors)
    kernels = insert_kernels(workspace, wanted, SPREADS[split])
    write_insertions(workspace, kernels)
    _say_kernels(kernels, wanted)


def _say_kernels(kernels: Sequence[KernelInsertion], selectors: Sequence[Selector]) -> None:
    _say_changes(path for kernel in kernels for path in kernel.changed_sources)
    names = [done.kernel.name for done in kernels]
    for done in kernels:
        name = done.kernel.variant if names.count(done.kernel.name) > 1 else done.kernel.name
        if done.refusal is not None:
            say(f"{name}: left alone")
            print_error(done.refusal)
        elif done.insertion is not None:
            _say_plan(name, done.insertion.plan)
    for error in empty_handed(selectors, [done.insertion for done in kernels if done.insertion is not None]):
        say(f"warning: {error.what}; {error.hint}")


def _say_changes(changed: Iterable[Path]) -> None:
    for path in dict.fromkeys(changed):
        say(f"{path} has changed since the dump; lines and markers are those of the dump")


def _say_plan(name: str, plan: Plan) -> None:
    say(f"{name}: {len(plan.scopes)} scope(s), {len(plan.records)} records")
    if plan.scopes:
        say_table(plan_table(plan))
    for note in plan_notes(plan):
        say(f"  {note}")

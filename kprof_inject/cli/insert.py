"""``kprof-inject insert``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from kprof_inject.cli.console import print_diff, print_error, read_input, say, say_table, write_result
from kprof_inject.cli.options import at_option, json_option, path_type, split_option
from kprof_inject.cli.plan_table import plan_json, plan_notes, plan_table
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
from kprof_inject.select.plan import Plan
from kprof_inject.select.scope_table import scope_table
from kprof_inject.select.selectors import Selector, parse_selectors
from kprof_inject.select.spans import SPREADS
from kprof_inject.workspace import Workspace, held, snapshot_beside

# The kinds of sites that come from the text of a source file.
_MARKED = frozenset({"marker", "mark"})


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

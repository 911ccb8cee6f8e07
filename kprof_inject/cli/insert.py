"""``kprof-inject insert``."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import click

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.cli.console import print_diff, read_input, say, say_next_step, write_result
from kprof_inject.cli.options import PATH, at_option, json_option, place_argument, require_place_for, tag_option
from kprof_inject.cli.plans import plan_json, say_changes, say_kernels, say_plan
from kprof_inject.cli.recording_options import style_options
from kprof_inject.files import write_json
from kprof_inject.insertion import changed_sources, insert_kernels, insert_module, view_of, write_insertions
from kprof_inject.select.plan import table_json
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Style
from kprof_inject.workspace import Workspace, saved_sources
from kprof_inject.workspace_folder import held, may_be_workspace, workspace_argument

# The kinds of sites that markers in a source file define.
_MARKER_KINDS = frozenset({ScopeKind.MARKER, ScopeKind.INSTANT})


@click.command("insert")
@place_argument("WORKSPACE|FILE")
@at_option
@tag_option
@style_options
@click.option("-o", "--output", type=PATH, help="Where to write FILE's result. [default: stdout]")
@click.option("--plan", "plan_path", type=PATH, help="Write FILE's scope table to this .json file.")
@click.option("--dry-run", is_flag=True, help="Write nothing; list what would be inserted.")
@click.option("--diff", "as_diff", is_flag=True, help="Write nothing; print a unified diff of the changes.")
@json_option
def command(
    place: Path,
    selectors: tuple[str, ...],
    style: Style,
    output: Path | None,
    plan_path: Path | None,
    dry_run: bool,
    as_diff: bool,
    as_json: bool,
) -> None:
    """Plan and insert records into the kernels of a WORKSPACE, or into one .ttgir FILE (- is stdin)."""
    writes = not (dry_run or as_diff)
    if as_diff and as_json:
        raise click.UsageError("--diff and --json cannot both go to stdout; give one of them")
    if may_be_workspace(place):
        if output or plan_path:
            raise click.UsageError("-o and --plan are for a FILE; a workspace keeps its own")
        workspace = Workspace.open(place)
        wanted = parse_selectors(selectors)
        with held(place, say) if writes else nullcontext():
            kernels = insert_kernels(workspace, wanted, style)
            if writes:
                write_insertions(workspace, kernels)
        say_kernels(kernels, wanted)
        if writes:
            say_next_step(f"kprof-inject run{workspace_argument(place)} -- PROG")
        done = [kernel.insertion for kernel in kernels if kernel.insertion is not None]
    else:
        if plan_path and str(plan_path) == "-":
            raise click.UsageError("--plan takes the name of a file")
        if as_json and writes and str(output or "-") == "-":
            raise click.UsageError("--json and the instrumented text cannot both go to stdout; give -o or --dry-run")
        text, name = read_input(place)
        require_place_for(output, plan_path)
        snapshot = saved_sources(place)
        view = view_of(text, name, snapshot)
        done = [insert_module(view, parse_selectors(selectors), style)]
        if writes and plan_path:
            write_json(plan_path, table_json(done[0].plan.table))
        if writes:
            write_result(output, done[0].text)
        say_changes(changed_sources(snapshot))
        if not snapshot and any(scope.kind in _MARKER_KINDS for scope in done[0].plan.scopes):
            say("no sources were dumped with this file; markers come from the current source")
        say_plan(done[0].plan.table.kernel, done[0].plan)
    if as_diff:
        for insertion in done:
            print_diff(insertion.view.module, insertion.text)
    if as_json:
        click.echo(json.dumps([plan_json(insertion.view.module, insertion.plan) for insertion in done], indent=1))

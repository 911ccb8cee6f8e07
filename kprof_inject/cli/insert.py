"""``kprof-inject insert``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kprof_inject.cli.console import print_error, read_input, say, write_output
from kprof_inject.cli.options import at_option, path_type
from kprof_inject.files import write_json, write_text
from kprof_inject.insertion import insert_module, insert_workspace
from kprof_inject.select.plan import Plan
from kprof_inject.select.scope_table import scope_table
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace import Workspace


@click.command("insert")
@click.argument("place", metavar="WORKSPACE|FILE", type=path_type())
@at_option
@click.option("-o", "--output", type=path_type(), help="Where FILE's result goes. [default: stdout]")
@click.option("--plan", "plan_path", type=path_type(), help="Write FILE's scope table to this .json file.")
def command(place: Path, selectors: tuple[str, ...], output: Path | None, plan_path: Path | None) -> None:
    """Plan and insert records into the kernels of a WORKSPACE, or into one .ttgir FILE (- is stdin)."""
    if place.is_dir():
        if output or plan_path:
            raise click.UsageError("-o and --plan are for a FILE; a workspace keeps its own")
        insert_into(Workspace.open(place), selectors)
        return
    plan, instrumented = insert_module(parse(*read_input(place)), parse_selectors(selectors))
    if plan_path:
        write_json(plan_path, scope_table(plan))
    if output:
        write_text(output, instrumented)
    else:
        write_output(instrumented)
    _say_plan(plan)


def insert_into(workspace: Workspace, selectors: Sequence[str]) -> None:
    """Insert into all dumped kernels and say what each selector found, and what was left alone."""
    for insertion in insert_workspace(workspace, parse_selectors(selectors)):
        if insertion.refusal is not None:
            say(f"{insertion.kernel.name}: left alone")
            print_error(insertion.refusal)
        elif insertion.plan is not None:
            _say_plan(insertion.plan)


def _say_plan(plan: Plan) -> None:
    say(f"{plan.kernel}: {len(plan.scopes)} scope(s)")
    for scope in plan.scopes:
        source = scope.site.source
        place = f"{source.file}:{source.line}" if source else "no source line"
        calls = "".join(f" < line {call.line}" for call in scope.site.called_from)
        say(f"  {scope.name} ({scope.selector}) at {place}{calls}")

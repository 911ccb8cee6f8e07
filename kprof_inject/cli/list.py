"""``kprof-inject list``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.text import Text

from kprof_inject.cli.console import print_error, read_input, table_console
from kprof_inject.cli.options import json_option, path_type
from kprof_inject.cli.outline_table import outline_json, outline_table
from kprof_inject.errors import KprofError
from kprof_inject.insertion import view_of, views_in
from kprof_inject.select.candidates import outline
from kprof_inject.select.view import ModuleView
from kprof_inject.workspace import Workspace, snapshot_beside


@click.command("list")
@click.argument("place", metavar="WORKSPACE|FILE", type=path_type())
@json_option
@click.pass_context
def command(ctx: click.Context, place: Path, as_json: bool) -> None:
    """List what can be selected in each kernel of a WORKSPACE, or in one .ttgir FILE (- is stdin)."""
    views = _views(place)
    for error in (view for view in views if isinstance(view, KprofError)):
        print_error(error)
    readable = [view for view in views if not isinstance(view, KprofError)]
    kernels = [(view.kernel, view.module.file, outline(view)) for view in readable]
    if as_json:
        click.echo(json.dumps([outline_json(*kernel) for kernel in kernels], indent=1))
    else:
        console = table_console()
        for kernel, file, candidates in kernels:
            console.print(Text(f"{kernel} ({file})", "bold"), soft_wrap=True)
            console.print(outline_table(candidates))
    ctx.exit(0 if len(readable) == len(views) else 1)


def _views(place: Path) -> list[ModuleView | KprofError]:
    if place.is_dir():
        return list(views_in(Workspace.open(place)))
    text, name = read_input(place)
    return [view_of(text, name, snapshot_beside(place))]

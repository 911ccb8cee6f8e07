"""``kprof-inject list``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.text import Text

from kprof_inject.cli.console import read_input, table_console
from kprof_inject.cli.options import json_option, path_type
from kprof_inject.cli.outline_table import outline_json, outline_table
from kprof_inject.insertion import view_of, views_in
from kprof_inject.select.candidates import outline
from kprof_inject.select.view import ModuleView
from kprof_inject.workspace import Workspace, snapshot_beside


@click.command("list")
@click.argument("place", metavar="WORKSPACE|FILE", type=path_type())
@json_option
def command(place: Path, as_json: bool) -> None:
    """List what can be selected in each kernel of a WORKSPACE, or in one .ttgir FILE (- is stdin)."""
    kernels = [(view.kernel, view.module.file, outline(view)) for view in _views(place)]
    if as_json:
        click.echo(json.dumps([outline_json(*kernel) for kernel in kernels], indent=1))
        return
    console = table_console()
    for kernel, file, candidates in kernels:
        console.print(Text(f"{kernel} ({file})", "bold"), soft_wrap=True)
        console.print(outline_table(candidates))


def _views(place: Path) -> list[ModuleView]:
    if place.is_dir():
        return list(views_in(Workspace.open(place)))
    text, name = read_input(place)
    return [view_of(text, name, snapshot_beside(place))]

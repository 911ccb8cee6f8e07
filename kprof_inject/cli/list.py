"""``kprof-inject list``."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.text import Text

from kprof_inject.cli.console import print_error, read_input, table_console
from kprof_inject.cli.distinctions import distinctions
from kprof_inject.cli.options import json_option, path_type
from kprof_inject.cli.outline_table import Outline, heading, outline_json, outline_table
from kprof_inject.errors import KprofError
from kprof_inject.insertion import view_of, views_in
from kprof_inject.select.candidates import outline
from kprof_inject.workspace import Workspace, snapshot_beside


@click.command("list")
@click.argument("place", metavar="WORKSPACE|FILE", type=path_type())
@json_option
@click.pass_context
def command(ctx: click.Context, place: Path, as_json: bool) -> None:
    """List what can be selected in each kernel of a WORKSPACE, or in one .ttgir FILE (- is stdin)."""
    outlines, errors = _outlines(place)
    for error in errors:
        print_error(error)
    if as_json:
        click.echo(json.dumps([outline_json(one) for one in outlines], indent=1))
    else:
        console = table_console()
        for one in outlines:
            console.print(Text(heading(one), "bold"), soft_wrap=True)
            console.print(outline_table(one.candidates))
    ctx.exit(1 if errors else 0)


def _outlines(place: Path) -> tuple[list[Outline], list[KprofError]]:
    """What is in each kernel, and why others cannot be read."""
    if not place.is_dir():
        text, name = read_input(place)
        alone = view_of(text, name, snapshot_beside(place))
        return [Outline(alone.kernel, alone.module.file, outline(alone))], []
    workspace = Workspace.open(place)
    kernels = workspace.kernels()
    apart = distinctions(kernels)
    outlines: list[Outline] = []
    errors: list[KprofError] = []
    for kernel, view in zip(kernels, views_in(workspace), strict=True):
        if isinstance(view, KprofError):
            errors.append(view)
        else:
            outlines.append(Outline(view.kernel, view.module.file, outline(view), kernel, apart[kernel.variant]))
    return outlines, errors

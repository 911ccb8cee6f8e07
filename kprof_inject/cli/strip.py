"""``kprof-inject strip``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.cli.console import read_input, write_result
from kprof_inject.cli.options import PATH, require_place_for
from kprof_inject.errors import KprofError
from kprof_inject.rewrite import strip
from kprof_inject.ttgir.parser import parse
from kprof_inject.workspace_folder import is_module, similar_places


@click.command("strip")
@click.argument("file", type=PATH)
@click.option("-o", "--output", type=PATH, help="Where to write the result. [default: stdout]")
def command(file: Path, output: Path | None) -> None:
    """Remove all records from a .ttgir FILE (- is stdin)."""
    if str(file) != "-" and not file.exists():
        hint = f"{similar_places(file, is_module)}name a .ttgir file, or - for stdin"
        raise KprofError(f"{file} does not exist", hint=hint)
    require_place_for(output)
    write_result(output, strip(parse(*read_input(file))))

"""``kprof-inject list``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from kprof_inject.cli.console import print_error, read_input, say, table_console
from kprof_inject.cli.options import json_option, place_argument
from kprof_inject.errors import KprofError
from kprof_inject.kernel_names import differing_facts, facts_in_words
from kprof_inject.machine_code.lines import summary_of
from kprof_inject.pipeline.insertion import view_of, views_in
from kprof_inject.report.machine_code import code_table, headline, to_json
from kprof_inject.select.candidates import Candidate, outline
from kprof_inject.ttgir.nodes import Module
from kprof_inject.workspace import DumpedKernel, Workspace, saved_sources
from kprof_inject.workspace_folder import may_be_workspace, workspace_argument


@dataclass(frozen=True, slots=True)
class Outline:
    """A kernel and what can be selected in it.

    ``dumped`` is None for a file that is not in a workspace. ``differing`` are the facts in which the kernel differs
    from others of its name.
    """

    kernel: str
    module: Module
    candidates: Sequence[Candidate]
    dumped: DumpedKernel | None = None
    differing: Mapping[str, str] = field(default_factory=dict)


def _heading(outline: Outline) -> str:
    if outline.differing:
        return f"{outline.kernel} ({facts_in_words(outline.differing)}) {outline.module.file}"
    return f"{outline.kernel} ({outline.module.file})"


def _table(candidates: Sequence[Candidate]) -> Table:
    table = Table(box=None, pad_edge=True)
    for heading in ("selector", "what", "source"):
        table.add_column(heading, overflow="fold")
    table.add_column("sites", justify="right", no_wrap=True)
    for candidate in candidates:
        sources = dict.fromkeys(f"{PurePath(point.file).name}:{point.line}" for point in candidate.sources)
        selector = "  " * candidate.depth + candidate.selector
        table.add_row(Text(selector), Text(candidate.what), Text(", ".join(sources)), str(candidate.count))
    return table


def _to_json(outline: Outline) -> dict[str, Any]:
    info = outline.dumped.info if outline.dumped else None
    return {
        "kernel": outline.kernel,
        "file": outline.module.file,
        "variant": outline.dumped and outline.dumped.variant,
        "options": info.options if info else {},
        "constants": info.constants if info else {},
        "candidates": [
            {
                "selector": candidate.selector,
                "what": candidate.what,
                "sources": [{"file": point.file, "line": point.line} for point in candidate.sources],
                "sites": candidate.count,
                "depth": candidate.depth,
            }
            for candidate in outline.candidates
        ],
    }


@click.command("list")
@place_argument("WORKSPACE|FILE")
@click.option(
    "--machine-code",
    metavar="KERNEL",
    help="Show the machine code of the kernels whose name matches the glob KERNEL, by lines of their TTGIR.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, place: Path, machine_code: str | None, as_json: bool) -> None:
    """List what can be selected in each kernel of a WORKSPACE, or in one .ttgir FILE (- is stdin)."""
    outlines, errors = _outlines(place)
    for error in errors:
        print_error(error)
    if machine_code is not None:
        chosen = [kernel for kernel in outlines if fnmatchcase(kernel.kernel, machine_code)]
        if not chosen:
            names = ", ".join(dict.fromkeys(kernel.kernel for kernel in outlines))
            raise KprofError(f"no kernel matches {machine_code}", hint=f"there are: {names}")
        _show_machine_code(chosen, as_json)
    elif as_json:
        click.echo(json.dumps([_to_json(outline) for outline in outlines], indent=1))
    else:
        console = table_console()
        for kernel in outlines:
            console.print(Text(_heading(kernel), "bold"), soft_wrap=True)
            console.print(_table(kernel.candidates))
        if may_be_workspace(place) and outlines:
            say(f"next: kprof-inject insert{workspace_argument(place)} --at SELECTOR")
    ctx.exit(1 if errors else 0)


def _show_machine_code(outlines: Sequence[Outline], as_json: bool) -> None:
    # Imported here, because the other uses of this command need none of it.
    from kprof_inject.runtime.compiling.disassembly import machine_code_of

    found = []
    for kernel in outlines:
        options = kernel.dumped.info.options if kernel.dumped else {}
        found.append((kernel, [summary_of(one) for one in machine_code_of(kernel.module, options)]))
    if as_json:
        kernels = [
            {"kernel": kernel.kernel, "file": kernel.module.file, "functions": [to_json(one) for one in functions]}
            for kernel, functions in found
        ]
        click.echo(json.dumps(kernels, indent=1))
        return
    console = table_console()
    for kernel, functions in found:
        console.print(Text(_heading(kernel), "bold"), soft_wrap=True)
        for function in functions:
            for line in headline(function):
                console.print(Text(line), soft_wrap=True)
            console.print(code_table(function, kernel.module.text.splitlines()))


def _outlines(place: Path) -> tuple[list[Outline], list[KprofError]]:
    if not may_be_workspace(place):
        text, name = read_input(place)
        single = view_of(text, name, saved_sources(place))
        return [Outline(single.kernel, single.module, outline(single))], []
    workspace = Workspace.open(place)
    kernels = workspace.require_kernels()
    differing = differing_facts(kernels)
    outlines: list[Outline] = []
    errors: list[KprofError] = []
    for kernel, view in zip(kernels, views_in(workspace), strict=True):
        if isinstance(view, KprofError):
            errors.append(view)
        else:
            outlines.append(Outline(view.kernel, view.module, outline(view), kernel, differing[kernel.variant]))
    return outlines, errors

"""``kprof-inject list``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from kprof_inject.cli.console import print_error, read_input, say, table_console
from kprof_inject.cli.options import json_option, place_argument
from kprof_inject.errors import KprofError
from kprof_inject.insertion import view_of, views_in
from kprof_inject.kernel_names import differing_facts, facts_in_words
from kprof_inject.machine_code.lines import CodeSummary, summary_of
from kprof_inject.quantities import counted
from kprof_inject.select.candidates import Candidate, outline
from kprof_inject.select.module_view import ModuleView
from kprof_inject.workspace import DumpedKernel, Workspace, saved_sources
from kprof_inject.workspace_folder import may_be_workspace, workspace_argument

_MAX_OPERATION = 48
_MAX_AWAITED = 3

_Kernel = tuple[str, ModuleView, DumpedKernel | None]
"""Heading of a kernel, its view, and the kernel itself if it is in a workspace."""


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


def _to_json(view: ModuleView, dumped: DumpedKernel | None) -> dict[str, Any]:
    return {
        "kernel": view.kernel,
        "file": view.module.file,
        "variant": dumped and dumped.variant,
        "options": dumped.info.options if dumped else {},
        "constants": dumped.info.constants if dumped else {},
        "candidates": [
            {
                "selector": candidate.selector,
                "what": candidate.what,
                "sources": [{"file": point.file, "line": point.line} for point in candidate.sources],
                "sites": candidate.count,
                "depth": candidate.depth,
            }
            for candidate in outline(view)
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
    kernels, errors = _kernels_at(place)
    for error in errors:
        print_error(error)
    if machine_code is not None:
        chosen = [kernel for kernel in kernels if fnmatchcase(kernel[1].kernel, machine_code)]
        if not chosen:
            names = ", ".join(dict.fromkeys(view.kernel for _, view, _ in kernels))
            raise KprofError(f"no kernel matches {machine_code}", hint=f"there are: {names}")
        _show_machine_code(chosen, as_json)
    elif as_json:
        click.echo(json.dumps([_to_json(view, dumped) for _, view, dumped in kernels], indent=1))
    else:
        console = table_console()
        for heading, view, _ in kernels:
            console.print(Text(heading, "bold"), soft_wrap=True)
            console.print(_table(outline(view)))
        if may_be_workspace(place) and kernels:
            say(f"next: kprof-inject insert{workspace_argument(place)} --at SELECTOR")
    ctx.exit(1 if errors else 0)


def _show_machine_code(kernels: Sequence[_Kernel], as_json: bool) -> None:
    # Imported here, because the other uses of this command need none of it.
    from kprof_inject.runtime.compiling.disassembly import machine_code_of

    found = []
    for heading, view, dumped in kernels:
        options = dumped.info.options if dumped else {}
        found.append((heading, view, [summary_of(one) for one in machine_code_of(view.module, options)]))
    if as_json:
        values = [
            {"kernel": view.kernel, "file": view.module.file, "functions": [_code_json(one) for one in functions]}
            for _, view, functions in found
        ]
        click.echo(json.dumps(values, indent=1))
        return
    console = table_console()
    for heading, view, functions in found:
        console.print(Text(heading, "bold"), soft_wrap=True)
        for function in functions:
            count = counted(len(function.function.instructions), "instruction")
            console.print(Text(f"{function.function.name}: {count}"), soft_wrap=True)
            for loop in function.loops:
                count = counted(loop.instructions, "instruction")
                console.print(Text(f"  loop at line {loop.line}: {count}"), soft_wrap=True)
            console.print(_code_table(function, view.module.text.splitlines()))


def _code_table(summary: CodeSummary, ttgir: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=True)
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("TTGIR", no_wrap=True)
    table.add_column("instructions", justify="right", no_wrap=True)
    for heading in ("by pipeline", "waits for"):
        table.add_column(heading, overflow="fold")
    for code in summary.lines:
        text = ttgir[code.line - 1].partition(" loc(")[0].strip() if 0 < code.line <= len(ttgir) else ""
        counts = sorted(code.pipelines.items(), key=lambda entry: -entry[1])
        pipelines = ", ".join(f"{count} {pipeline.value}" for pipeline, count in counts)
        waits = sorted(code.awaited.items(), key=lambda entry: -entry[1])
        awaited = [f"{count} {one.operation} of line {one.line}" for one, count in waits[:_MAX_AWAITED]]
        if len(waits) > _MAX_AWAITED:
            awaited.append("…")
        operation = Text(text[:_MAX_OPERATION])
        table.add_row(str(code.line), operation, str(code.instructions), pipelines, Text(", ".join(awaited)))
    return table


def _code_json(summary: CodeSummary) -> dict[str, Any]:
    return {
        "name": summary.function.name,
        "instructions": len(summary.function.instructions),
        "loops": [
            {"line": loop.line, "lines": list(loop.lines), "instructions": loop.instructions} for loop in summary.loops
        ],
        "lines": [
            {
                "line": code.line,
                "instructions": code.instructions,
                "pipelines": {pipeline.value: count for pipeline, count in code.pipelines.items()},
                "waits_for": [
                    {"line": awaited.line, "operation": awaited.operation, "instructions": count}
                    for awaited, count in code.awaited.items()
                ],
            }
            for code in summary.lines
        ],
    }


def _kernels_at(place: Path) -> tuple[list[_Kernel], list[KprofError]]:
    if not may_be_workspace(place):
        text, name = read_input(place)
        view = view_of(text, name, saved_sources(place))
        return [(f"{view.kernel} ({view.module.file})", view, None)], []
    workspace = Workspace.open(place)
    dumped_kernels = workspace.require_kernels()
    differing = differing_facts(dumped_kernels)
    kernels: list[_Kernel] = []
    errors: list[KprofError] = []
    for dumped, found in zip(dumped_kernels, views_in(workspace), strict=True):
        if isinstance(found, KprofError):
            errors.append(found)
            continue
        facts, file = differing[dumped.variant], found.module.file
        heading = f"{found.kernel} ({facts_in_words(facts)}) {file}" if facts else f"{found.kernel} ({file})"
        kernels.append((heading, found, dumped))
    return kernels, errors

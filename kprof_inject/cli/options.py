"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kprof_inject.cli.completion import complete_selectors

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_WORKSPACE = Path("kprof_out")


def path_type() -> click.Path:
    return click.Path(path_type=Path)


PROGRAM_SETTINGS = {"allow_interspersed_args": False}
"""Everything after the first word that is no option belongs to the program."""


def program_argument(function: Function) -> Function:
    return click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)(function)


def workspace_option(function: Function) -> Function:
    return click.option(
        "-o",
        "--output",
        "workspace",
        type=path_type(),
        default=DEFAULT_WORKSPACE,
        show_default=True,
        help="The workspace: the folder that all steps hand on.",
    )(function)


def kernel_option(function: Function) -> Function:
    return click.option(
        "--kernel", default="*", metavar="GLOB", help="Only kernels whose name matches. [default: all]"
    )(function)


def at_option(function: Function) -> Function:
    return click.option(
        "--at",
        "selectors",
        multiple=True,
        metavar="SELECTOR",
        shell_complete=complete_selectors,
        help="What to time, [KERNEL/]SITE[=NAME]: func, func(NAME), loop, iter, loop[0.2], iter@57, op(GLOB), "
        "line(57-63), partition[0], default, marker(GLOB). Repeatable. "
        "[default: the source's markers if it has some, else func, loop, iter]",
    )(function)


def split_option(function: Function) -> Function:
    return click.option(
        "--split",
        type=click.Choice(["never", "runs"]),
        default="never",
        show_default=True,
        help="What to do where other lines' operations stand between those of a line, marker or helper: time them "
        "too, or time only the runs between them.",
    )(function)


def capture_options(function: Function) -> Function:
    """How ``run`` records and what it keeps."""
    for option in (
        click.option(
            "--max-bytes",
            type=click.IntRange(min=1),
            default=1 << 30,
            show_default=True,
            help="Keep at most this many bytes of buffers on disk, for each process.",
        ),
        click.option(
            "--buffer-bytes",
            type=click.IntRange(min=0),
            default=0,
            help="Bytes that a CTA keeps for its records, a power of two; 0: Proton's choice. [default: 0]",
        ),
        click.option(
            "--buffer",
            type=click.Choice(["shared", "global"]),
            default="shared",
            show_default=True,
            help="Where a CTA keeps its records.",
        ),
        click.option(
            "--launches",
            default="last",
            show_default=True,
            metavar="SPEC",
            help="Which launches of each kernel to keep: last, first, all, N, A:B.",
        ),
    ):
        function = option(function)
    return function


def trace_option(function: Function) -> Function:
    return click.option(
        "--trace",
        "trace_path",
        type=path_type(),
        default=None,
        help="The trace file; its ending says the format: .json, .json.gz. [default: trace.json in the workspace]",
    )(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")(function)

"""Options of the commands that try edits, and how the results are printed."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, cast

import click

from kprof_inject.capture.edits import EditsRecord
from kprof_inject.capture.encoding import rounded
from kprof_inject.capture.other_values import MAX_COMBINATIONS
from kprof_inject.cli.console import say, table_console
from kprof_inject.cli.constant_values import parse_values
from kprof_inject.cli.options import Function, harmless_setting
from kprof_inject.pipeline.edit_trials import TryChoice
from kprof_inject.report.terminal.edits_table import print_edits
from kprof_inject.report.tried_edits import tried_values
from kprof_inject.runtime.experiments.edits.kinds import KINDS, parse_edits
from kprof_inject.workspace import Workspace


def try_options(function: Function) -> Function:
    """Add the options of what to try; the command gets them as one ``choice``."""

    @functools.wraps(function)
    def with_choice(
        *args: Any,
        seconds: float,
        tolerance: float | None,
        edits: tuple[str, ...],
        values: tuple[str, ...],
        grid: str,
        **others: Any,
    ) -> Any:
        choice = TryChoice(
            seconds=seconds,
            tolerance=tolerance,
            edits=tuple(map(parse_edits, edits)),
            values=parse_values(values),
            grid=grid,
        )
        return function(*args, choice=choice, **others)

    decorated: Any = with_choice
    for option in (
        harmless_setting(
            "--edit",
            "edits",
            multiple=True,
            metavar="NAME=VALUE",
            help=f"Try this edit, not those that the findings propose: {', '.join(KINDS)}. NAME=VALUE,NAME=VALUE are "
            "tried together, and so are several options. Repeatable.",
        ),
        harmless_setting(
            "--values",
            "values",
            multiple=True,
            metavar="NAME=VALUE,…",
            help="Also try these values of a compile-time constant of the kernel, such as BLOCK_M=64,128. Those of "
            f"several constants are combined, at most {MAX_COMBINATIONS} times. Repeatable.",
        ),
        harmless_setting(
            "--grid",
            default="",
            metavar="EXPRESSION",
            help="Grid of the launch with other values, if the program gives no function for it, such as "
            "'cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)': of its integer arguments and constants.",
        ),
        harmless_setting(
            "--tolerance",
            type=click.FloatRange(min=0, max=1),
            metavar="PART",
            help="Largest difference of floating-point results, as a part of the largest in the same memory. [default: "
            "0.01 for 16 bits, 0.0001 for 32]",
        ),
        harmless_setting(
            "--seconds",
            type=click.FloatRange(min=0.1, max=3600),
            default=TryChoice().seconds,
            show_default=True,
            help="Time limit per kernel for measuring. Compiling takes its own time.",
        ),
    ):
        decorated = option(decorated)
    return cast(Function, decorated)


def print_tried(workspace: Workspace, records: Sequence[EditsRecord], *, as_json: bool) -> None:
    """Print the results of ``try``."""
    tried = [(record, workspace.applied_edits(record.variant)) for record in records]
    if as_json:
        click.echo(json.dumps(rounded(tried_values(tried)), indent=1))
        return
    print_edits(tried, table_console())
    folders = [str(workspace.edits_folder(record.variant)) for record, applied in tried if applied]
    if folders:
        say(f"wrote {', '.join(folders)}")

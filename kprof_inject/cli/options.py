"""Options and arguments that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from kprof_inject.capture.mode import Mode, parse_warps
from kprof_inject.cli.completion import complete_selectors
from kprof_inject.cli.parameter_types import ByteCount
from kprof_inject.runtime.launching.launches import LaunchChoice, parse_launches

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_WORKSPACE = Path("kprof_out")


def path_type() -> click.Path:
    return click.Path(path_type=Path)


TRACE_ENDINGS = (
    "its ending says the format: .json or .pftrace for ui.perfetto.dev, .csv (these also with .gz), .parquet, or "
    ".hatchet for proton-viewer"
)

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
    """How ``run`` records and what it keeps. The command gets them as one ``mode`` and one ``choice``."""

    @functools.wraps(function)
    def with_choice(*args: Any, launches: str, max_launches: int, max_bytes: int, kernel: str, **others: Any) -> Any:
        parse_launches(launches)  # a bad one is found before the program starts
        choice = LaunchChoice(launches, kernel, max_launches, max_bytes)
        return function(*args, choice=choice, **others)

    decorated: Any = with_choice
    for option in (
        click.option(
            "--max-launches",
            type=click.IntRange(min=0),
            default=0,
            help="Keep at most this many launches, for each process; what was left out is counted. Not for last. "
            "[default: no limit]",
        ),
        click.option(
            "--max-bytes",
            type=click.IntRange(min=1),
            default=1 << 30,
            show_default=True,
            help="Keep at most this many bytes of buffers on disk, for each process. A launch that would take more by "
            "itself gets smaller rings.",
        ),
        click.option(
            "--fit",
            is_flag=True,
            help="If records were lost, run the program once more with a buffer that keeps them all.",
        ),
        click.option(
            "--launches",
            default="last",
            show_default=True,
            metavar="SPEC",
            help="Which launches of each compiled variant of a kernel to keep: last, first, all, N, or A:B:STEP as in "
            "Python's slices; counted from 0, without an autotuner's benchmarks.",
        ),
    ):
        decorated = option(decorated)
    return cast(Function, mode_options(kernel_option(decorated)))


def mode_options(function: Function) -> Function:
    """How records are made. The command gets them as one ``mode``."""

    @functools.wraps(function)
    def with_mode(
        *args: Any, buffer: str, buffer_bytes: int, clock: str, warps: str, sched_stores: bool, **others: Any
    ) -> Any:
        mode = Mode(buffer, buffer_bytes, int(clock), parse_warps(warps), sched_stores)
        return function(*args, mode=mode, **others)

    decorated: Any = with_mode
    for option in (
        click.option(
            "--sched-stores",
            is_flag=True,
            help="Have Proton move the stores of records to where they disturb less.",
        ),
        click.option(
            "--clock",
            type=click.Choice(["32", "64"]),
            default="64",
            show_default=True,
            help="Bits of the cycle counter to read. 32 cost less; no two records of a warp in a row may then lie more "
            "than a second apart.",
        ),
        click.option(
            "--warps",
            default="",
            metavar="N,N,...",
            help="Record these warps of each CTA alone, such as 0,4; the others leave them their room. [default: all]",
        ),
        click.option(
            "--buffer-bytes",
            type=ByteCount(min=16, max=1 << 30),
            default="auto",
            show_default=True,
            metavar="N|auto",
            help="Bytes that a CTA keeps for its records: the ring of each warp is the largest power of two that fits "
            "into its share. auto: as Proton has it, and less where a warp cannot fill it, or fewer CTAs would fit on "
            "an SM.",
        ),
        click.option(
            "--buffer",
            type=click.Choice(["shared", "global"]),
            default="shared",
            show_default=True,
            help="Where a CTA keeps its records: shared memory, or global memory, which is slower and has room.",
        ),
    ):
        decorated = option(decorated)
    return cast(Function, decorated)


def trace_option(function: Function) -> Function:
    return click.option(
        "--trace",
        "trace_path",
        type=path_type(),
        default=None,
        help=f"The trace file; {TRACE_ENDINGS}. [default: trace.json in the workspace]",
    )(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")(function)

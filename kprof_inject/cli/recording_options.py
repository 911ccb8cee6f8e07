"""Options of how kernels get their records, how these are made, and what is kept of them."""

from __future__ import annotations

import functools
from typing import Any, cast

import click

from kprof_inject.capture.mode import Mode, parse_warps
from kprof_inject.cli.options import Function, NumberOrAuto, kernel_option
from kprof_inject.runtime.launching.launches import (
    KERNEL_SECONDS,
    PROCESS_SECONDS,
    LaunchChoice,
    ReplayChoice,
    parse_launches,
)


def style_options(function: Function) -> Function:
    """How what selectors find gets its records. The command gets them as one ``style``."""

    @functools.wraps(function)
    def with_style(*args: Any, split: str, iter_records: str, **others: Any) -> Any:
        from kprof_inject.select.style import Style

        return function(*args, style=Style.of(split, iter_records), **others)

    decorated: Any = click.option(
        "--iter-records",
        type=click.Choice(["one", "two"]),
        default="one",
        show_default=True,
        help="Records of each iteration: one, whose time also ends the iteration before; or a start and an end, which "
        "take twice the room and show what stands between iterations.",
    )(with_style)
    decorated = click.option(
        "--split",
        type=click.Choice(["never", "runs"]),
        default="never",
        show_default=True,
        help="What to do where other lines' operations stand between those of a line, marker or helper: time them "
        "too, or time only the runs between them.",
    )(decorated)
    return cast(Function, decorated)


def capture_options(function: Function) -> Function:
    """How ``run`` records and what it keeps. The command gets them as one ``mode`` and one ``choice``."""

    @functools.wraps(function)
    def with_choice(
        *args: Any,
        launches: str,
        max_launches: int,
        max_bytes: int,
        kernel: str,
        replay: int,
        no_replay: bool,
        **others: Any,
    ) -> Any:
        replays = ReplayChoice.of(0 if no_replay else replay or None)
        choice = LaunchChoice(parse_launches(launches), kernel, max_launches, max_bytes, replays)
        return function(*args, choice=choice, **others)

    decorated: Any = with_choice
    for option in (
        click.option(
            "--max-launches",
            type=click.IntRange(min=0),
            default=0,
            help="Keep at most this many launches per process; those left out are counted. Not for last. "
            "[default: no limit]",
        ),
        click.option(
            "--max-bytes",
            type=click.IntRange(min=1),
            default=1 << 30,
            show_default=True,
            help="Keep at most this many bytes of buffers on disk per process. A launch that would take more by "
            "itself gets smaller rings.",
        ),
        click.option(
            "--no-replay",
            is_flag=True,
            help="Do not relaunch kernels to time them.",
        ),
        click.option(
            "--replay",
            type=NumberOrAuto(min=1, max=10_000),
            default="auto",
            show_default=True,
            metavar="N|auto",
            help="Launch each kernel again at the place of its first launch that is kept, N times without records and "
            "N times with, to know what the records cost; what it changed in memory is put back. auto: only kernels "
            "that the program launches too seldom to know, or that are very short, for at most "
            f"{KERNEL_SECONDS:g} s each and {PROCESS_SECONDS:g} s in all of a process.",
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
            help="Let Proton move the records' stores to where they disturb less.",
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
            help="Record only these warps of each CTA, such as 0,4; the others leave them their room. [default: all]",
        ),
        click.option(
            "--buffer-bytes",
            type=NumberOrAuto(min=16, max=1 << 30),
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

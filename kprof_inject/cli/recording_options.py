"""Options of the commands that record: where records are inserted, how they are made, and which are kept.

The variable ``KPROF_INJECT`` contains those of ``profile`` that apply to a single run.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kprof_inject.capture.mode import Mode, parse_warps
from kprof_inject.capture.recording import KERNEL_SECONDS, Recording
from kprof_inject.capture.schema import BufferChoice
from kprof_inject.cli.options import (
    NumberOrWord,
    at_option,
    gathered,
    harmless_setting,
    kernel_option,
    tag_option,
    workspace_option,
)
from kprof_inject.errors import KprofError
from kprof_inject.select.selectors import Selector, parse_selectors
from kprof_inject.select.spans import ITERATION_RECORDS, SPREADS, Style

style_options = gathered(
    "style",
    lambda split, iter_records: Style(split, iter_records),
    harmless_setting(
        "--split",
        type=click.Choice(list(SPREADS)),
        default="never",
        show_default=True,
        help="Foreign ops between the ops of a line, marker or helper. never: time them too; runs: time only the runs "
        "between them.",
    ),
    harmless_setting(
        "--iter-records",
        type=click.Choice(list(ITERATION_RECORDS)),
        default="one",
        show_default=True,
        help="Records per iteration. one: each start also ends the previous iteration; two: a start and an end, which "
        "take twice the space and show the time between iterations.",
    ),
)
"""How records are inserted; the command gets ``style``."""


def _recording(
    *,
    buffer_type: BufferChoice,
    buffer_size: int,
    clock32: bool,
    warps: str,
    sched_stores: bool,
    sched_barriers: bool,
    **chosen: Any,
) -> Recording:
    mode = Mode(buffer_type, buffer_size, 32 if clock32 else 64, parse_warps(warps), sched_stores, sched_barriers)
    return Recording(**chosen, mode=mode)


capture_options = gathered(
    "recording",
    _recording,
    harmless_setting(
        "--buffer-type",
        type=click.Choice(["auto", "shared", "global"]),
        default="auto",
        show_default=True,
        help="Where a CTA keeps its records: shared memory, or global memory, which is larger. auto: global on "
        "NVIDIA, unless all CTAs of a large grid record.",
    ),
    harmless_setting(
        "--buffer-size",
        type=NumberOrWord({"auto": 0}, min=16, max=1 << 30),
        default="auto",
        show_default=True,
        metavar="N|auto",
        help="Record buffer of a CTA, in bytes: each warp's ring is the largest power of two that fits into its "
        "share. auto: Proton's default, or less if a warp cannot fill it or occupancy would drop.",
    ),
    harmless_setting(
        "--warps",
        default="",
        metavar="N,N,...",
        help="Record only these warps of each CTA, such as 0,4; they share the whole buffer. [default: all]",
    ),
    harmless_setting(
        "--clock32",
        is_flag=True,
        help="Read only 32 bits of the cycle counter: cheaper, but consecutive records of a warp must be at most a "
        "second apart.",
    ),
    harmless_setting(
        "--sched-stores", is_flag=True, help="Let Proton reorder the stores of the records, to disturb the kernel less."
    ),
    click.option(
        "--sched-barriers",
        is_flag=True,
        help="Put scheduling barriers around scopes, so that no instruction moves across. AMD only.",
    ),
    kernel_option,
    harmless_setting(
        "--launches",
        default="last",
        show_default=True,
        metavar="SPEC",
        help="Which launches of each kernel variant to keep: last, first, all, N, or A:B:STEP as in a Python "
        "slice. Counted from 0, without an autotuner's benchmark launches.",
    ),
    harmless_setting(
        "--ctas",
        default="auto",
        show_default=True,
        metavar="auto|all|per-sm:N|1/N",
        help="Which CTAs of a launch record: all, N to 2 N of each SM, or one of N, a power of two. The others "
        "run at full speed, and leave only when they ended. auto: at least 256 of a large grid, spread evenly. "
        "NVIDIA, Triton 3.6 or later.",
    ),
    harmless_setting(
        "--replay",
        type=NumberOrWord({"auto": None, "none": 0}, min=1, max=10_000),
        default="auto",
        show_default=True,
        metavar="N|auto|none",
        help="Measure what recording costs: save the first kept launch of each kernel, and when the program "
        "has ended, replay it N times without and N times with records, restoring its memory. auto: only kernels "
        f"that are very short or launched too rarely to tell, for about {KERNEL_SECONDS:g} s each.",
    ),
    harmless_setting(
        "--counters",
        default="default",
        show_default=True,
        metavar="none|default|METRIC,...",
        help="Hardware counters to read, and whether to sample why warps wait, when the program has ended: a saved "
        "launch of each kernel that takes at least 1 % of the time is repeated without records. METRICs are "
        "NVIDIA's names, as Nsight Compute has them, and are read in addition to the default ones.",
    ),
    harmless_setting(
        "--keep-launches",
        is_flag=True,
        help="Keep one launch of each kernel that takes at least 1 % of the time in WORKSPACE/launches, with its "
        "memory, to be run again and shared.",
    ),
    harmless_setting(
        "--max-bytes",
        type=click.IntRange(min=1),
        default=1 << 30,
        show_default=True,
        help="Keep at most this many buffer bytes on disk per process. A single launch that needs more gets "
        "smaller rings.",
    ),
    harmless_setting(
        "--max-launches",
        type=click.IntRange(min=0),
        default=0,
        help="Keep at most this many launches per process, and count the others. Not with --launches last. "
        "[default: no limit]",
    ),
)
"""How ``run`` records and what it keeps; the command gets ``recording``."""

fit_option = harmless_setting(
    "--fit", is_flag=True, help="If records were lost, rerun the program with a buffer that keeps them all."
)

AutostartOptions = tuple[Path, Sequence[Selector], Style, Recording]
"""Workspace of a process, which may be a relative path, and what to record there."""


@click.command(add_help_option=False)
@workspace_option
@at_option
@tag_option
@style_options
@capture_options
@fit_option
def _command(
    workspace: Path, selectors: tuple[str, ...], style: Style, recording: Recording, fit: bool
) -> AutostartOptions:
    if fit:
        raise KprofError("--fit runs the program twice", hint="give --buffer-size instead")
    return workspace, parse_selectors(selectors), style, recording


def read_options(text: str, name: str) -> AutostartOptions:
    """Parse options in the text of the variable ``name``, in a shell's words; raise ``KprofError`` if invalid."""
    hint = f"{name}='--at loop -o FOLDER', or 1"
    try:
        options: AutostartOptions = _command.main(shlex.split(text), prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        raise KprofError(error.format_message(), hint=hint) from None
    except ValueError as error:
        raise KprofError(f"cannot read {text!r}: {str(error).lower()}", hint=hint) from None
    return options

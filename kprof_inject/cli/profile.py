"""``kprof-inject profile``."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote

import click
from msgspec.structs import replace

from kprof_inject.analysis.program import Report
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.cli.capture_lines import origin_line, print_json, print_tried, say_next, write_and_say
from kprof_inject.cli.console import INTERRUPTED, say, table_console
from kprof_inject.cli.grouped_help import GroupedCommand
from kprof_inject.cli.options import (
    PROGRAM_SETTINGS,
    at_option,
    harmless_setting,
    json_option,
    program_argument,
    require_place_for,
    tag_option,
    workspace_option,
)
from kprof_inject.cli.plans import say_kernels_briefly
from kprof_inject.cli.reading_options import layout_option, trace_file, trace_option
from kprof_inject.cli.recording_options import capture_options, fit_option, style_options
from kprof_inject.errors import KprofError
from kprof_inject.insertion import KernelInsertion, insert_kernels, write_insertions
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.pipeline.programs import Program, torch_traces
from kprof_inject.pipeline.saved_launches import adopt, capture_launch, saved_launch_at, saved_launches_of
from kprof_inject.pipeline.torch_traces import merge
from kprof_inject.report.terminal.screens import print_answers
from kprof_inject.runtime.program import STOPPED, ProgramInput
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Style
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held


@click.command(
    "profile",
    cls=GroupedCommand,
    context_settings=PROGRAM_SETTINGS,
    epilog="\b\nExamples:\n  kprof-inject profile -- python train.py\n"
    "  kprof-inject profile --kernel 'matmul*' --at loop --at 'line(57-63)=load' --launches 0:20 -- python train.py",
)
@workspace_option
@at_option
@tag_option
@style_options
@capture_options
@fit_option
@trace_option
@layout_option
@harmless_setting(
    "--torch-profiler",
    is_flag=True,
    help="Also trace the program with torch.profiler, from the first recorded kernel on, and merge the launches into "
    "that trace.",
)
@harmless_setting(
    "--try",
    "tries",
    is_flag=True,
    help="Then try mechanical edits of the kernels on saved launches, as the command try does. Implies "
    "--keep-launches.",
)
@json_option
@program_argument
@click.pass_context
def command(
    ctx: click.Context,
    workspace: Path,
    selectors: tuple[str, ...],
    style: Style,
    recording: Recording,
    fit: bool,
    trace_path: Path | None,
    layout: str | None,
    torch_profiler: bool,
    tries: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Run PROGRAM with records in its kernels and show what limits them.

    Some launches have no records, to show what recording costs. With NAME.launch instead of PROGRAM, repeat that saved
    launch.
    """
    # Check all options before the program runs.
    require_place_for(trace_path, workspace=workspace)
    trace = trace_file(ctx, trace_path or workspace / "trace.json", layout)
    wanted = parse_selectors(selectors)
    recording.mode.require_tags_kept(any(selector.tags for selector in wanted))

    if tries and as_json:
        raise click.UsageError("--try prints a table: for JSON, use --keep-launches, and then kprof-inject try --json")
    saved = saved_launch_at(program, recording.kernel)
    if saved is not None and (fit or torch_profiler):
        raise click.UsageError("--fit and --torch-profiler are for programs, not for a saved launch")
    program_input = ProgramInput()
    with held(workspace, say):
        opened = Workspace.begin(workspace)
        recording = replace(recording, torch_trace=torch_profiler, keep_launches=recording.keep_launches or tries)
        style = style.for_mode(recording.mode)

        def say_plans() -> list[KernelInsertion]:
            kernels = insert_kernels(opened, wanted, style)
            say_kernels_briefly(workspace, kernels, wanted)
            return kernels

        try:
            if saved is not None:
                adopt(opened, saved)
                write_insertions(opened, say_plans())
                ran = capture_launch(opened, saved, recording, say), 0
            else:
                profiled = Program(opened, program, program_input, say)
                ran = profiled.profile(recording, selectors, style, say_plans)
                if fit:
                    ran = profiled.fit_and_run(ran, recording)
        except KprofError:
            _say_earlier_capture(opened)
            raise
        capture_folder, exit_code = ran
        if exit_code in STOPPED and exit_code != INTERRUPTED:  # a scheduler that stopped it does not wait for long
            stopped = f"stopped by {signal.Signals(exit_code - 128).name}"
            say(f"{stopped}: not reading the capture; continue with trace and report")
            ctx.exit(exit_code)
        timelines = decode_capture(read_capture(capture_folder), say)
        report = Report.of(timelines)
        if as_json:
            print_json(report)
        else:
            print_answers(report, table_console())
        # A trace of many launches takes seconds, and the answer does not need it.
        write_and_say(trace, timelines)
        if not as_json:
            say_next(workspace, report, "-- PROG" if saved is None else quote(program[0]))
        if tries and exit_code == INTERRUPTED:
            say(f"interrupted: trying no edits; continue with kprof-inject try {quote(str(workspace))}")
        elif tries:
            launches = (
                saved_launches_of(opened, capture_folder) if saved is None else {saved.record.variant: saved.folder}
            )
            exit_code = _try(opened, launches, report, recording.kernel) or exit_code
        if torch_profiler:
            traces = torch_traces(capture_folder)
            if not traces:
                raise KprofError(
                    "torch.profiler left no trace: the program was killed, or it does not use torch",
                    hint="profile a program that imports torch, to its end",
                )
            for line in merge(traces, timelines, workspace, layout):
                say(line)
    ctx.exit(exit_code)


def _try(workspace: Workspace, launches: dict[str, Path], report: Report, kernel: str) -> int:
    from kprof_inject.pipeline.edit_trials import TryChoice, try_edits

    try:
        records = try_edits(workspace, launches, report, TryChoice(kernel), say)
    except KprofError as error:
        say(f"no edits were tried: {error.what}")
        return 0
    print_tried(workspace, records, as_json=False)
    return INTERRUPTED if records[-1].ended == "interrupted" else 0


def _say_earlier_capture(workspace: Workspace) -> None:
    with suppress(KprofError):
        earlier = read_capture(workspace.last_capture_folder())
        origin = origin_line(earlier, time.time_ns()) or earlier.folder
        say(f"nothing was captured; report shows what was there: {origin}")

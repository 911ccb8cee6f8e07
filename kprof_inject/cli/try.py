"""``kprof-inject try``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kprof_inject.analysis.program import Report
from kprof_inject.capture.edits import EditsRecord
from kprof_inject.capture.model import Capture
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.recording import Recording
from kprof_inject.cli.console import say
from kprof_inject.cli.edit_options import print_tried, try_options
from kprof_inject.cli.kernel_sources import source_of
from kprof_inject.cli.options import (
    PROGRAM_SETTINGS,
    WorkspaceOrProgram,
    json_option,
    kernel_option,
    names_a_workspace,
    workspace_option,
)
from kprof_inject.cli.plans import say_kernels_briefly
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.captures import experiments_at, report_on
from kprof_inject.pipeline.edit_trials import TryChoice, try_edits
from kprof_inject.pipeline.insertion import insert_kernels, write_insertions
from kprof_inject.pipeline.saved_launches import saved_launches_of
from kprof_inject.runtime.program import STOPPED
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held

_WITHOUT_RECORDS = "so there are no findings, and only options next to the present ones are tried"


@click.command("try", cls=WorkspaceOrProgram, context_settings=PROGRAM_SETTINGS)
@workspace_option
@kernel_option
@try_options
@json_option
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context, workspace: Path, kernel: str, choice: TryChoice, as_json: bool, program: tuple[str, ...]
) -> None:
    """Edit each kernel mechanically, measure the edits on a saved launch, and show which of them make it faster.

    With PROGRAM: profile it first, and save a launch of each kernel. With NAME.launch: capture and repeat that launch.
    With only a WORKSPACE: repeat the launches that "profile --keep-launches" saved. The program itself is never
    changed.
    """
    choice = choice.of_kernels(kernel)
    is_dumped = bool(program) and names_a_workspace(program[0])
    if is_dumped:
        workspace, program = Path(program[0]), program[1:]
    if not program:
        opened = Workspace.open(workspace)
        with held(workspace, say):
            capture = read_capture(opened.last_capture_folder())
            launches = saved_launches_of(opened, capture.folder)
            records = try_edits(opened, launches, _report(capture, opened, kernel), choice, say)
            print_tried(opened, records, as_json=as_json)
        ctx.exit(_exit_code(records))
    source = source_of(program, workspace, kernel, "try")
    with held(workspace, say):
        opened = Workspace.open(workspace) if is_dumped else Workspace.begin(workspace)
        if not is_dumped and (code := source.dump(opened, kernel, choice.values)) in STOPPED:
            ctx.exit(code)
        kernels = insert_kernels(opened, ())
        write_insertions(opened, kernels)
        say_kernels_briefly(workspace, kernels, ())
        recording = Recording(kernel=kernel, keep_launches=True, counters="default")
        captured, exit_code = source.record(opened, recording, instead=_WITHOUT_RECORDS)
        if exit_code in STOPPED:
            ctx.exit(exit_code)
        launches = source.launches(opened, captured)
        records = try_edits(opened, launches, _report(captured, opened, kernel), choice, say)
        print_tried(opened, records, as_json=as_json)
    ctx.exit(exit_code or _exit_code(records))


def _exit_code(records: Sequence[EditsRecord]) -> int:
    """Return 1 if no edit of any kernel could be measured."""
    return 0 if any(record.is_answered for record in records) else 1


def _report(capture: Capture | None, workspace: Workspace, kernel: str) -> Report:
    """Return the report on the kernels whose names match; on no launch if the capture cannot be read."""
    try:
        experiments = experiments_at(workspace.folder, say)
        choice = EVERYTHING if kernel == "*" else Choice(kernels=(kernel,))
        return report_on(capture, experiments, say, choice) if capture else Report(())
    except KprofError as error:
        say(f"{_WITHOUT_RECORDS.removeprefix('so ')}: {error.what}")
        return Report(())

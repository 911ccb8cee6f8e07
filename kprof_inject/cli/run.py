"""``kprof-inject run``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.capture.recording import Recording
from kprof_inject.cli.console import say, say_next_step
from kprof_inject.cli.options import PATH, PROGRAM_SETTINGS, WorkspaceOrDefault, program_argument
from kprof_inject.cli.recording_options import capture_options, fit_option
from kprof_inject.errors import KprofError
from kprof_inject.pipeline.programs import Program
from kprof_inject.pipeline.saved_launches import capture_launch, saved_launch_at
from kprof_inject.runtime.program import ProgramInput
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held, workspace_argument


@click.command("run", cls=WorkspaceOrDefault, context_settings=PROGRAM_SETTINGS)
@click.argument("workspace", metavar="[WORKSPACE]", type=PATH)
@capture_options
@fit_option
@program_argument
@click.pass_context
def command(ctx: click.Context, workspace: Path, recording: Recording, fit: bool, program: tuple[str, ...]) -> None:
    """Rerun PROGRAM with the records that insert planned in WORKSPACE, save the raw buffers, and time some launches.

    With NAME.launch instead of PROGRAM, repeat that saved launch.
    """
    opened = Workspace.open(workspace)
    opened.require_kernels()
    if not opened.plans_folder.exists():
        hint = f"insert some: kprof-inject insert{workspace_argument(workspace)}"
        raise KprofError(f"{workspace} has no records to run with", hint=hint)
    saved = saved_launch_at(program, recording.kernel)
    if saved is not None and fit:
        raise click.UsageError("--fit is for programs, not for a saved launch")
    program_input, exit_code = ProgramInput(), 0
    with held(workspace, say):
        if saved is not None:
            if saved.record.variant not in [kernel.variant for kernel in opened.kernels()]:
                raise KprofError(f"{workspace} was not made from {saved.folder}", hint="dump the launch first")
            capture_launch(opened, saved, recording, say)
        else:
            started = Program(opened, program, program_input, say)
            ran = started.run(recording)
            _, exit_code = started.fit_and_run(ran, recording) if fit else ran
    say_next_step(f"kprof-inject report{workspace_argument(workspace)}")
    ctx.exit(exit_code)

"""``kprof-inject dump``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.cli.console import say, say_next_step
from kprof_inject.cli.options import PROGRAM_SETTINGS, kernel_option, program_argument, workspace_option
from kprof_inject.pipeline.programs import Program
from kprof_inject.pipeline.saved_launches import adopt, saved_launch_at
from kprof_inject.runtime.program import ProgramInput
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import held, workspace_argument


@click.command("dump", context_settings=PROGRAM_SETTINGS)
@workspace_option
@kernel_option
@program_argument
@click.pass_context
def command(ctx: click.Context, workspace: Path, kernel: str, program: tuple[str, ...]) -> None:
    """Run PROGRAM, save every kernel's TTGIR, metadata and sources, and time some of its launches.

    With NAME.launch instead of PROGRAM, take the kernel of that saved launch.
    """
    saved = saved_launch_at(program, kernel)
    exit_code = 0
    with held(workspace, say):
        opened = Workspace.begin(workspace)
        if saved is not None:
            adopt(opened, saved)
        else:
            exit_code = Program(opened, program, ProgramInput(), say).dump(kernel)
    where = workspace_argument(workspace)
    say_next_step(f"kprof-inject insert{where}; what can be selected: kprof-inject list{where}")
    ctx.exit(exit_code)

"""``kprof-inject run``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.capture.mode import Mode
from kprof_inject.cli.console import say
from kprof_inject.cli.options import PROGRAM_SETTINGS, path_type, program_argument
from kprof_inject.cli.recording_options import capture_options
from kprof_inject.pipeline.programs import run, run_and_fit
from kprof_inject.runtime.launching.launches import LaunchChoice
from kprof_inject.runtime.program import kept_input, own_input
from kprof_inject.workspace import Workspace, held


class _WorkspaceFirst(click.Command):
    """Takes ``[OPTIONS] WORKSPACE [OPTIONS] [--] PROGRAM``: click, which must stop at the program's first word, would
    stop at the workspace."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, words = self._split(ctx, args)
        if words:
            after, program = self._split(ctx, words[1:])
            args = [*before, *after, "--", words[0], *program]
        return super().parse_args(ctx, args)

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """The options that ``args`` begins with, and the rest, without a ``--`` between them."""
        options_alone = click.Command(None, params=[p for p in self.params if isinstance(p, click.Option)])
        _, rest, _ = options_alone.make_parser(ctx).parse_args(list(args))
        options = args[: len(args) - len(rest)]
        return (options[:-1] if options[-1:] == ["--"] else options), rest


@click.command("run", cls=_WorkspaceFirst, context_settings=PROGRAM_SETTINGS)
@click.argument("workspace", type=path_type())
@capture_options
@program_argument
@click.pass_context
def command(
    ctx: click.Context,
    workspace: Path,
    choice: LaunchChoice,
    mode: Mode,
    fit: bool,
    program: tuple[str, ...],
) -> None:
    """Rerun PROGRAM with the records that insert planned in WORKSPACE, save the raw buffers, and time some launches."""
    opened = Workspace.open(workspace)
    step, program_input = (run_and_fit, kept_input(workspace)) if fit else (run, own_input())
    with held(workspace, say):
        _, exit_code = step(opened, choice, mode, program, program_input, say)
    ctx.exit(exit_code)

"""``kprof-inject run``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.capture.mode import Mode
from kprof_inject.cli.console import say, say_faults
from kprof_inject.cli.options import PROGRAM_SETTINGS, capture_options, path_type, program_argument
from kprof_inject.runtime import steps
from kprof_inject.runtime.launches import parse_launches
from kprof_inject.workspace import Workspace


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
    launches: str,
    buffer: str,
    buffer_bytes: int,
    max_bytes: int,
    program: tuple[str, ...],
) -> None:
    """Rerun PROGRAM with the records that insert planned in WORKSPACE, and save the raw buffers."""
    opened = Workspace.open(workspace)
    _, exit_code = run_into(opened, launches, max_bytes, Mode(buffer, buffer_bytes), program)
    ctx.exit(exit_code)


def run_into(
    workspace: Workspace, launches: str, max_bytes: int, mode: Mode, program: tuple[str, ...]
) -> tuple[Path, int]:
    """Run and say what was captured; returns the capture's folder and the program's exit code."""
    parse_launches(launches)  # a bad one is found before the program starts
    capture_folder = workspace.new_capture_folder()
    result = steps.run(workspace, capture_folder, launches, max_bytes, mode, program)
    for state in result.reports.kernels:
        if state.state == "left alone":
            say(f"{state.name} ran as it was: {state.reason}")
    say_faults(result.reports.errors)
    say(f"captured to {capture_folder}")
    return capture_folder, result.exit_code

"""``kprof-inject run``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.calibration.calibrate import add_record_costs
from kprof_inject.capture.buffer_size import MOST_LAUNCH_BYTES
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.reader import read_capture
from kprof_inject.cli.console import say, say_faults, say_unreached
from kprof_inject.cli.options import PROGRAM_SETTINGS, capture_options, path_type, program_argument
from kprof_inject.runtime import steps
from kprof_inject.runtime.launching.launches import LaunchChoice
from kprof_inject.runtime.program import STOPPED, ProgramInput, kept_input, own_input
from kprof_inject.timeline.fit import Fit, fitted_buffer
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
    runner = run_and_fit if fit else run_into
    program_input = kept_input(workspace) if fit else own_input()
    with held(workspace, say):
        _, exit_code = runner(opened, choice, mode, program, program_input)
    ctx.exit(exit_code)


def run_and_fit(
    workspace: Workspace, choice: LaunchChoice, mode: Mode, program: tuple[str, ...], program_input: ProgramInput
) -> tuple[Path, int]:
    """As ``run_into``, and once more if records were lost, with a buffer that has room for them: the result is then
    the second run's."""
    folder, exit_code = run_into(workspace, choice, mode, program, program_input)
    if exit_code in STOPPED:
        return folder, exit_code
    fit = fitted_buffer(read_capture(folder).launches, mode)
    if fit is None:
        say("no record was lost: --fit has nothing to do")
        return folder, exit_code
    _say_losses(fit)
    options = f"--buffer {fit.mode.buffer} --buffer-bytes {fit.mode.buffer_bytes}"
    limit_bytes = min(choice.max_bytes, MOST_LAUNCH_BYTES)
    if fit.launch_bytes > limit_bytes:
        say(
            f"not run again: {options} would keep them all, and the {fit.largest.ctas} CTAs of "
            f"{fit.largest.kernel.name} would take {fit.launch_bytes} bytes, of which {limit_bytes} are allowed; "
            "record fewer --warps, select less, or raise --max-bytes"
        )
        return folder, exit_code
    if program_input.refusal:
        say(f"not run again: {program_input.refusal}; {options} would keep them all")
        return folder, exit_code
    say(f"running once more with {options}, which keeps as many for every warp")
    folder, exit_code = run_into(workspace, choice, fit.mode, program, program_input)
    still = fitted_buffer(read_capture(folder).launches, fit.mode)
    if still is not None:
        _say_losses(still)
        say("records were lost again: the program does not do the same in each run, or the buffer was made smaller")
    return folder, exit_code


def _say_losses(fit: Fit) -> None:
    for loss in fit.losses:
        say(
            f"{loss.kernel.name}: {loss.lost} of {loss.written} records were lost; a warp wrote "
            f"up to {loss.most_in_warp}, and its ring holds {loss.ring_records}"
        )


def run_into(
    workspace: Workspace, choice: LaunchChoice, mode: Mode, program: tuple[str, ...], program_input: ProgramInput
) -> tuple[Path, int]:
    """Run and say what was captured; returns the capture's folder and the program's exit code."""
    capture_folder = workspace.new_capture_folder()
    result = steps.run(workspace, capture_folder, choice, mode, program, program_input)
    for state in result.reports.kernels:
        if state.state == "left alone":
            say(f"{state.name} ran as it was: {state.reason}")
        elif state.reason:
            say(f"{state.name}: {state.reason}")
    for autotuned in result.reports.choices:
        say(f"the autotuner of {autotuned.kernel} chose {autotuned.config} for {autotuned.key}")
    for process in result.reports.unfinished:
        say(str(process))
    say_faults(result.reports.errors)
    say_unreached(result.reports.unreached)
    say(f"captured to {capture_folder}")
    if result.exit_code not in STOPPED:
        for message in add_record_costs(workspace, capture_folder):
            say(message)
    return capture_folder, result.exit_code

"""``kprof-inject watch``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.capture.mode import Mode
from kprof_inject.cli.console import say
from kprof_inject.cli.grouped_help import GroupedCommand
from kprof_inject.cli.options import PROGRAM_SETTINGS, at_option, harmless_setting, tag_option, workspace_option
from kprof_inject.cli.recording_options import style_options, watch_options
from kprof_inject.pipeline.watching import DEFAULT_LIMITS, WatchLimits, follow_workspace, watch_program, watch_session
from kprof_inject.runtime.launch.launch_choice import LaunchChoice, WatchChoice
from kprof_inject.runtime.program import own_input, require_startable
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Style
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_lock import held


@click.command("watch", cls=GroupedCommand, context_settings=PROGRAM_SETTINGS)
@workspace_option
@at_option
@tag_option
@style_options
@watch_options
@harmless_setting(
    "--slower",
    type=click.FloatRange(min=0, min_open=True),
    default=100 * DEFAULT_LIMITS.slower,
    show_default=True,
    metavar="PERCENT",
    help="Raise an alarm if a kernel takes longer than usual by more than this.",
)
@harmless_setting(
    "--keep-bytes",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMITS.max_bytes,
    show_default=True,
    help="Keep at most this many bytes of captures on disk. The older they are, the fewer are kept.",
)
@click.option(
    "--follow",
    is_flag=True,
    help='Run no program: watch what programs leave in the workspace that were started with KPROF_INJECT="watch ...".',
)
@click.argument("program", nargs=-1, metavar="[PROGRAM]...", type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context,
    workspace: Path,
    selectors: tuple[str, ...],
    style: Style,
    choice: LaunchChoice,
    mode: Mode,
    watch: WatchChoice,
    slower: float,
    keep_bytes: int,
    follow: bool,
    program: tuple[str, ...],
) -> None:
    """Run PROGRAM for hours, record a launch of each kernel now and then, and say when one became slower than before.

    The captures take at most a stated part of the program's time. WORKSPACE/watch has their history (Parquet), the
    metrics (Prometheus) and the alarms. The exit code is 1 if there was an alarm and the program itself ended with 0.
    """
    limits = WatchLimits(slower / 100, keep_bytes)
    if follow:
        if program:
            raise click.UsageError("--follow runs no program")
        opened = Workspace.open(workspace)
        ctx.exit(1 if follow_workspace(opened, opened.reports_folder("watch"), limits, say) else 0)
    if not program:
        raise click.UsageError(
            f"Missing argument 'PROGRAM'. Put it after two dashes: {ctx.command_path} -- python serve.py"
        )
    wanted = parse_selectors(selectors)
    mode.require_tags_kept(any(selector.tags for selector in wanted))
    require_startable(program)
    with held(workspace, say):
        opened = Workspace.begin(workspace)
        reports_folder = opened.new_reports_folder("watch")
        session = watch_session(opened, reports_folder, choice, mode, selectors, style.for_mode(mode), watch)
        exit_code, alarms = watch_program(opened, session, limits, program, own_input(), say)
    ctx.exit(exit_code or (1 if alarms else 0))

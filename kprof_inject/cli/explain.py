"""``kprof-inject explain``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.capture.foreign import BufferDescription
from kprof_inject.cli.console import say
from kprof_inject.cli.options import harmless_setting, place_argument
from kprof_inject.cli.reading_options import buffer_options, launch_options, scope_names_option
from kprof_inject.pipeline.captures import analyses, experiments_at, open_capture
from kprof_inject.report.explanation import explanation
from kprof_inject.report.explanation_schema import DEFAULT_BUDGET, explanation_text
from kprof_inject.timeline.choice import Choice
from kprof_inject.workspace_paths import DEFAULT_WORKSPACE, is_workspace


@click.command("explain")
@place_argument("WORKSPACE|CAPTURE|BUFFER")
@harmless_setting(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    default=DEFAULT_BUDGET,
    show_default=True,
    help="Print at most N tokens, of four characters each.",
)
@launch_options
@scope_names_option
@buffer_options
def command(place: Path, budget: int, choice: Choice, names_path: Path | None, description: BufferDescription) -> None:
    """Print what limits a launch as one line of JSON, for an agent that tunes kernels.

    Picks the kernel that takes the most time, and leaves out what matters least.
    """
    capture = open_capture(place, names_path=names_path, description=description)
    found = analyses(capture, experiments_at(place, say), say, choice)
    click.echo(explanation_text(explanation(found, _workspace(place)), budget))


def _workspace(place: Path) -> str:
    """Return the workspace for the next commands: empty if it is the default one, or if ``place`` is not one."""
    return str(place) if place != DEFAULT_WORKSPACE and is_workspace(place) else ""

"""The options in ``KPROF_INJECT``: those of ``profile`` that apply to a single run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kprof_inject.capture.mode import Mode
from kprof_inject.cli.options import at_option, tag_option, workspace_option
from kprof_inject.cli.recording_options import capture_options, style_options
from kprof_inject.errors import KprofError
from kprof_inject.runtime.launch.launch_choice import LaunchChoice
from kprof_inject.select.selectors import Selector, parse_selectors
from kprof_inject.select.style import Style


@dataclass(frozen=True, slots=True)
class AutostartOptions:
    """Choice of what to record in a process, and the workspace to save it in, which may be a relative path."""

    workspace: Path
    selectors: Sequence[Selector]
    style: Style
    choice: LaunchChoice
    mode: Mode


@click.command(add_help_option=False)
@workspace_option
@at_option
@tag_option
@style_options
@capture_options
def _command(
    workspace: Path, selectors: tuple[str, ...], style: Style, choice: LaunchChoice, mode: Mode, fit: bool
) -> AutostartOptions:
    if fit:
        raise KprofError("--fit runs the program twice", hint="give --buffer-bytes instead")
    return AutostartOptions(workspace, parse_selectors(selectors), style, choice, mode)


def read_options(text: str, name: str) -> AutostartOptions:
    """Parse options in a text that is split like a shell's words; ``name`` is the variable that contains it.

    Raises ``KprofError`` if the options are invalid.
    """
    hint = f"{name}='--at loop -o FOLDER', or 1"
    try:
        options: AutostartOptions = _command.main(shlex.split(text), prog_name=name, standalone_mode=False)
    except click.ClickException as error:
        raise KprofError(error.format_message(), hint=hint) from None
    except ValueError as error:
        raise KprofError(f"cannot read {text!r}: {str(error).lower()}", hint=hint) from None
    return options

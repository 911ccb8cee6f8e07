"""Reports on stdout.

This module imports the whole analysis; commands that only write files do not import it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from textwrap import indent

import click

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import glob_of, overview
from kprof_inject.cli.console import is_a_step, say, table_console
from kprof_inject.report.terminal.screens import print_all, print_answers
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_paths import is_workspace, workspace_argument, workspace_option


def print_json(reports: Sequence[LaunchAnalysis]) -> None:
    """Print the launches in order as JSON, each with the overview of its kernel in the program."""
    kernels = {kernel.name: kernel.to_json() for kernel in overview(reports)}
    separator = "["
    for report in reports:
        launch = {**report.to_json(), "program": kernels[report.launch.kernel.name]}
        click.echo(separator + indent(f"\n{json.dumps(launch, indent=1)}", " "), nl=False)
        separator = ","
    click.echo("\n]")


def print_report(reports: Sequence[LaunchAnalysis]) -> None:
    """Print the summary that a reader needs first; tables are never cut in a pipe."""
    print_answers(reports, table_console())


def print_whole_report(reports: Sequence[LaunchAnalysis]) -> None:
    """Print all details of each launch."""
    print_all(reports, table_console())


def say_next(place: Path, reports: Sequence[LaunchAnalysis]) -> None:
    """Print the next commands after a report of this place."""
    if is_a_step():
        return
    if any(report.launch.recorded is not None for report in reports):
        say("more: report -v, or --html FILE; timeline: trace")
        return
    where = workspace_argument(place)
    kernels = overview(reports)
    if len(kernels) > 1:
        say(f"one kernel: kprof-inject report{where} --kernel {quote(kernels[0].name)}")
    say(f"more: kprof-inject report{where} -v, or --html FILE; timeline: kprof-inject view{where}")
    if len(kernels) == 1:
        in_workspace = is_workspace(place)
        diff = f"; what changed: kprof-inject diff{where}" if in_workspace and _has_two_captures(place) else ""
        glob = glob_of(kernels[0], reports)
        kernel = f" --kernel {quote(glob)}" if glob else ""
        option = workspace_option(place) if in_workspace else ""
        say(f"what matters: kprof-inject causal{option}{kernel} -- PROG{diff}")


def _has_two_captures(workspace: Path) -> bool:
    return len(Workspace(workspace).capture_folders()) > 1

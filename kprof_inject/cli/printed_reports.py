"""Reports on stdout. It loads all that judges a launch, which commands that only write files do without."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from kprof_inject.analysis.launch_report import LaunchReport
from kprof_inject.cli.console import table_console
from kprof_inject.report.terminal.launch_table import print_launches
from kprof_inject.report.terminal.tables import print_trust


def print_report(reports: Sequence[LaunchReport], as_json: bool) -> None:
    """The launches and the verdicts on stdout: JSON, or tables that are never cut when they are piped."""
    if as_json:
        click.echo(json.dumps([report.to_json() for report in reports], indent=1))
        return
    console = table_console()
    print_launches(reports, console)
    print_trust([(report.launch, report.verdict) for report in reports], console)

"""``kprof-inject report``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kprof_inject.cli.captures import decode_capture, open_capture
from kprof_inject.cli.console import table_console
from kprof_inject.cli.options import json_option, path_type
from kprof_inject.cli.view_options import scope_names_option
from kprof_inject.report.launch_table import print_summaries
from kprof_inject.report.summary import summarise
from kprof_inject.report.trust_table import print_trust
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import judge


@click.command("report")
@click.argument("place", metavar="WORKSPACE|CAPTURE|BUFFER", type=path_type())
@scope_names_option
@json_option
def command(place: Path, names_path: Path | None, as_json: bool) -> None:
    """Show what each scope of a CAPTURE (or a WORKSPACE's last one, or a BUFFER: a file with Proton's host_buffer)
    takes, and how far to trust each kernel's times."""
    print_report(decode_capture(open_capture(place, names_path)), as_json)


def print_report(timelines: list[Timeline], as_json: bool) -> None:
    """The launches and the verdicts on stdout: JSON, or tables that are never cut when they are piped."""
    summaries = [summarise(timeline) for timeline in timelines]
    launches = [timeline.launch for timeline in timelines]
    if as_json:
        values = [
            {**summary.to_json(), "trust": judge(launch.kernel).to_json()}
            for summary, launch in zip(summaries, launches, strict=True)
        ]
        click.echo(json.dumps(values, indent=1))
        return
    console = table_console()
    print_summaries(summaries, console)
    print_trust(launches, console)

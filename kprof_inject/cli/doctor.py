"""``kprof-inject doctor``."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.table import Table
from rich.text import Text

from kprof_inject.cli.console import say, table_console
from kprof_inject.cli.options import json_option
from kprof_inject.runtime.diagnosis import Status, examine

_STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.MISSING: "bold red", Status.PROBLEM: "bold red"}


@click.command("doctor")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Check what is installed and what works, and say how to fix the rest.

    Exits with code 1 if something is missing or broken.
    """
    findings = list(examine())
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        table = Table(box=None, pad_edge=False)
        for heading in ("", "status", "fact", "what to do"):
            table.add_column(heading, overflow="fold")
        for one in findings:
            status = Text(one.status, _STYLES[one.status])
            table.add_row(Text(one.what), status, Text(one.fact), Text(one.advice))
        table_console().print(table)
        if not any(finding.status.is_fatal for finding in findings):
            # A GPU that exists has a number in its name; only the line without a GPU is called "GPU".
            if any(finding.what == "GPU" for finding in findings):
                say("next: kprof-inject demo, which replays a capture where there is no GPU")
            else:
                say("next: kprof-inject profile -- PROG; an example first: kprof-inject demo")
    ctx.exit(1 if any(finding.status.is_fatal for finding in findings) else 0)

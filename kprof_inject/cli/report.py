"""``kprof-inject report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kprof_inject.analysis.launch_report import LaunchReport, report_on
from kprof_inject.cli.console import say
from kprof_inject.cli.options import json_option, path_type, redact_option, scope_names_option
from kprof_inject.cli.printed_reports import print_report
from kprof_inject.pipeline.captures import decode_capture, experiments_at, open_capture
from kprof_inject.quantities import size_text


@click.command("report")
@click.argument("place", metavar="WORKSPACE|CAPTURE|BUFFER", type=path_type())
@scope_names_option
@json_option
@click.option(
    "--html",
    "html_path",
    metavar="FILE",
    type=path_type(),
    help="Write the report as a page, too: one file that any browser opens, without a network.",
)
@redact_option
def command(place: Path, names_path: Path | None, as_json: bool, html_path: Path | None, redact: bool) -> None:
    """Show what limits each launch of a CAPTURE (or a WORKSPACE's last one, or a BUFFER: a file with Proton's
    host_buffer), what each of its scopes takes, and how far to trust each kernel's times."""
    capture = open_capture(place, names_path, redact=redact)
    experiments = experiments_at(place)
    reports = [report_on(timeline, experiments) for timeline in decode_capture(capture, say)]
    # Before the tables, whose reader may have seen enough and gone; its address behind them, where it is seen.
    page_lines = [] if html_path is None else _write_page(html_path, reports)
    print_report(reports, as_json)
    for line in page_lines:
        say(line)


def _write_page(path: Path, reports: Sequence[LaunchReport]) -> list[str]:
    """What there is to say of the page that was written."""
    from kprof_inject.report.html.document import omissions, write_html

    written = size_text(write_html(path, reports))
    return [*omissions(reports), f"wrote {path} ({written}): open it in a browser: {path.resolve().as_uri()}"]

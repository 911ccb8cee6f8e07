"""``kprof-inject report``."""

from __future__ import annotations

import time
from pathlib import Path
from shlex import quote

import click

from kprof_inject.analysis.program import Report
from kprof_inject.capture.encoding import json_text
from kprof_inject.capture.foreign import BufferDescription
from kprof_inject.cli.capture_lines import origin_line, print_json, say_next
from kprof_inject.cli.console import say, table_console
from kprof_inject.cli.options import PATH, harmless_setting, json_option, place_argument, require_place_for
from kprof_inject.cli.reading_options import buffer_options, launch_options, redact_option, scope_names_option
from kprof_inject.pipeline.captures import (
    decode_capture,
    experiments_at,
    last_profiled_capture,
    open_capture,
    report_on,
    with_launch_captured,
)
from kprof_inject.quantities import size_text
from kprof_inject.report.json_text import answer_schema, brief_text
from kprof_inject.report.terminal.screens import print_all, print_answers
from kprof_inject.timeline.choice import Choice


def _print_schema(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        click.echo(json_text(answer_schema()))
        ctx.exit()


@click.command("report")
@place_argument("WORKSPACE|CAPTURE|BUFFER")
@harmless_setting(
    "-v", "--verbose", is_flag=True, help="Show all details, of each kernel's median launch if several were captured."
)
@launch_options
@scope_names_option
@buffer_options
@json_option
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --json: only what matters most of one launch, as one line of at most N tokens of four characters.",
)
@click.option(
    "--html",
    "html_path",
    metavar="FILE",
    type=PATH,
    help="Also write the report as one HTML file, which any browser opens offline.",
)
@redact_option
@click.option(
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of an item that --json prints, and exit.",
)
def command(
    place: Path,
    verbose: bool,
    choice: Choice,
    names_path: Path | None,
    description: BufferDescription,
    as_json: bool,
    budget: int | None,
    html_path: Path | None,
    redact: bool,
) -> None:
    """Show what limits each launch, what to try, how far to trust the figures, and where a CTA's time goes.

    Reads a CAPTURE, a WORKSPACE (its last one), or a BUFFER: a file with Proton's host_buffer, or another profiler's
    that numpy.save wrote. A NAME.launch is repeated and captured first.

    --json prints everything about each kernel's median launch, with a row for each of its other launches; with
    --launch, everything about those launches alone.
    """
    require_place_for(html_path)
    if budget is not None and not as_json:
        raise click.UsageError("--budget needs --json.")
    launch, place = place, with_launch_captured(place, "last", say)
    capture = open_capture(place, names_path, description, redact=redact)
    is_kept = place == launch
    if is_kept and (origin := origin_line(capture, time.time_ns())):
        say(origin)
    if (folder := last_profiled_capture(place, capture)) is not None:
        say(f"what profile captured: kprof-inject report {quote(str(folder))}")
    experiments = experiments_at(place, say)
    is_chosen = choice.launches is not None
    shows_all = is_chosen and budget is None if as_json else verbose
    if shows_all or html_path is not None:
        report = Report.of(decode_capture(capture, say, choice), experiments, capture.launches)
    else:
        report = report_on(capture, experiments, say, choice)
    # Write the page before the tables, whose reader may close the pipe; print its address after them, where it is seen.
    written = ""
    if html_path is not None:
        from kprof_inject.report.html.document import write_html

        size = size_text(write_html(html_path, report))
        written = f"wrote {html_path} ({size}): open it in a browser: {html_path.resolve().as_uri()}"
    if budget is not None:
        click.echo(brief_text(report, budget))
    elif as_json:
        print_json(report, shown=report.launches if is_chosen else ())
    elif verbose:
        print_all(report, table_console())
    else:
        print_answers(report, table_console())
        if is_kept:
            say_next(place, report)
        else:
            say(f"keep the capture: kprof-inject profile -o WORKSPACE {quote(str(launch))}")
    if written:
        say(written)

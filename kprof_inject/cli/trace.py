"""``kprof-inject trace``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kprof_inject.cli.captures import axis_lines, decode_capture, loss_lines, open_shared
from kprof_inject.cli.console import say
from kprof_inject.cli.options import (
    TRACE_ENDINGS,
    choice_options,
    layout_for,
    layout_option,
    path_type,
    redact_option,
    scope_names_option,
)
from kprof_inject.export.registry import format_of, trace_writer, write_trace
from kprof_inject.quantities import size_text
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.choice import Choice
from kprof_inject.timeline.launches import run_to_write
from kprof_inject.timeline.timeline import Timeline


@click.command("trace")
@click.argument("place", metavar="WORKSPACE|CAPTURE|BUFFER", type=path_type())
@click.option(
    "-o",
    "--output",
    type=path_type(),
    help=f"The file; {TRACE_ENDINGS}. [default: trace.json in WORKSPACE or CAPTURE, or beside BUFFER]",
)
@choice_options
@layout_option
@scope_names_option
@redact_option
@click.pass_context
def command(
    ctx: click.Context,
    place: Path,
    output: Path | None,
    choice: Choice,
    layout: str | None,
    names_path: Path | None,
    redact: bool,
) -> None:
    """Decode a CAPTURE (or a WORKSPACE's last one, or a BUFFER: a file with Proton's host_buffer) and write a trace, or
    a table of its scopes."""
    output = output or (place.parent if place.is_file() else place) / "trace.json"
    layout = layout_for(ctx, output, layout)
    trace_writer(output, layout)
    timelines = decode_capture(open_shared(place, names_path, redact=redact), choice)
    for line in loss_lines(timelines):
        say(line)
    write_and_say(output, timelines, layout)


def write_and_say(path: Path, timelines: list[Timeline], layout: str | None = None) -> None:
    """Write the file and say how to read it."""
    size = write_trace(path, timelines, layout, run_to_write(timelines))
    scopes = sum(timeline.scope_count for timeline in timelines)
    say(f"wrote {path}: {len(timelines)} launch(es), {scopes} scopes, {size_text(size)}")
    written = format_of(path)
    if written.on_axis:
        for line in axis_lines(place_launches(timelines)):
            say(line)
    say(written.advice.format(file=shlex.quote(str(path))))

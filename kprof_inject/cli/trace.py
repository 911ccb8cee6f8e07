"""``kprof-inject trace``."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kprof_inject.capture.format import CLOCK_FILE
from kprof_inject.capture.proton_buffer import read_proton_buffer
from kprof_inject.capture.proton_header import is_proton_buffer
from kprof_inject.capture.proton_names import read_scope_names
from kprof_inject.capture.reader import Capture, is_capture, read_capture
from kprof_inject.cli.axis_lines import axis_lines
from kprof_inject.cli.console import say
from kprof_inject.cli.loss_lines import loss_lines
from kprof_inject.cli.options import TRACE_ENDINGS, path_type
from kprof_inject.cli.view_options import choice_options, layout_for, layout_option, scope_names_option
from kprof_inject.errors import KprofError
from kprof_inject.export.registry import format_of, trace_writer, write_trace
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.clocks.axis import place_launches
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.workspace import Workspace


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
@click.pass_context
def command(
    ctx: click.Context,
    place: Path,
    output: Path | None,
    choice: Choice,
    layout: str | None,
    names_path: Path | None,
) -> None:
    """Decode a CAPTURE (or a WORKSPACE's last one, or a BUFFER: a file with Proton's host_buffer) and write a trace, or
    a table of its scopes."""
    output = output or (place.parent if place.is_file() else place) / "trace.json"
    layout = layout_for(ctx, output, layout)
    trace_writer(output, layout)
    timelines = decode_capture(open_capture(place, names_path), choice)
    for line in loss_lines(timelines):
        say(line)
    write_and_say(output, timelines, layout)


def open_capture(place: Path, names_path: Path | None = None) -> Capture:
    """A capture's folder; a workspace: then its last capture; or a file with Proton's ``host_buffer``, for which
    ``names_path`` may have the names of its scopes. Raises ``KprofError`` for anything else."""
    if is_proton_buffer(place):
        return read_proton_buffer(place, read_scope_names(names_path) if names_path else None)
    if not place.exists():
        raise KprofError(f"{place} does not exist", hint="name a workspace, a capture, or a file with a Proton buffer")
    if not place.is_dir():
        raise KprofError(f"{place} is no Proton buffer", hint="save one: host_buffer.numpy().tofile(PATH)")
    if names_path is not None:
        raise KprofError(
            f"--scope-names is for a file with Proton's host_buffer, and {place} is none",
            hint="leave it out: a capture has the names of its scopes",
            exit_code=2,
        )
    return read_capture(place if is_capture(place) else Workspace.open(place).last_capture_folder())


def decode_capture(capture: Capture, choice: Choice = EVERYTHING) -> list[Timeline]:
    """Decode every launch that is chosen. One whose buffer is damaged is told of and passed over, unless none is
    left."""
    timelines: list[Timeline] = []
    failures: list[KprofError] = []
    for launch in choice.wanted(capture.launches):
        try:
            timelines.append(decode_launch(launch))
        except KprofError as error:
            failures.append(error)
            say(f"passed over a launch: {error}")
    _say_what_is_missing(capture)
    if not timelines:
        raise (
            failures[0]
            if failures
            else KprofError(f"{capture.folder} holds no launch", hint="capture again: kprof-inject run")
        )
    choice.require_ctas([timeline.ctas for timeline in timelines])
    if choice == EVERYTHING:
        return timelines
    parts = [timeline.chosen(choice) for timeline in timelines]
    return [part for part in parts if part.ctas.size or not choice.names_ctas]


def _say_what_is_missing(capture: Capture) -> None:
    for process in capture.processes:
        for reason, count in process.left_out.items():
            say(f"left out {count} launch(es) of process {process.pid}: {reason}")
        if process.damaged_readings:
            say(f"passed over {process.damaged_readings} damaged line(s) of {CLOCK_FILE} of process {process.pid}")
        if not process.ended:
            say(f"process {process.pid} was ended before it could finish its capture; this is what it had saved")


def write_and_say(path: Path, timelines: list[Timeline], layout: str | None = None) -> None:
    """Write the file and say how to read it."""
    size = write_trace(path, timelines, layout)
    scopes = sum(timeline.scope_count for timeline in timelines)
    say(f"wrote {path}: {len(timelines)} launch(es), {scopes} scopes, {size / 1e6:.1f} MB")
    written = format_of(path)
    if written.on_axis:
        for line in axis_lines(place_launches(timelines)):
            say(line)
    say(written.advice.format(file=shlex.quote(str(path))))

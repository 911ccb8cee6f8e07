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
from kprof_inject.cli.options import TRACE_ENDINGS, choice_options, path_type
from kprof_inject.errors import KprofError
from kprof_inject.export.drawing.tracks import LAYOUTS
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
@click.option(
    "--layout",
    type=click.Choice(list(LAYOUTS)),
    help="What a drawing has below each other: an SM's warps, a CTA's, or those that ran the same scope. [default: sm]",
)
@click.option(
    "--scope-names",
    "names_path",
    type=path_type(),
    metavar="FILE",
    help="For a BUFFER: what its scope ids are called; the kernel's .ttgir with its records, or JSON.",
)
def command(place: Path, output: Path | None, choice: Choice, layout: str | None, names_path: Path | None) -> None:
    """Decode a CAPTURE (or a WORKSPACE's last one, or a BUFFER: a file with Proton's host_buffer) and write a trace, or
    a table of its scopes."""
    output = output or (place.parent if place.is_file() else place) / "trace.json"
    trace_writer(output, layout)
    write_and_say(output, decode_capture(open_capture(place, names_path), choice), layout)


def open_capture(place: Path, names_path: Path | None = None) -> Capture:
    """A capture's folder; a workspace: then its last capture; or a file with Proton's ``host_buffer``, for which
    ``names_path`` may have the names of its scopes."""
    if is_proton_buffer(place):
        return read_proton_buffer(place, read_scope_names(names_path) if names_path else None)
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
    return [part for part in (timeline.chosen(choice) for timeline in timelines) if part.ctas.size]


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

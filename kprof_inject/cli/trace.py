"""``kprof-inject trace``."""

from __future__ import annotations

from pathlib import Path

import click

from kprof_inject.capture.format import CLOCK_FILE
from kprof_inject.capture.reader import Capture, is_capture, read_capture
from kprof_inject.cli.axis_lines import axis_lines
from kprof_inject.cli.console import say
from kprof_inject.cli.options import path_type
from kprof_inject.errors import KprofError
from kprof_inject.export.registry import trace_writer, write_trace
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.workspace import Workspace


@click.command("trace")
@click.argument("place", metavar="WORKSPACE|CAPTURE", type=path_type())
@click.option(
    "-o",
    "--output",
    type=path_type(),
    help="The trace file; its ending says the format: .json, .json.gz. [default: trace.json in WORKSPACE or CAPTURE]",
)
def command(place: Path, output: Path | None) -> None:
    """Decode a CAPTURE (or a WORKSPACE's last one) and write a trace."""
    output = output or place / "trace.json"
    trace_writer(output)
    write_and_say(output, decode_capture(open_capture(place)))


def open_capture(place: Path) -> Capture:
    """A capture's folder, or a workspace: then its last capture."""
    return read_capture(place if is_capture(place) else Workspace.open(place).last_capture_folder())


def decode_capture(capture: Capture) -> list[Timeline]:
    """Decode every launch. One whose buffer is damaged is told of and passed over, unless none is left."""
    timelines: list[Timeline] = []
    failures: list[KprofError] = []
    for launch in capture.launches:
        try:
            timelines.append(decode_launch(launch))
        except KprofError as error:
            failures.append(error)
            say(f"passed over a launch: {error}")
    for process in capture.processes:
        for reason, count in process.left_out.items():
            say(f"left out {count} launch(es) of process {process.pid}: {reason}")
        if process.damaged_readings:
            say(f"passed over {process.damaged_readings} damaged line(s) of {CLOCK_FILE} of process {process.pid}")
        if not process.ended:
            say(f"process {process.pid} was ended before it could finish its capture; this is what it had saved")
    if not timelines:
        raise (
            failures[0]
            if failures
            else KprofError(f"{capture.folder} holds no launch", hint="capture again: kprof-inject run")
        )
    return timelines


def write_and_say(path: Path, timelines: list[Timeline]) -> None:
    """Write the trace and say how to open it."""
    size = write_trace(path, timelines)
    scopes = sum(timeline.scope_count for timeline in timelines)
    say(f"wrote {path}: {len(timelines)} launch(es), {scopes} scopes, {size / 1e6:.1f} MB")
    for line in axis_lines(place_launches(timelines)):
        say(line)
    say("open it: drag the file onto https://ui.perfetto.dev (it stays in your browser)")

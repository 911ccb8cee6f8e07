"""Opens and decodes what a command is to show."""

from __future__ import annotations

from pathlib import Path

from kprof_inject.capture.proton_buffer import read_proton_buffer
from kprof_inject.capture.proton_header import is_proton_buffer
from kprof_inject.capture.proton_names import read_scope_names
from kprof_inject.capture.reader import Capture, is_capture, read_capture
from kprof_inject.capture.redaction import redacted
from kprof_inject.capture.schema import CLOCK_FILE
from kprof_inject.cli.console import say
from kprof_inject.errors import KprofError
from kprof_inject.export.registry import is_format
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.launches import decode_launches, run_to_decode
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.workspace import Workspace


def open_shared(place: Path, names_path: Path | None, *, redact: bool) -> Capture:
    """``open_capture`` for what others may get to see."""
    capture = open_capture(place, names_path)
    return redacted(capture) if redact else capture


def open_capture(place: Path, names_path: Path | None = None) -> Capture:
    """A capture's folder; a workspace: then its last capture; or a file with Proton's ``host_buffer``, for which
    ``names_path`` may have the names of its scopes. Raises ``KprofError`` for anything else."""
    if is_proton_buffer(place):
        return read_proton_buffer(place, read_scope_names(names_path) if names_path else None)
    if not place.exists():
        raise KprofError(f"{place} does not exist", hint="name a workspace, a capture, or a file with a Proton buffer")
    if not place.is_dir():
        raise KprofError(f"{place} is no Proton buffer", hint=_what_to_give(place))
    if names_path is not None:
        raise KprofError(
            f"--scope-names is for a file with Proton's host_buffer, and {place} is none",
            hint="leave it out: a capture has the names of its scopes",
            exit_code=2,
        )
    return read_capture(place if is_capture(place) else Workspace.open(place).last_capture_folder())


def _what_to_give(file: Path) -> str:
    if is_format(file):
        return "this is what a capture was written as; give the capture, or its workspace"
    return "save one: host_buffer.numpy().tofile(PATH)"


def decode_capture(capture: Capture, choice: Choice = EVERYTHING) -> list[Timeline]:
    """Decode every launch that is chosen. One whose buffer is damaged is told of and passed over, unless none is
    left."""
    timelines: list[Timeline] = []
    failures: list[KprofError] = []
    launches = choice.wanted(capture.launches)
    for decoded in decode_launches(launches, run_to_decode(launches)):
        if isinstance(decoded, Timeline):
            timelines.append(decoded)
        else:
            failures.append(decoded)
            say(f"passed over a launch: {decoded}")
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

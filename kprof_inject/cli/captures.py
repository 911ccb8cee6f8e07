"""Opens and decodes what a command is to show, and says what it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kprof_inject.capture.model import Capture, place_names, redacted
from kprof_inject.capture.proton_buffer import read_proton_buffer, read_scope_names
from kprof_inject.capture.proton_header import is_proton_buffer
from kprof_inject.capture.reader import is_capture, read_capture
from kprof_inject.capture.schema import CLOCK_FILE
from kprof_inject.cli.console import say
from kprof_inject.errors import KprofError
from kprof_inject.export.registry import is_format
from kprof_inject.quantities import counted, time_text
from kprof_inject.timeline.axis import PlacedLaunch
from kprof_inject.timeline.choice import EVERYTHING, Choice
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.launches import decode_launches, run_to_decode
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.workspace import Workspace

# Opens and decodes what a command is to show.


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


# What is said of launches that lack something, whatever is made of them.

_MOST_LAUNCHES = 20


def loss_lines(timelines: Sequence[Timeline]) -> Iterator[str]:
    """A line for each launch of which records or CTAs are missing; of very many, for the first alone. They tell of the
    whole launch, also where a part of it was chosen."""
    names = place_names(timeline.launch.place for timeline in timelines)
    lacking = [(timeline, missing) for timeline in timelines if (missing := list(_missing(timeline)))]
    for timeline, missing in lacking[:_MOST_LAUNCHES]:
        launch = timeline.launch
        place = f"{names[launch.place]}: " if names[launch.place] else ""
        yield f"{place}{launch.kernel.name}, launch {launch.index}: {'; '.join(missing)}"
    if len(lacking) > _MOST_LAUNCHES:
        yield f"{len(lacking) - _MOST_LAUNCHES} more launch(es) lack something"


def _missing(timeline: Timeline) -> Iterator[str]:
    if timeline.records_lost:
        yield f"{timeline.records_lost} of {counted(timeline.records_written, 'record')} lost"
    if unpaired := int(timeline.open_starts.sum() + timeline.stray_ends.sum()):
        yield counted(unpaired, "unpaired record")
    if timeline.records_damaged:
        yield counted(timeline.records_damaged, "damaged record")
    if timeline.ctas_never_ran:
        yield f"{counted(timeline.ctas_never_ran, 'CTA')} never ran"
    if timeline.ctas_damaged:
        yield f"{counted(timeline.ctas_damaged, 'damaged CTA')} left out"


# What is said of a trace's axes: whose times can be compared, and how well.

_MOST_NAMES = 4


def axis_lines(launches: Sequence[PlacedLaunch]) -> Iterator[str]:
    """Nothing of launches of one process and device; else one line, and where devices could not be brought onto one
    axis, one more for each axis."""
    if not any(launch.place_name for launch in launches):
        return
    axes: dict[int, list[PlacedLaunch]] = {}
    for launch in launches:
        axes.setdefault(launch.clock.axis.number, []).append(launch)
    if len(axes) == 1:
        yield f"{_crowd(launches)} on one axis, {_error(launches[0])}"
        yield from _doubts(launches)
        return
    yield (
        f"{_crowd(launches)} on {len(axes)} axes. Each starts at a zero of its own: "
        "where launches of different axes stand to each other is not known"
    )
    for members in axes.values():
        names = list(dict.fromkeys(launch.place_name for launch in members))
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        clock = members[0].clock
        what = clock.alignment if clock.relation is None else _error(members[0])
        yield f"axis {clock.axis.number}: {'; '.join(names[:_MOST_NAMES])}{more}: {what}"
        yield from _doubts(members)


def _crowd(launches: Sequence[PlacedLaunch]) -> str:
    places = {launch.timeline.launch.place for launch in launches}
    processes = {(place.host, place.rank, place.pid) for place in places}
    if len(processes) == 1:
        return f"{len(places)} devices"
    ranks = {place.rank for place in places}
    noun = "ranks" if None not in ranks and len(ranks) == len(processes) else "processes"
    devices = f" with {len(places)} devices" if len(places) > len(processes) else ""
    return f"{len(processes)} {noun}{devices}"


def _error(launch: PlacedLaunch) -> str:
    axis = launch.clock.axis
    return (
        f"within ± {time_text(axis.error_ns)}" if axis.devices > 1 else "the globaltimer of the device that they share"
    )


def _doubts(launches: Sequence[PlacedLaunch]) -> Iterator[str]:
    """What the error of an axis does not say, or why it is so large."""
    # Their clock is an assumption, and they may have waited on the device for longer than any error here.
    shown = [launch.timeline for launch in launches if launch.timeline.scope_count]
    if untimed := sum(timeline.clock.source == ClockSource.NOMINAL for timeline in shown):
        yield f"{untimed} launch(es) without timer readings stand where the host called them; no error holds for them"
    contradicted = (
        launch.place_name for launch in launches if launch.clock.relation and launch.clock.relation.contradicted
    )
    for name in dict.fromkeys(contradicted):
        yield f"{name}: its readings of the host's clock contradict each other; the error was widened until they agree"

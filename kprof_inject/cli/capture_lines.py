"""Lines that commands print about a capture: its origin, losses, trace and reports, and the next commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from kprof_inject.analysis.launch import ReportLaunch
from kprof_inject.analysis.program import Report, glob_of
from kprof_inject.capture.edits import EditsRecord
from kprof_inject.capture.encoding import json_text
from kprof_inject.capture.model import Capture, place_names
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.cli.console import is_a_step, say, table_console
from kprof_inject.export.formats import TraceFile
from kprof_inject.pipeline.captures import run_to_write
from kprof_inject.quantities import age_text, counted, listed, size_text, time_text
from kprof_inject.report.experiments import tried_values
from kprof_inject.report.json_text import whole_text
from kprof_inject.report.terminal.evidence_tables import print_edits
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.choice import EVERYTHING, Choice, NumberSet
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import is_workspace, workspace_argument, workspace_option

_MAX_LAUNCHES = 20
_MAX_NAMES = 4
_MAX_DRAWN = 200_000
"""Maximum number of scopes in a timeline whose CTAs the user did not choose: some 60 MB of Chrome's JSON.

A scope takes 280 to 360 bytes there, and 84 to 102 of Perfetto's packets, in the captures of the demo and the tests.
"""
# Most browsers limit a page to 2 GB (perfetto.dev/docs/visualization/large-traces); in either format, Perfetto's engine
# took 0.5 GB for a million scopes.
_MAX_IN_BROWSER = 3_000_000


def write_and_say(trace: TraceFile, timelines: Sequence[Timeline], choice: Choice = EVERYTHING) -> None:
    """Write the trace, and print its size and how to open it.

    A timeline that is too large for a browser gets only some CTAs, unless ``choice`` names a part of them.
    """
    if trace.format.is_drawing and not (choice.names_ctas or choice.warps or choice.scopes):
        timelines, left_out = drawn_part(timelines)
        if left_out:
            say(left_out)
    size = trace.write(timelines, run_to_write(timelines))
    scopes = sum(timeline.scope_count for timeline in timelines)
    say(f"wrote {trace.path}: {counted(len(timelines), 'launch')}, {counted(scopes, 'scope')}, {size_text(size)}")
    drawn = timelines if trace.format.is_drawing else ()
    advice = trace.format.advice.format(file=shlex.quote(str(trace.path)))
    for line in (*axis_lines(place_launches(drawn)), advice, *browser_lines(drawn)):
        say(line)


def drawn_part(timelines: Sequence[Timeline]) -> tuple[Sequence[Timeline], str]:
    """Return the launches with as many CTAs as a browser can draw, and a line about the others.

    Each launch keeps the same part of its CTAs, at least one, and all of an SM before the next one's.
    """
    part = _MAX_DRAWN / max(sum(timeline.scope_count for timeline in timelines), 1)
    if part >= 1:
        return timelines, ""
    drawn = []
    for timeline in timelines:
        by_sm = sorted(timeline.ctas[["sm", "init_ns", "cta"]].tolist())
        kept = NumberSet.of(cta for _, _, cta in by_sm[: max(int(part * len(by_sm)), 1)])
        drawn.append(timeline.chosen(Choice(ctas=kept)))
    counts = [sum(len(one.ctas) for one in found) for found in (drawn, timelines)]
    return drawn, (
        f"the timeline has {counts[0]:,} of {counts[1]:,} recorded CTAs, those of the first SMs, to open fast in a "
        "browser; all of them: kprof-inject trace --cta 0-"
    )


def browser_lines(timelines: Sequence[Timeline]) -> Iterator[str]:
    """Yield a warning if a trace with all scopes of these launches is too large for a browser."""
    if sum(timeline.scope_count for timeline in timelines) > _MAX_IN_BROWSER:
        yield "too large for most browsers, which stop at about 4 million scopes; write a part of it:"
        yield "  kprof-inject trace with --kernel, --launch, --sm, --cta, --warp or --scope"


def origin_line(capture: Capture, now_ns: int) -> str:
    """Return the folder, program, age and maker of a capture; empty if neither program nor age is known."""
    argv = next((process.argv for process in capture.processes if process.argv), ())
    captured_ns = max((launch.host_ns for launch in capture.launches), default=0)
    facts = [shlex.join(argv)] if argv else []
    if captured_ns:
        maker = f" by {capture.made_by}" if capture.made_by else ""
        facts.append(f"captured {age_text((now_ns - captured_ns) / 1e9)}{maker}")
    return f"{capture.folder}: {', '.join(facts)}" if facts else ""


def loss_lines(timelines: Sequence[Timeline]) -> Iterator[str]:
    """Yield a line for each of the first launches that lack records or CTAs, and the number of the others.

    The figures are of the whole launch, even if only a part of it is chosen.
    """
    names = place_names(timeline.launch.place for timeline in timelines)
    lacking = [(timeline, missing) for timeline in timelines if (missing := list(_missing(timeline)))]
    for timeline, missing in lacking[:_MAX_LAUNCHES]:
        launch = timeline.launch
        place = f"{names[launch.place]}: " if names[launch.place] else ""
        yield f"{place}{launch.kernel.name}, launch {launch.index}: {'; '.join(missing)}"
    if len(lacking) > _MAX_LAUNCHES:
        yield f"records are also missing from {counted(len(lacking) - _MAX_LAUNCHES, 'more launch')}"


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
    if 0 < (unknown := int((timeline.ctas["sm"] < 0).sum())) < len(timeline.ctas):
        yield f"the SM of {counted(unknown, 'CTA')} is unknown"


def axis_lines(launches: Sequence[PlacedLaunch]) -> Iterator[str]:
    """Yield how exactly launches of several processes or devices are aligned, with a line for each of several axes."""
    if not any(launch.place_name for launch in launches):
        return
    axes: dict[int, list[PlacedLaunch]] = {}
    for launch in launches:
        axes.setdefault(launch.clock.axis.number, []).append(launch)
    if len(axes) == 1:
        yield f"{_origins(launches)} on one axis, {_error(launches[0])}"
        yield from _doubts(launches)
        return
    yield (
        f"{_origins(launches)} on {len(axes)} axes. Each starts at its own zero: the time between launches on "
        "different axes is unknown"
    )
    for members in axes.values():
        names = list(dict.fromkeys(launch.place_name for launch in members))
        clock = members[0].clock
        what = clock.alignment if clock.axis.devices == 1 else _error(members[0])
        yield f"axis {clock.axis.number}: {listed(names, _MAX_NAMES, '; ')}: {what}"
        yield from _doubts(members)


def _origins(launches: Sequence[PlacedLaunch]) -> str:
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
    exactly = f"within ± {time_text(axis.error_ns)}"
    return exactly if axis.devices > 1 else "the globaltimer of the device that they share"


def _doubts(launches: Sequence[PlacedLaunch]) -> Iterator[str]:
    # Their clock rate is assumed, and they may have waited on the device for longer than any error here.
    shown = [launch.timeline for launch in launches if launch.timeline.scope_count]
    if untimed := sum(timeline.clock.source == ClockSource.NOMINAL for timeline in shown):
        without = f"{counted(untimed, 'launch')} without timer readings"
        yield f"{without}: placed at the host's call, with an unknown error"
    contradicted = (
        launch.place_name for launch in launches if launch.clock.relation and launch.clock.relation.contradicted
    )
    for name in dict.fromkeys(contradicted):
        yield f"{name}: its readings of the host's clock contradict each other; the error was widened until they agree"


def print_json(report: Report, shown: Sequence[ReportLaunch] = ()) -> None:
    """Print the ``shown`` launches as JSON, by default each kernel's median launch, with rows of the others."""
    for part in whole_text(report, shown):
        click.echo(part, nl=False)


def print_tried(workspace: Workspace, records: Sequence[EditsRecord], *, as_json: bool) -> None:
    """Print the results of ``try``."""
    tried = [(record, workspace.applied_edits(record.variant)) for record in records]
    if as_json:
        click.echo(json_text(tried_values(tried)))
        return
    print_edits(tried, table_console())
    folders = [str(workspace.edits_folder(record.variant)) for record, applied in tried if applied]
    if folders:
        say(f"wrote {', '.join(folders)}")


def say_next(place: Path, report: Report, program: str = "-- PROG") -> None:
    """Print the next commands after a report of this place; ``program`` is what they run."""
    if is_a_step():
        return
    if any(one.launch.recorded is not None for one in report.launches):
        say("more: report -v, or --html FILE; timeline: trace")
        return
    where = workspace_argument(place)
    kernels = report.program.kernels
    if len(kernels) > 1:
        say(f"one kernel: kprof-inject report{where} --kernel {shlex.quote(kernels[0].name)}")
    say(f"more: kprof-inject report{where} -v, or --html FILE; timeline: kprof-inject trace{where} --open")
    if len(kernels) == 1:
        steps = []
        in_workspace = is_workspace(place)
        scopes = (scope for one in report.launches for scope in one.launch.kernel.scopes.scopes)
        polls = any(scope.kind == ScopeKind.SPIN for scope in scopes)
        # Ranks that wait for each other cannot be repeated alone.
        if not (polls and len({one.launch.place for one in report.launches}) > 1):
            glob = glob_of(kernels[0], report)
            kernel = f" --kernel {shlex.quote(glob)}" if glob else ""
            option = workspace_option(place) if in_workspace else ""
            steps.append(f"what matters: kprof-inject causal{option}{kernel} {program}")
        if in_workspace and len(Workspace(place).capture_folders()) > 1:
            steps.append(f"what changed: kprof-inject diff{where}")
        if steps:
            say("; ".join(steps))

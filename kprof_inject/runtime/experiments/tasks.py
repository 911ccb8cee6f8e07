"""Tasks for a process of ours, which does them with saved launches; they and their results are files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.edits import MeasuredGain, Results
from kprof_inject.capture.encoding import decode, encode, read_json
from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.capture.measurements import L2Contents, MeasurementsRecord
from kprof_inject.capture.resources import PairedTimesRecord, Resources
from kprof_inject.capture.schema import MAX_TEXT_BYTES, DurationNs, Grid, Name, Text
from kprof_inject.files import read_regular, write_bytes

TASKS_FILE = "tasks.json"
MAX_TIMES = 1 << 16
"""Maximum number of launches in a task."""
ADDRESS_TAKEN = 75
"""Exit code of the process if something of its own is at an address of a launch: EX_TEMPFAIL of sysexits.h."""


class TimeRecords(Struct, frozen=True, tag="records", kw_only=True):
    """Time a saved launch without records and with them.

    ``build`` is the folder of the build with records, ``kernel`` its record in the capture. ``times`` is the number of
    pairs; if it is None, as many as ``seconds`` allow.
    """

    launch: Text
    build: Text
    kernel: KernelRecord
    seconds: float
    times: int | None = None


class TimeDelays(Struct, frozen=True, tag="delays", kw_only=True):
    """Time a saved launch with each delay of a plan, whose builds are in ``builds``; the result goes to ``folder``."""

    launch: Text
    plan: DelaysRecord
    builds: Text
    seconds: float
    folder: Text


class TimeEdits(Struct, frozen=True, tag="edits", kw_only=True):
    """Time a saved launch with each of the builds of its edited kernel, whose folders are ``builds``.

    A build is launched with its grid of ``grids``; None is the launch's. Floating-point results may differ by
    ``tolerance``; None is the default of their type.
    """

    launch: Text
    builds: tuple[Text, ...]
    grids: tuple[Grid | None, ...]
    seconds: float
    tolerance: float | None = None


class CaptureLaunch(Struct, frozen=True, tag="capture", kw_only=True):
    """Launch a saved launch ``times`` times with the records that are planned in the session's workspace."""

    launch: Text
    session: Text
    times: Annotated[int, Meta(ge=1, le=MAX_TIMES)] = 4


class CountLaunch(Struct, frozen=True, tag="count", kw_only=True):
    """Count ``metrics`` of a saved launch without records."""

    launch: Text
    metrics: tuple[Name, ...]


class SampleLaunch(Struct, frozen=True, tag="sample", kw_only=True):
    """Sample the warps of a saved launch without records.

    CUPTI takes 0.2 s to change between counting and sampling, so a process first counts all launches.
    """

    launch: Text


Task = TimeRecords | TimeDelays | TimeEdits | CaptureLaunch | CountLaunch | SampleLaunch


class TimedBuild(Struct, frozen=True, kw_only=True):
    """Result of a build of ``TimeEdits``, whose fields are those of ``TriedEdits``."""

    gain: MeasuredGain | None = None
    results: Results = ""
    difference: float | None = None
    refusal: Text = ""
    resources: Resources | None = None


class TimedEdits(Struct, frozen=True, kw_only=True):
    """Result of ``TimeEdits``: its builds in their order, and the unchanged kernel as in ``EditsRecord``."""

    builds: tuple[TimedBuild, ...]
    clean_ns: DurationNs
    clean: Resources
    launches: int = 1
    restored: bool = False
    is_repeatable: bool = True
    changes_memory: bool = True


class TaskResult(Struct, frozen=True, kw_only=True):
    """Result of one task: what it measured, or the reason why there is nothing.

    ``l2`` is what the L2 held when each launch of ``CaptureLaunch`` began.
    """

    refusal: Text = ""
    seconds: float = 0.0
    l2: L2Contents = "left"
    replay: PairedTimesRecord | None = None
    edits: TimedEdits | None = None
    measurements: MeasurementsRecord | None = None


def write_tasks(folder: Path, tasks: tuple[Task, ...]) -> None:
    """Write the tasks for a process of ours."""
    write_bytes(folder / TASKS_FILE, encode(tasks))


def read_tasks(folder: Path) -> tuple[Task, ...]:
    """Read the tasks of this process."""
    return decode(read_regular(folder / TASKS_FILE, MAX_TEXT_BYTES, folder), tuple[Task, ...], str(folder / TASKS_FILE))


def write_result(folder: Path, number: int, result: TaskResult) -> None:
    """Write the result of a task."""
    write_bytes(_result_path(folder, number), encode(result))


def read_result(folder: Path, number: int) -> TaskResult | None:
    """Read the result of a task; None if there is none."""
    path = _result_path(folder, number)
    return decode(read_json(path, folder), TaskResult, str(path)) if path.exists() else None


def _result_path(folder: Path, number: int) -> Path:
    return folder / f"result-{number:04d}.json"

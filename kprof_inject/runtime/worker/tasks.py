"""Tasks for a worker, which does them with saved launches, and their results."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.edits import MIN_WIN, MeasuredGain, Results
from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.capture.measurements import L2Contents, MeasurementsRecord
from kprof_inject.capture.resources import PairedTimesRecord, Resources
from kprof_inject.capture.schema import DurationNs, Grid, Name, Text

MAX_TIMES = 1 << 16  # maximum number of launches in a task
ADDRESS_TAKEN = "something else is at its addresses"
"""Refusal if something of the worker's own is at an address of a launch: another worker may succeed."""


class TimeRecords(Struct, frozen=True, kw_only=True):
    """Time a saved launch without records and with them.

    ``build`` is the folder of the build with records, ``kernel`` its record in the capture. ``times`` is the number of
    pairs; if it is None, as many as ``seconds`` allow.
    """

    launch: Text
    build: Text
    kernel: KernelRecord
    seconds: float
    times: int | None = None


class TimeDelays(Struct, frozen=True, kw_only=True):
    """Time a saved launch with each delay of a plan, whose builds are in ``builds``; write the result to ``folder``."""

    launch: Text
    plan: DelaysRecord
    builds: Text
    seconds: float
    folder: Text


class TimeEdit(Struct, frozen=True, kw_only=True):
    """Time a saved launch with the build of its edited kernel in the folder ``build``; without one, unchanged.

    The build is launched with ``grid`` (None: the launch's). Floating-point results may differ by ``tolerance`` (None:
    the default of their type). ``best`` is the time of the best edit so far, relative to the unchanged kernel's: the
    gain of a slower one need not be precise.
    """

    launch: Text
    build: Text = ""
    grid: Grid | None = None
    seconds: float
    tolerance: float | None = None
    best: float = 1 - MIN_WIN


class CaptureLaunch(Struct, frozen=True, kw_only=True):
    """Launch a saved launch ``times`` times with the records that are planned in the session's workspace."""

    launch: Text
    session: Text
    times: Annotated[int, Meta(ge=1, le=MAX_TIMES)] = 4


class CountLaunch(Struct, frozen=True, kw_only=True):
    """Count ``metrics`` of a saved launch without records."""

    launch: Text
    metrics: tuple[Name, ...]


class SampleLaunch(Struct, frozen=True, kw_only=True):
    """Sample the warps of a saved launch without records.

    CUPTI takes 0.2 s to change between counting and sampling, so a process first counts all launches.
    """

    launch: Text


Task = TimeRecords | TimeDelays | TimeEdit | CaptureLaunch | CountLaunch | SampleLaunch


class TimedBuild(Struct, frozen=True, kw_only=True):
    """Result of the build of ``TimeEdit``, whose fields are those of ``TriedEdits``."""

    gain: MeasuredGain | None = None
    results: Results = ""
    difference: float | None = None
    refusal: Text = ""
    resources: Resources | None = None


class TimedEdit(Struct, frozen=True, kw_only=True):
    """Result of ``TimeEdit``: its build, and the unchanged kernel as in ``EditsRecord``."""

    build: TimedBuild = TimedBuild()
    clean_ns: DurationNs
    clean: Resources
    launches: int = 1
    restored: bool = False
    is_repeatable: bool = True
    changes_memory: bool = True


class TaskResult(Struct, frozen=True, kw_only=True):
    """Result of one task: what it measured, or the reason why there is nothing.

    ``l2`` is what the L2 held when each launch of ``CaptureLaunch`` began. After ``is_last``, nothing more works in the
    worker.
    """

    refusal: Text = ""
    seconds: float = 0.0
    l2: L2Contents = "left"
    replay: PairedTimesRecord | None = None
    edit: TimedEdit | None = None
    measurements: MeasurementsRecord | None = None
    is_last: bool = False

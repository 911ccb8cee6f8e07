"""Time the builds of an edited kernel, each between launches of the unchanged one, and compare their results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from kprof_inject.capture.edits import MIN_PAIRS, MIN_WIN, MeasuredGain
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.saved_launch import DescriptorArgument, SavedArgument, SavedLaunch, parameters, pointers_in
from kprof_inject.capture.schema import TTGIR_FILE, Grid
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.runtime.compiling.builds import BuildSource, load
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.experiments.close_results import DEFAULT_TOLERANCES, CloseResults
from kprof_inject.runtime.experiments.loaded_launch import LoadedLaunch, MappingDevice
from kprof_inject.runtime.experiments.paired_launches import LaunchPairs, PairedLaunches
from kprof_inject.runtime.experiments.tasks import TimedBuild, TimedEdits, TimeEdits
from kprof_inject.runtime.faults import first_line
from kprof_inject.select.safety import relaunch, written_arguments
from kprof_inject.ttgir.parser import parse

_MAX_ROUNDS = 3000
# Half of an interval. To know the gains of near ties to 0.15 % took 450 pairs of a kernel of 0.1 ms (H100).
_PRECISE = 0.0025
# In all floating-point types with a tolerance, these bytes are NaN. Another number might be within the tolerance.
_UNWRITTEN_FLOAT = 0xFF
# No integer that a kernel computes is likely to have these bytes.
_UNWRITTEN = 0xA5
_WRITTEN_BYTES = 16 << 20


def load_builds(folders: Sequence[str], grids: Sequence[Grid | None], saved: SavedLaunch) -> Iterator[tuple[Any, str]]:
    """Yield the build in each folder, loaded, or None and the reason why it does not load.

    A build with a grid is launched with that, whatever grid it is given.
    """
    for folder, grid in zip(folders, grids, strict=True):
        try:
            kernel = load(Path(folder), BuildSource.of(saved.kernel))
            if grid is not None:
                kernel._run = partial(_launch_with, kernel._run, grid)
            yield kernel, ""
        except Exception as error:  # noqa: BLE001 (the driver's errors have no common base)
            yield None, f"it does not load: {first_line(error)}"


def _launch_with(launcher: Any, grid: Grid, *arguments: Any) -> None:
    launcher(*grid, *arguments[len(grid) :])


def time_edits(task: TimeEdits, launch: LoadedLaunch, launches: PairedLaunches, refusals: Sequence[str]) -> TimedEdits:
    """Time the variants of ``launches``, whose builds are the task's; ``refusals`` has the reasons against some."""
    results = CloseResults(launches.device, launch.relaunch.stream, launch.memory, task.tolerance)
    launches.results = results
    timed = launches.run(time.monotonic() + task.seconds, _MAX_ROUNDS, _unsettled, MIN_PAIRS)
    builds = []
    for place, (kernel, refusal, pairs) in enumerate(zip(launches.variants, refusals, timed.pairs, strict=True)):
        if kernel is None or place in timed.refusals:
            builds.append(TimedBuild(refusal=refusal or timed.refusals[place], resources=_resources(kernel)))
            continue
        difference = results.differences.get(place)
        builds.append(
            TimedBuild(
                gain=gain_of(pairs),
                results="identical" if difference is None else "within",
                difference=difference,
                refusal="" if pairs.ns else "there was no time to launch it",
                resources=_resources(kernel),
            )
        )
    all_clean_ns = [ns for pairs in timed.pairs for ns in pairs.clean_ns]
    return TimedEdits(
        builds=tuple(builds),
        clean_ns=statistics.median(all_clean_ns) if all_clean_ns else launches.clean_ns,
        clean=Resources(**resources_of(launches.clean)),
        launches=timed.launches,
        is_restored=timed.restored,
        is_repeatable=timed.is_repeatable,
        changes_memory=results.changes_memory,
    )


def _resources(kernel: Any) -> Resources | None:
    return None if kernel is None else Resources(**resources_of(kernel))


def gain_of(pairs: LaunchPairs) -> MeasuredGain | None:
    """Return the gain that pairs of launches show; None if they are too few."""
    if len(pairs.ns) < MIN_PAIRS:
        return None
    low, middle, high = pairs.interval
    return MeasuredGain(won=1 - middle, low=1 - high, high=1 - low, pairs=len(pairs.ns))


def _unsettled(pairs: Sequence[LaunchPairs]) -> list[int]:
    """Return the builds that may be the best, and win, whose gains are not known well enough."""
    intervals = [one.interval for one in pairs]
    best = min((1 - MIN_WIN, *(high for _, _, high in intervals)))
    return [
        place
        for place, (one, (low, _, _)) in enumerate(zip(pairs, intervals, strict=True))
        if low <= best and one.error > _PRECISE
    ]


def overwrite_outputs(device: MappingDevice, launch: LoadedLaunch) -> None:
    """Overwrite the memory that the kernel only writes to, before anything is launched.

    A program that launches a kernel repeatedly has the right results there already, so a variant that leaves some of
    them out would not be noticed.
    """
    for number in outputs_of(launch.saved):
        record, copy = launch.memory.copies[number]
        unwritten = _UNWRITTEN_FLOAT if record.element in DEFAULT_TOLERANCES else _UNWRITTEN
        for offset in range(0, record.size_bytes, _WRITTEN_BYTES):
            size_bytes = min(_WRITTEN_BYTES, record.size_bytes - offset)
            device.write(copy + offset, bytes([unwritten]) * size_bytes)


def outputs_of(saved: SavedLaunch) -> list[int]:
    """Return the numbers of the memory ranges that the kernel only writes to, as far as its TTGIR shows.

    There are none if the kernel makes pointers of integers, or reads some from memory: these may lead anywhere.
    """
    path = saved.folder / TTGIR_FILE
    try:
        module = parse(read_text(path), str(path))
    except KprofError:
        return []
    is_written = [] if relaunch(module).refusal else written_arguments(module)
    named = zip(parameters(saved), saved.record.arguments, strict=True)
    passed = [argument for (_, kind), argument in named if kind != "constexpr"]
    counts = [_compiled_arguments(argument) for argument in passed]
    if sum(counts) != len(is_written):
        return []  # such as a tuple, which is several arguments of the compiled kernel
    written, others = set[int](), set[int]()
    for argument, begin in zip(passed, accumulate(counts[:-1], initial=0), strict=True):
        for pointer in pointers_in([argument]):
            at, memory = pointer.address, enumerate(saved.record.memory)
            ranges = [number for number, one in memory if one.address <= at < one.end]
            (written if is_written[begin] else others).update(ranges)
    return sorted(written - others)


def _compiled_arguments(argument: SavedArgument) -> int:
    """Return how many arguments of the compiled kernel one of the program is; descriptors have shapes and strides."""
    if not isinstance(argument, DescriptorArgument):
        return 1
    shape = argument.fields.get("shape")
    return 1 + 2 * len(shape) if isinstance(shape, tuple) else 1

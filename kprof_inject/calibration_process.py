"""Measure the cost of a record on a device of this process, by profiling a kernel of our own.

``python -m kprof_inject.calibration_process FOLDER`` measures the cost that a folder requests, and writes it there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kprof_inject.api import profile
from kprof_inject.calibration import CostRequest, write_result
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import CostKey, MeasuredCost
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline

BUFFER_BYTES = 8192
"""Large enough for all records of the kernel in the ring of each of its warps."""

Gaps = NDArray[np.int64]
"""Cycles from one record of a warp to the next, at one place in the kernel's code, of all warps and all rounds."""


def measure(folder: Path, device_name: str, device_uuid: str, mode: Mode) -> MeasuredCost:
    """Measure the cost in this process; see ``record`` for the arguments.

    Raises ``KprofError`` if the device is absent or the kernel cannot be recorded.
    """
    timelines = record(folder, device_name, device_uuid, mode)
    # Imported here because it imports Triton.
    from kprof_inject.runtime.calibration_kernel import triton_version

    return cost_in(timelines, CostKey.of(device_name, triton_version(), mode))


def record(folder: Path, device_name: str, device_uuid: str, mode: Mode) -> list[Timeline]:
    """Launch our kernel on the device with this UUID, or if it is empty on one of this name, and return the timelines.

    Of ``mode``, only what decides the cost counts (see ``CostKey``). ``folder`` is that of the profile: empty, new, or
    a workspace. Raises as ``measure`` does.
    """
    from kprof_inject.runtime.calibration_kernel import NUM_WARPS, calibration_kernel, launch_on

    warps = tuple(range(NUM_WARPS)) if mode.warps else ()
    recorded = Mode(mode.buffer, BUFFER_BYTES, mode.clock_bits, warps, mode.sched_stores)
    name = calibration_kernel.__name__
    with profile(["marker"], kernel=name, launches="all", mode=recorded, replay=0, folder=folder) as prof:
        launch_on(device_name, device_uuid)
    _ = prof.timeline  # says why there is none
    return list(prof.timelines)


def cost_in(timelines: Sequence[Timeline], key: CostKey) -> MeasuredCost:
    """Compute the cost from the launches of our kernel; raises ``KprofError`` if records are missing."""
    loop, straight = _gaps(timelines, "loop_"), _gaps(timelines, "straight_")
    in_loop, outside = _medians(loop), _medians(straight)
    after_start, after_end = float(np.mean(in_loop[::2])), float(np.mean(in_loop[1::2]))
    # If records cost next to nothing, the difference may be negative.
    next_to_work = [max(cycles, 0.0) for cycles in costs_next_to_work(timelines)]
    quartiles = [np.percentile(gaps, (25, 75)) for gaps in (*loop, *straight)]
    return MeasuredCost(
        **asdict(key),
        cycles=(after_start + after_end) / 2,
        after_start_cycles=after_start,
        after_end_cycles=after_end,
        after_start_beside_work_cycles=next_to_work[0],
        after_end_beside_work_cycles=next_to_work[1],
        straight_cycles=float(np.mean(outside)),
        spread_cycles=float(np.mean([high - low for low, high in quartiles])),
        samples=sum(len(gaps) for gaps in (*loop, *straight)),
    )


def costs_next_to_work(timelines: Sequence[Timeline]) -> tuple[float, float]:
    """Return the cost of a start and of an end that work follows, in cycles; may be negative.

    It is twice the distance to the next record with some work in between, less the distance with twice the work. Raises
    ``KprofError`` if records are missing.
    """
    once_from_start, once_from_end, twice_from_start, twice_from_end, _ = _medians(_gaps(timelines, "work_"))
    return 2 * once_from_start - twice_from_start, 2 * once_from_end - twice_from_end


def _medians(places: Sequence[Gaps]) -> list[float]:
    """Return the median of each place, because warps that waited for instructions are outliers."""
    return [float(np.median(gaps)) for gaps in places]


def _gaps(timelines: Sequence[Timeline], prefix: str) -> list[Gaps]:
    """Return the gaps between the records of consecutive scopes whose names begin with ``prefix``.

    They are after the first scope's start, after its end, after the second one's start and so on.
    """
    launches = [_gaps_in(timeline, prefix) for timeline in timelines]
    return [np.concatenate(place) for place in zip(*launches, strict=True)]


def _gaps_in(timeline: Timeline, prefix: str) -> list[Gaps]:
    # Runs of one scope are ordered by CTA, warp and time, so that rows of several scopes correspond.
    names, scopes = [scope.name for scope in timeline.table.scopes], timeline.scopes
    row = [scopes[scopes["scope"] == index] for index, name in enumerate(names) if name.startswith(prefix)]
    if len({len(scope) for scope in row}) != 1 or not len(row[0]):
        raise KprofError("records of the calibration are missing")
    records = [scope[column] for scope in row for column in ("start_cycles", "end_cycles")]
    return [after - before for before, after in pairwise(records)]


def main(folder: Path) -> None:
    """Measure the request of ``folder``; exceptions other than ``KprofError`` are bugs, and end the process."""
    try:
        request = CostRequest.read(folder)
        _take_device(request)
        write_result(folder, measure(folder / "workspace", request.key.device_name, request.device_uuid, request.mode))
    except KprofError as error:
        write_result(folder, error)


def _take_device(request: CostRequest) -> None:
    """Use NVIDIA's driver alone, because importing torch takes seconds; other devices need torch."""
    # Imported here because it imports Triton.
    from kprof_inject.runtime.devices.own_process import device_of_own_process, has_nvidia_gpu
    from kprof_inject.runtime.devices.process_device import use_device

    if has_nvidia_gpu():
        use_device(device_of_own_process(request.key.device_name, request.device_uuid))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

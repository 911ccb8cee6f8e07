"""Measures what a record costs on a device of this process, by what a profile of a kernel of ours shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kprof_inject.api import profile
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import CostKey, MeasuredCost
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline

BUFFER_BYTES = 8192
"""All records of the kernel have room in the ring of each of its warps."""

Gaps = NDArray[np.int64]
"""Cycles from one record of a warp to the next, at one place in the kernel's code, of all warps and all rounds."""


def measure(folder: Path, device_name: str, device_uuid: str, mode: Mode) -> MeasuredCost:
    """Measure in this process; see ``record``. Raises ``KprofError`` if the device is not there or the kernel cannot be
    recorded."""
    timelines = record(folder, device_name, device_uuid, mode)
    # It imports Triton.
    from kprof_inject.runtime.calibration_kernel import triton_version

    return cost_in(timelines, CostKey.of(device_name, triton_version(), mode))


def record(folder: Path, device_name: str, device_uuid: str, mode: Mode) -> list[Timeline]:
    """Launches of our kernel on the device with this UUID, or if it is empty on one of this name. Of ``mode``, what
    decides the cost counts (see ``CostKey``). ``folder`` is that of the profile: empty, new, or a workspace. Raises as
    ``measure`` does."""
    from kprof_inject.runtime.calibration_kernel import NUM_WARPS, calibration_kernel, launch_on

    warps = tuple(range(NUM_WARPS)) if mode.warps else ()
    recorded = Mode(mode.buffer, BUFFER_BYTES, mode.clock_bits, warps, mode.sched_stores)
    name = calibration_kernel.__name__
    with profile(["marker"], kernel=name, launches="all", mode=recorded, folder=folder) as prof:
        launch_on(device_name, device_uuid)
    _ = prof.timeline  # says why there is none
    return list(prof.timelines)


def cost_in(timelines: Sequence[Timeline], key: CostKey) -> MeasuredCost:
    """What the launches of our kernel tell. Raises ``KprofError`` if records are missing."""
    loop, straight = _gaps(timelines, "loop_"), _gaps(timelines, "straight_")
    in_loop, outside = _medians(loop), _medians(straight)
    after_start, after_end = float(np.mean(in_loop[::2])), float(np.mean(in_loop[1::2]))
    # Where records cost next to nothing, what is left may lie on either side of it.
    beside_work = [max(cycles, 0.0) for cycles in beside_work_in(timelines)]
    quartiles = [np.percentile(gaps, (25, 75)) for gaps in (*loop, *straight)]
    return MeasuredCost(
        **asdict(key),
        cycles=(after_start + after_end) / 2,
        after_start_cycles=after_start,
        after_end_cycles=after_end,
        after_start_beside_work_cycles=beside_work[0],
        after_end_beside_work_cycles=beside_work[1],
        straight_cycles=float(np.mean(outside)),
        spread_cycles=float(np.mean([high - low for low, high in quartiles])),
        samples=sum(len(gaps) for gaps in (*loop, *straight)),
    )


def beside_work_in(timelines: Sequence[Timeline]) -> tuple[float, float]:
    """What a start and what an end costs where work stands behind it, in cycles, as it comes out: twice the distance to
    the next record with some work between, less the one with twice as much. Raises ``KprofError`` if records are
    missing."""
    once_from_start, once_from_end, twice_from_start, twice_from_end, _ = _medians(_gaps(timelines, "work_"))
    return 2 * once_from_start - twice_from_start, 2 * once_from_end - twice_from_end


def _medians(places: Sequence[Gaps]) -> list[float]:
    """A warp that waited for its instructions says nothing of records: of a place in the code, the median counts."""
    return [float(np.median(gaps)) for gaps in places]


def _gaps(timelines: Sequence[Timeline], prefix: str) -> list[Gaps]:
    """The gaps between the records of the scopes whose names begin so, which stand in a row: after the first one's
    start, after its end, after the second one's start and so on."""
    launches = [_gaps_in(timeline, prefix) for timeline in timelines]
    return [np.concatenate(place) for place in zip(*launches, strict=True)]


def _gaps_in(timeline: Timeline, prefix: str) -> list[Gaps]:
    # Those of one scope are ordered by CTA, warp and time, so that rows of several belong together.
    names, scopes = [scope.name for scope in timeline.table.scopes], timeline.scopes
    row = [scopes[scopes["scope"] == index] for index, name in enumerate(names) if name.startswith(prefix)]
    if len({len(scope) for scope in row}) != 1 or not len(row[0]):
        raise KprofError("records of the calibration are missing")
    records = [scope[column] for scope in row for column in ("start_cycles", "end_cycles")]
    return [after - before for before, after in pairwise(records)]

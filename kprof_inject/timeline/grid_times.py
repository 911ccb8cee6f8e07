"""Time of all launches of a kernel that the program launches with several grids."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from msgspec.structs import replace

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.schema import Grid, GridTimesRecord
from kprof_inject.timeline.trust import median_time_ns, usable_times


def time_of_grids_ns(kernel: Kernel) -> float | None:
    """Return the time of a kernel's launches in ns, without records and what launching takes; None if unknown.

    A grid of which no launch was timed is estimated from the one with the nearest number of CTAs.
    """
    times_ns = {one.grid: time_ns for one in kernel.grids if (time_ns := _time_ns(kernel, one)) is not None}
    if not times_ns and (time_ns := median_time_ns(kernel.clean.without_launching())) is not None:
        # Of the main grid, which comes first.
        times_ns[kernel.grids[0].grid] = time_ns
    if not times_ns:
        return None
    return sum(one.launches * _estimate_ns(times_ns, one.grid) for one in kernel.grids)


def _time_ns(kernel: Kernel, launches: GridTimesRecord) -> float | None:
    clean = replace(kernel.clean, times_ns=launches.clean_ns, replayed_ns=None).without_launching()
    times_ns = usable_times(clean.times_ns or ())
    return float(np.median(times_ns)) if times_ns.size else None


def _estimate_ns(times_ns: Mapping[Grid, float], grid: Grid) -> float:
    if grid in times_ns:
        return times_ns[grid]
    nearest = min(times_ns, key=lambda known: abs(np.log(prod(known) / prod(grid))))
    # More CTAs take longer in proportion at most; fewer may take as long, because one CTA does.
    return times_ns[nearest] * max(prod(grid) / prod(nearest), 1.0)

"""Launches of a Triton that reads no timer: nanoseconds from the cycles alone.

Each SM's counter has a zero of its own, far from the others'. But a device gives each SM its first CTA within 0.2 µs of
the others (H200), so their first records are taken to be at one time, the launch's begin.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kprof_inject.capture.layouts import RawCtas
from kprof_inject.capture.reader import Launch
from kprof_inject.timeline.clocks.clock import ClockFit, nominal_clock
from kprof_inject.timeline.clocks.readings import first_cycles
from kprof_inject.timeline.decoding.tally import WarpTally


def assumed_times(launch: Launch, ctas: RawCtas, warps: WarpTally) -> tuple[RawCtas, ClockFit]:
    """The launch's clock, and its CTAs with times by that clock: from the first record (reckoned, if the ring lost it)
    to the last. A CTA without records gets none: it begins and ends with the launch's begin."""
    begin_ns = _called_ns(launch)
    rows = np.flatnonzero(warps.kept.any(axis=1))
    reckoned, _ = first_cycles(ctas, warps)
    first = np.minimum(reckoned, warps.first_cycles.min(axis=1))[rows]
    last = warps.last_cycles.max(axis=1)[rows]
    clock = nominal_clock(ctas.sm[rows], first, launch.kernel.sm_clock_hz, begin_ns)
    init_ns, final_ns = np.full((2, len(ctas.sm)), begin_ns)
    init_ns[rows] = clock.to_ns(first, ctas.sm[rows])
    final_ns[rows] = clock.to_ns(last, ctas.sm[rows])
    return replace(ctas, init_ns=init_ns, pre_final_ns=final_ns, post_final_ns=final_ns), clock


def _called_ns(launch: Launch) -> int:
    """When the host had made the launch: by the device's globaltimer if the host read it too, else by its own clock."""
    readings = [reading for reading in launch.origin.host_readings if reading.device == launch.device]
    if not readings:
        return launch.host_ns
    nearest = min(readings, key=lambda reading: abs(reading.host_ns - launch.host_ns))
    return nearest.device_ns + launch.host_ns - nearest.host_ns

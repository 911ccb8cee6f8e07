"""Launches that are too short, or run below the nominal clock."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.roofs.unit_rates import FP32, TENSOR
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent, short_time
from kprof_inject.timeline.clock import ClockSource

# The clock rate follows the load; any busy device runs up to 10 % below nominal.
_MIN_THROTTLED = 0.10
# Units that draw much power, with the utilization over the launch from which they do.
_POWER_HUNGRY = {TENSOR: 0.3, FP32: 0.5}


def throttled(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield a clock well below nominal; needs a measured clock and the device's nominal one."""
    summary = evidence.summary
    if summary.clock_source != ClockSource.FITTED or summary.nominal_mhz is None:
        return
    share = 1 - summary.clock_mhz / summary.nominal_mhz
    if share - summary.clock_error < _MIN_THROTTLED:
        return
    roofs = evidence.speed_of_light.roofs
    hungry = any(roof.parts.get(unit, 0) >= least for roof in roofs[:1] for unit, least in _POWER_HUNGRY.items())
    why = "likely limited by power" if hungry else "possibly limited by power, or still ramping up after a pause"
    yield Finding(
        rule="throttled",
        scope=None,
        share=share,
        text=f"the SMs ran at {summary.clock_mhz:.0f} of {summary.nominal_mhz:.0f} MHz, {percent(share)} below "
        f"their nominal clock: {why}",
        advice="check the power limit, or move fewer bytes for the same result, which takes less power; compare "
        "variants by cycles, not by time",
        figures={"clock_mhz": summary.clock_mhz, "nominal_mhz": summary.nominal_mhz},
        likely=0.0,
    )


# Of a longer launch, the kernel itself leaves more to win.
_MIN_LAUNCHING = 0.25


def short_launch(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield a launch of which an empty one takes a notable part, whatever the kernel does."""
    if evidence.launch_times is None:
        return
    launch_ns, empty_ns = evidence.launch_times
    share = empty_ns / launch_ns
    if not _MIN_LAUNCHING <= share < 1:
        return
    yield Finding(
        rule="short-launch",
        scope=None,
        share=share,
        text=f"the launch is short: an empty one takes {short_time(empty_ns)} of its {short_time(launch_ns)} "
        f"({percent(share)})",
        advice="do its work in the kernel before or after it, or let one launch do the work of several",
        figures={"launch_ns": launch_ns, "empty_ns": empty_ns},
        likely=share / 2,  # the kernel that does the work takes longer
    )

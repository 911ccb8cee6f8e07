"""What a trace says of each launch beside what it shows."""

from __future__ import annotations

from typing import Any

from kprof_inject.timeline.clocks.axis import PlacedLaunch
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import judge


def launch_facts(placed: PlacedLaunch) -> dict[str, Any]:
    """Values of JSON, by name."""
    timeline = placed.timeline
    return {
        "kernel": timeline.launch.kernel.name,
        "variant": timeline.launch.kernel.variant,
        "launch": timeline.launch.index,
        "clock_mhz": round(timeline.clock.clock_hz / 1e6, 3),
        "clock_residual_ns": round(timeline.clock.residual_ns, 1),
        "clock_source": timeline.clock.source,
        **missing_facts(timeline),
        "trust": judge(timeline.launch.kernel).to_json(),
        **_place_facts(placed),
    }


def missing_facts(timeline: Timeline) -> dict[str, int]:
    """How many records and CTAs of the launch are not in what it shows, and how many records were written."""
    return {
        "records_written": timeline.records_written,
        "records_lost": timeline.records_lost,
        "records_damaged": timeline.records_damaged,
        "open_starts": int(timeline.open_starts.sum()),
        "stray_ends": int(timeline.stray_ends.sum()),
        "ctas_never_ran": timeline.ctas_never_ran,
        "ctas_damaged": timeline.ctas_damaged,
    }


def _place_facts(placed: PlacedLaunch) -> dict[str, Any]:
    """Of which process and device a launch is, and what the times of that device's launches are worth against those
    of others. Launches with the same ``axis`` can be compared, within their two errors. Where there is a drift, the
    offset is that of the first reading."""
    if not placed.place_name:
        return {}
    launch, clock, relation = placed.timeline.launch, placed.clock, placed.clock.relation
    return {
        "host": launch.origin.host,
        "rank": launch.origin.rank,
        "pid": launch.origin.pid,
        "device": launch.device,
        "axis": clock.axis.number,
        "aligned_by": clock.alignment,
        "globaltimer_to_axis_ns": (relation.offset_ns if relation else 0) - clock.axis.zero_ns,
        "globaltimer_drift_ppm": round(relation.drift * 1e6, 3) if relation else 0.0,
        "alignment_error_ns": clock.error_ns,
    }

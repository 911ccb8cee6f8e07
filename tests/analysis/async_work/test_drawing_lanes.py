"""The lanes in which asynchronous work is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from async_launches import in_order

from kprof_inject.analysis.async_work.flights import IN_FLIGHT_COLUMNS, InFlight, flight_lanes
from kprof_inject.analysis.async_work.in_flight import in_flight
from kprof_inject.analysis.interpreter.executions import evaluated_kernel


def test_as_many_lanes_as_were_under_way_at_once(tmp_path: Path) -> None:
    timeline = in_order(tmp_path)
    lanes = flight_lanes(in_flight(timeline, evaluated_kernel(timeline.launch)))
    assert lanes.lane.tolist() == [0, 0, 1, 2]
    assert lanes.groups["start_ns"].tolist() == [0, 3000, 1000, 2000]
    assert lanes.count == 3


def test_work_that_ends_as_it_begins_has_a_lane_of_its_kind() -> None:
    groups = np.zeros(2, IN_FLIGHT_COLUMNS)
    groups["scope"] = [3, 4]
    lanes = flight_lanes(InFlight(groups, {3: "copies", 4: "dots"}, {}))
    assert lanes.lane.tolist() == [0, 1]

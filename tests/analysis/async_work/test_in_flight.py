"""Work in flight with its wait, and the lanes in which it is drawn, in hand-made launches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from async_launches import BARRIERS, COMMIT, COPIES, LAST, TMA_COPY, TMA_WAIT, WAIT, in_order, launched
from replacing import replace

from kprof_inject.analysis.async_work.flights import IN_FLIGHT_COLUMNS, InFlight, flight_lanes, flights_of
from kprof_inject.analysis.async_work.in_flight import in_flight
from kprof_inject.analysis.interpreter.executions import evaluated_kernel
from kprof_inject.timeline.timeline import Timeline


def found_in(timeline: Timeline) -> InFlight:
    return in_flight(timeline, evaluated_kernel(timeline.launch))


def test_a_wait_is_for_the_oldest_groups_that_it_does_not_leave(tmp_path: Path) -> None:
    """With two left under way, the third iteration waits for the first group."""
    groups = found_in(in_order(tmp_path)).groups
    assert groups["start_cycles"].tolist() == [0, 1000, 2000, 3000]
    assert groups["end_cycles"].tolist() == [2600, 3600, 5600, 5600]
    assert groups["wait_scope"].tolist() == [1, 1, 2, 2]
    assert groups["depth"].tolist() == [1, 2, 3, 3]
    assert groups["blocked_ns"].tolist() == [500, 500, 600, 600]
    # Of 64 elements of two bytes, each of two warps has half.
    assert groups["bytes"].tolist() == [64] * 4


def test_what_a_ring_lost_moves_no_pair(tmp_path: Path) -> None:
    whole = in_order(tmp_path)
    (rows,) = whole.blocks()
    late = replace(whole, _blocks=[rows[4:]])
    groups = found_in(late).groups
    assert groups["start_cycles"].tolist() == [2000, 3000]
    assert groups["end_cycles"].tolist() == [5600, 5600]


def test_a_wait_that_does_not_block_tells_when_it_began(tmp_path: Path) -> None:
    spans = [(0, 0, 0, 10), (2, 0, 900, 930)]
    timeline = launched(tmp_path, COPIES, {"c": COMMIT, "w": WAIT, "last": LAST}, spans)
    (group,) = found_in(timeline).groups
    assert (group["known_ns"], group["end_ns"], group["blocked_ns"]) == (10, 900, 0)


def barriers(folder: Path) -> Timeline:
    """The second warp asks at 0, 100, 2000 and 2100; the first waits until 1000, 1100, 3000 and 3100."""
    spans = [(0, 1, begin, begin + 10) for begin in (0, 100, 2000, 2100)]
    spans += [(1, 0, end - 300, end) for end in (1000, 1100, 3000, 3100)]
    return launched(
        folder, BARRIERS, {"ttng.async_tma_copy_global_to_local": TMA_COPY, "ttng.wait_barrier": TMA_WAIT}, spans
    )


def test_each_time_that_a_barrier_is_told_has_its_wait(tmp_path: Path) -> None:
    found = found_in(barriers(tmp_path))
    assert found.unpaired == {}
    assert found.groups["start_cycles"].tolist() == [0, 100, 2000, 2100]
    assert found.groups["end_cycles"].tolist() == [1000, 1100, 3000, 3100]
    assert found.groups["depth"].tolist() == [1, 2, 1, 2]
    assert found.groups["bytes"].tolist() == [64 * 64 * 2] * 4


def test_a_late_warp_of_a_wait_is_not_that_of_the_next_signal(tmp_path: Path) -> None:
    """The third warp's waits end after the barrier is signalled again; of older records, some are lost."""
    spans = [(0, 1, begin, begin + 10) for begin in (0, 100, 2000, 2100)]
    spans += [(1, 0, end - 300, end) for end in (1000, 1100, 3000, 3100)]
    names = {"ttng.async_tma_copy_global_to_local": TMA_COPY, "ttng.wait_barrier": TMA_WAIT}
    late = [(1, 2, 700, 1020), *((1, 2, end - 20, end) for end in (2050, 3050, 3150))]
    groups = found_in(launched(tmp_path, BARRIERS, names, [*spans, *late])).groups
    assert groups["end_cycles"].tolist() == [1000, 1100, 3000, 3100]
    lossy = [*spans[2:4], *spans[5:], *late[2:]]
    assert found_in(launched(tmp_path, BARRIERS, names, lossy)).groups["end_cycles"].tolist() == [3000, 3100]


def test_of_many_ctas_each_has_its_own_waits(tmp_path: Path) -> None:
    timeline = barriers(tmp_path)
    (rows,) = timeline.blocks()
    ctas = (0, 1, 8_191, 8_192, 20_000)
    blocks = [rows.copy() for _ in ctas]
    for block, cta in zip(blocks, ctas, strict=True):
        block["cta"] = cta
    launch = replace(timeline.launch, grid=(20_001, 1, 1))
    groups = found_in(replace(timeline, launch=launch, _blocks=blocks)).groups
    assert groups["cta"].tolist() == list(np.repeat(ctas, 4))
    assert groups["end_cycles"].tolist() == [1000, 1100, 3000, 3100] * len(ctas)
    assert groups["depth"].tolist() == [1, 2, 1, 2] * len(ctas)


def test_of_a_barrier_that_nobody_can_name_it_is_said(tmp_path: Path) -> None:
    timeline = barriers(tmp_path)
    text = BARRIERS.replace("%s = arith.remsi %i, %z2 : i32", "%s = tt.load %x : !tt.ptr<i32>")
    (timeline.launch.kernel.folder / "kernel.ttgir").write_text(text)
    found = found_in(timeline)
    assert not found.groups.size
    assert found.unpaired == {"ttng.async_tma_copy_global_to_local": "its barrier cannot be evaluated"}


def test_bytes_in_flight_are_counted_on_each_sm(tmp_path: Path) -> None:
    timeline = barriers(tmp_path)
    flights = flights_of(timeline, found_in(timeline), ())
    assert flights is not None
    assert flights.most_bytes_per_sm == 2 * 64 * 64 * 2
    (copies,) = flights.flights
    assert (copies.work, copies.groups, copies.latency_ns, copies.blocked_share) == ("copies", 4, 1000, 1.0)


def test_as_many_lanes_as_were_under_way_at_once(tmp_path: Path) -> None:
    lanes = flight_lanes(found_in(in_order(tmp_path)))
    assert lanes.lane.tolist() == [0, 0, 1, 2]
    assert lanes.groups["start_ns"].tolist() == [0, 3000, 1000, 2000]
    assert lanes.count == 3


def test_work_that_ends_as_it_begins_has_a_lane_of_its_kind() -> None:
    groups = np.zeros(2, IN_FLIGHT_COLUMNS)
    groups["scope"] = [3, 4]
    lanes = flight_lanes(InFlight(groups, {3: "copies", 4: "dots"}, {}))
    assert lanes.lane.tolist() == [0, 1]

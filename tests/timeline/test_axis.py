"""Which launches share an axis, in what order they stand, and what is said of the axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ranks import BEGIN_NS, Timer, decode_all, save_process
from replacing import replace
from snapshots import check

from kprof_inject.cli.capture_lines import axis_lines
from kprof_inject.timeline.axis import PlacedLaunch, place_launches

ONE, OTHER = Timer(5_000_000), Timer(9_000_000_000)
LATER_NS = BEGIN_NS + 1_000_000


def placed(folder: Path) -> list[PlacedLaunch]:
    return place_launches(decode_all(folder))


def begins_ns(launches: list[PlacedLaunch]) -> list[int]:
    return [int(launch.clock.on_axis(launch.timeline.ctas["init_ns"])[0]) for launch in launches]


def calls_ns(launches: list[PlacedLaunch]) -> list[tuple[int, int | None] | None]:
    """The host's calls, on the axis."""

    def on_axis(launch: PlacedLaunch, device_ns: int | None) -> int | None:
        return None if device_ns is None else int(launch.clock.on_axis(np.array([device_ns]))[0])

    return [
        (on_axis(launch, launch.call.start_ns) or 0, on_axis(launch, launch.call.end_ns)) if launch.call else None
        for launch in launches
    ]


def names(launches: list[PlacedLaunch]) -> list[str]:
    return [launch.place_name for launch in launches]


def test_launches_of_one_device_stay_as_they_come_and_say_nothing(tmp_path: Path) -> None:
    save_process(tmp_path, "1", [(ONE, LATER_NS), (ONE, BEGIN_NS)], [ONE.reading(BEGIN_NS)], rank=0)
    timelines = decode_all(tmp_path)[::-1]
    launches = place_launches(timelines)
    assert [launch.timeline for launch in launches] == timelines
    assert begins_ns(launches) == [1_000_000, 0]
    assert names(launches) == ["", ""]
    assert {launch.clock.axis.error_ns for launch in launches} == {0}
    assert list(axis_lines(launches)) == []


def test_an_axis_begins_with_the_first_call_if_its_time_is_known(tmp_path: Path) -> None:
    save_process(tmp_path, "1", [(ONE, BEGIN_NS), (ONE, LATER_NS)], [ONE.reading(BEGIN_NS)])
    first, later = decode_all(tmp_path)
    early = replace(later, launch=replace(later.launch, host_ns=BEGIN_NS - 9_000, host_end_ns=BEGIN_NS - 8_000))
    launches = place_launches([first, early])
    assert begins_ns(launches) == [9_000, 1_009_000]
    assert calls_ns(launches) == [(9_000, None), (0, 1_000)]
    # The reading's error and a step of the timer; over microseconds, no drift counts.
    assert [launch.call and launch.call.error_ns for launch in launches] == pytest.approx([2_033, 2_035], abs=2)


def test_calls_of_several_devices_stand_on_their_hosts_axis(tmp_path: Path) -> None:
    save_process(tmp_path, "1", [(ONE, BEGIN_NS)], [ONE.reading(BEGIN_NS)], rank=0)
    save_process(tmp_path, "2", [(OTHER, LATER_NS)], [OTHER.reading(BEGIN_NS)], rank=1)
    first, other = decode_all(tmp_path)
    launches = place_launches([first, replace(other, launch=replace(other.launch, host_ns=BEGIN_NS - 500_000))])
    assert begins_ns(launches) == [500_000, 1_500_000]
    assert calls_ns(launches) == [(500_000, None), (0, None)]


def test_a_call_is_not_placed_by_the_clock_of_another_host(tmp_path: Path) -> None:
    uuids = ["GPU-1"]
    save_process(tmp_path, "1", [(ONE, BEGIN_NS)], [ONE.reading(BEGIN_NS)], pid=1, device_uuids=uuids)
    save_process(tmp_path, "2", [(ONE, BEGIN_NS + 10)], pid=2, boot_id="another", device_uuids=uuids)
    save_process(tmp_path, "3", [(OTHER, BEGIN_NS + 20)], pid=3)
    assert calls_ns(placed(tmp_path)) == [(0, None), None, None]


def test_ranks_of_one_host_come_onto_one_axis_by_rank(tmp_path: Path) -> None:
    save_process(tmp_path, "1", [(ONE, BEGIN_NS), (ONE, LATER_NS)], [ONE.reading(BEGIN_NS)], rank=1, pid=11)
    save_process(tmp_path, "2", [(OTHER, LATER_NS)], [OTHER.reading(LATER_NS, error_ns=1_500)], rank=0, pid=12)
    launches = placed(tmp_path)
    assert names(launches) == ["rank 0, device 0", "rank 1, device 0", "rank 1, device 0"]
    error_ns = launches[0].clock.axis.error_ns
    # The readings' errors, and a millisecond's drift at 200 ppm for one of the devices.
    assert error_ns == pytest.approx(1_500 + 2_000 + 200, abs=100)
    assert np.abs(np.array(begins_ns(launches)) - [1_000_000, 0, 1_000_000]).max() <= error_ns
    # Of one device, nothing is shifted.
    assert begins_ns(launches)[2] - begins_ns(launches)[1] == 1_000_000
    (line,) = axis_lines(launches)
    assert line.endswith(f"± {error_ns / 1000:.3f} µs")
    check("timeline/axes", line, "two ranks")


def test_two_devices_of_one_process_need_no_boot_id(tmp_path: Path) -> None:
    readings = [ONE.reading(BEGIN_NS), OTHER.reading(BEGIN_NS, device=1)]
    save_process(tmp_path, "1", [(ONE, BEGIN_NS), (OTHER, LATER_NS)], readings, boot_id="")
    launches = placed(tmp_path)
    assert names(launches) == ["device 0", "device 1"]
    assert begins_ns(launches) == [0, 1_000_000]
    (line,) = axis_lines(launches)
    assert "± 4." in line
    check("timeline/axes", line, "two devices")


def test_processes_on_the_same_device_share_its_timer(tmp_path: Path) -> None:
    for pid in (11, 12):
        begin_ns = BEGIN_NS + 1_000 * pid
        save_process(tmp_path, str(pid), [(ONE, begin_ns)], pid=pid, boot_id="", device_uuids=["GPU-1"])
    launches = placed(tmp_path)
    assert names(launches) == ["process 11, device 0", "process 12, device 0"]
    assert begins_ns(launches) == [0, 1_000]
    check("timeline/axes", "\n".join(axis_lines(launches)), "processes that share a device")


def test_readings_of_all_processes_on_a_device_count(tmp_path: Path) -> None:
    readings = [[ONE.reading(BEGIN_NS, late_ns=1_900)], [ONE.reading(BEGIN_NS, late_ns=-1_900)], []]
    for pid, mine in enumerate(readings):
        save_process(tmp_path, str(pid), [(ONE, BEGIN_NS)], mine, pid=pid, device_uuids=["GPU-1"])
    save_process(tmp_path, "9", [(OTHER, BEGIN_NS)], [OTHER.reading(BEGIN_NS)], pid=9, device_uuids=["GPU-2"])
    clocks = [launch.clock for launch in placed(tmp_path)]
    assert clocks[0] is clocks[1] is clocks[2]
    assert clocks[0].error_ns == pytest.approx(100, abs=70)


def test_equal_indices_without_uuids_are_not_taken_for_one_device(tmp_path: Path) -> None:
    for pid in (11, 12):
        save_process(tmp_path, str(pid), [(ONE, BEGIN_NS + pid)], pid=pid)
    launches = placed(tmp_path)
    assert begins_ns(launches) == [0, 0]
    assert [launch.clock.axis.number for launch in launches] == [0, 1]
    check("timeline/axes", "\n".join(axis_lines(launches)), "processes without readings")


def test_hosts_have_axes_of_their_own(tmp_path: Path) -> None:
    for rank, host in enumerate("aab"):
        timer = Timer(BEGIN_NS + rank)
        info = {"rank": rank, "host": host, "boot_id": f"boot {host}"}
        save_process(tmp_path, str(rank), [(timer, BEGIN_NS + 1_000 * rank)], [timer.reading(BEGIN_NS)], **info)
    launches = placed(tmp_path)
    assert [launch.clock.axis.number for launch in launches] == [0, 0, 1]
    assert begins_ns(launches) == [0, 1_000, 0]
    _, first, second = axis_lines(launches)
    assert first.startswith("axis 0: ") and "± 4." in first
    assert second.startswith("axis 1: ")
    check("timeline/axes", "\n".join(axis_lines(launches)), "two hosts")


def test_hosts_of_equal_name_that_booted_apart_are_two(tmp_path: Path) -> None:
    for rank in (0, 1):
        info = {"rank": rank, "boot_id": f"boot {rank}"}
        save_process(tmp_path, str(rank), [(ONE, BEGIN_NS)], [ONE.reading(BEGIN_NS)], **info)
    assert [launch.clock.axis.number for launch in placed(tmp_path)] == [0, 1]


def test_contradicting_readings_are_told_of(tmp_path: Path) -> None:
    readings = [ONE.reading(BEGIN_NS), ONE.reading(BEGIN_NS, late_ns=1_000_000)]
    save_process(tmp_path, "1", [(ONE, BEGIN_NS)], readings, rank=0)
    save_process(tmp_path, "2", [(OTHER, BEGIN_NS)], [OTHER.reading(BEGIN_NS)], rank=1)
    launches = placed(tmp_path)
    assert launches[0].clock.error_ns > 1_000_000 / 2
    _, line = axis_lines(launches)
    assert line.startswith("rank 0, device 0: ")
    check("timeline/axes", line, "contradicting readings")


def test_what_a_rank_starts_has_its_rank_and_another_name(tmp_path: Path) -> None:
    for pid, rank in ((11, 0), (12, 0), (13, 1)):
        save_process(tmp_path, str(pid), [(ONE, BEGIN_NS)], pid=pid, rank=rank)
    assert names(placed(tmp_path)) == [
        "rank 0, process 11, device 0",
        "rank 0, process 12, device 0",
        "rank 1, device 0",
    ]


def test_launches_without_a_timer_are_told_of(tmp_path: Path) -> None:
    save_process(tmp_path, "1", [(ONE, BEGIN_NS)], [ONE.reading(BEGIN_NS)], rank=0)
    save_process(tmp_path, "2", [(OTHER, BEGIN_NS)], [OTHER.reading(BEGIN_NS)], rank=1)
    timed, other = decode_all(tmp_path)
    untimed = replace(other, clock=replace(other.clock, source="nominal"))
    _, line = axis_lines(place_launches([timed, untimed]))
    assert line.startswith("1 launch ")
    check("timeline/axes", line, "a launch without readings")

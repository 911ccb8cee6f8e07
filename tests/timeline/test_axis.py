"""Which launches share an axis, in what order they stand, and what is said of the axes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from buffers import Cta, Scope, save_launch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from ranks import BEGIN_NS, Timer, decode_all, save_process
from replacing import replace
from snapshots import check

from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.capture.model import Launch
from kprof_inject.cli.capture_lines import axis_lines
from kprof_inject.timeline.axis import HostClock, PlacedLaunch, fit_host_clock, host_call, place_launches

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


# How a device's timer stands to the host's clock: the estimate, and that the truth is never further off than said.


DEVICE_NS = 1_800_000_000_000_000_000
OFFSET_NS = -123_456_789_012
SECOND_NS = 1_000_000_000
# A timer that moves in steps of 32 ns, and rounding.
SMALL_NS = 33


def reading(after_ns: int, *, drift: float = 0.0, late_ns: int = 0, error_ns: int = 1_000) -> ClockRecord:
    """A reading of a timer whose host clock is ``OFFSET_NS`` ahead and gains ``drift``, ``late_ns`` off that truth."""
    host_ns = DEVICE_NS + after_ns + OFFSET_NS + round(drift * after_ns)
    return ClockRecord(0, host_ns + late_ns, DEVICE_NS + after_ns, error_ns)


def fitted(*readings: ClockRecord) -> HostClock:
    clock = fit_host_clock(readings)
    assert clock is not None
    return clock


def offset_ns(clock: HostClock, after_ns: int) -> int:
    """Host time less device time, at ``after_ns``."""
    at = np.array([DEVICE_NS + after_ns])
    return int((clock.to_host_ns(at) - at)[0])


def error_ns(clock: HostClock, after_ns: int) -> int:
    return clock.error_ns(DEVICE_NS + after_ns, DEVICE_NS + after_ns)


def test_without_readings_there_is_no_relation() -> None:
    assert fit_host_clock([]) is None


def test_one_reading_gives_an_offset_whose_error_grows_with_the_distance() -> None:
    clock = fitted(reading(0))
    assert (clock.drift, clock.contradicted) == (0.0, False)
    assert offset_ns(clock, 0) == offset_ns(clock, -SECOND_NS) == OFFSET_NS
    assert error_ns(clock, 0) == 1_000 + SMALL_NS
    # Two quartz clocks, each within 100 ppm.
    assert error_ns(clock, SECOND_NS) == error_ns(clock, -SECOND_NS) == pytest.approx(1_033 + 200_000, abs=1)


def test_readings_of_one_moment_narrow_the_offset_down() -> None:
    # [-500, 1500], [-1500, 500]: the truth lies within 500 of none.
    clock = fitted(reading(0, late_ns=500), reading(0, late_ns=-500))
    assert offset_ns(clock, 0) == OFFSET_NS
    assert error_ns(clock, 0) == 500 + SMALL_NS


def test_readings_at_begin_and_end_show_a_drift() -> None:
    clock = fitted(reading(0, drift=2e-5), reading(60 * SECOND_NS, drift=2e-5))
    assert clock.drift == pytest.approx(2e-5, rel=1e-3)
    for after_ns in (0, 30 * SECOND_NS, 60 * SECOND_NS):
        assert abs(offset_ns(clock, after_ns) - OFFSET_NS - round(2e-5 * after_ns)) <= 1
        assert error_ns(clock, after_ns) <= 1_000 + SMALL_NS + 1


def test_a_drift_that_nothing_proves_is_none() -> None:
    # Whether clocks that were read a millisecond apart differ by 1 µs, or not at all, nobody knows.
    clock = fitted(reading(0), reading(SECOND_NS // 1000, late_ns=1_000))
    assert clock.drift == 0.0


def test_readings_that_contradict_each_other_widen_the_error() -> None:
    # The host's clock was set by 50 µs in the same second: no quartz does that.
    clock = fitted(reading(0), reading(SECOND_NS // 10, late_ns=50_000))
    assert clock.contradicted
    for after_ns, truth_ns in ((0, 0), (SECOND_NS // 10, 50_000)):
        assert abs(offset_ns(clock, after_ns) - OFFSET_NS - truth_ns) <= error_ns(clock, after_ns)


def test_a_wild_reading_is_survived() -> None:
    wild = structs.replace(reading(0), device_ns=5, error_ns=0)
    clock = fitted(reading(0), wild, reading(SECOND_NS))
    assert clock.contradicted
    assert math.isfinite(error_ns(clock, 0))


@given(
    drift=st.floats(-1.9e-4, 1.9e-4),
    points=st.lists(st.tuples(st.integers(0, 3600), st.floats(-1, 1), st.integers(0, 10**6)), min_size=1, max_size=8),
    after_s=st.integers(-600, 4200),
)
def test_the_truth_is_never_further_off_than_the_error(
    drift: float, points: list[tuple[int, float, int]], after_s: int
) -> None:
    readings = [
        reading(second * SECOND_NS, drift=drift, late_ns=int(part * error), error_ns=error)
        for second, part, error in points
    ]
    clock = fitted(*readings)
    assert not clock.contradicted
    after_ns = after_s * SECOND_NS
    truth_ns = OFFSET_NS + round(drift * after_ns)
    assert abs(offset_ns(clock, after_ns) - truth_ns) <= error_ns(clock, after_ns)
    # And it holds over any span what it holds at each of its times.
    assert error_ns(clock, after_ns) <= clock.error_ns(DEVICE_NS, DEVICE_NS + after_ns)


# A host's call, brought to its device's clock.


HOUR_NS = 3_600_000_000_000


def relation_of(timer: Timer) -> HostClock:
    """What two readings tell of a timer, an hour apart."""
    readings = [ClockRecord(0, at_ns, timer.at(at_ns), 500) for at_ns in (BEGIN_NS, BEGIN_NS + HOUR_NS)]
    relation = fit_host_clock(readings)
    assert relation is not None
    return relation


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return save_launch(tmp_path_factory.mktemp("capture"), [Scope("kernel")], [Cta([[]])], slots=2)


@given(
    st.integers(-10 * HOUR_NS, 10 * HOUR_NS),
    st.integers(0, HOUR_NS),
    st.sampled_from([0.0, 3e-5, -9e-5]),
    st.sampled_from([0, 77_000_000_000, BEGIN_NS + 12_345]),
)
def test_a_call_on_its_device_is_where_it_was_on_its_host(
    launch: Launch, at_ns: int, lasting_ns: int, drift: float, begin_ns: int
) -> None:
    relation = relation_of(Timer(begin_ns, drift))
    start_ns = BEGIN_NS + at_ns
    call = host_call(replace(launch, host_ns=start_ns, host_end_ns=start_ns + lasting_ns), relation)
    assert call.end_ns is not None
    back_ns = relation.to_host_ns(np.array([call.start_ns, call.end_ns])) - [start_ns, start_ns + lasting_ns]
    assert np.abs(back_ns).max() <= 1
    assert call.error_ns == relation.error_ns(call.start_ns, call.end_ns)

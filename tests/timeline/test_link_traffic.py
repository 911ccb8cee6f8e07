"""Bytes over NVLink that are known to belong to launches, and their file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from flag_launches import Use, launch
from replacing import replace

from kprof_inject.capture.link_traffic import (
    DeviceTraffic,
    LinkTrafficRecord,
    read_link_traffic,
    write_link_traffic,
)
from kprof_inject.capture.schema import ClockRecord
from kprof_inject.errors import KprofError
from kprof_inject.timeline.link_traffic import LinkBytes, link_bytes, median_link_bytes

INTERVAL_NS = 100
TRAFFIC = DeviceTraffic(
    device="GPU-0",
    from_ns=500,
    to_ns=3_000,
    begins_ns=(1_000, 1_100, 1_500),
    sent_bytes=(600, 400, 50),
    received_bytes=(60, 40, 5),
)


# The host's clock is 7,000 ns ahead of the device's timer.
AHEAD_NS = 7_000


def counted(folder: Path, span: tuple[int, int], traffic: DeviceTraffic = TRAFFIC) -> LinkBytes | None:
    """The bytes of a launch from one time to another by the host's clock."""
    timeline = launch(folder, [Use(0, 0, 0, 100)]).timeline
    readings = tuple(ClockRecord(0, ns + AHEAD_NS, ns, 0) for ns in (0, 10_000_000))
    origin = replace(timeline.launch.origin, host_readings=readings)
    begin_ns, end_ns = span
    moved = replace(timeline, first_ns=begin_ns - AHEAD_NS, last_ns=end_ns - AHEAD_NS)
    return link_bytes(traffic, INTERVAL_NS, replace(moved, launch=replace(moved.launch, origin=origin)))


@pytest.mark.parametrize(
    ("span", "sent"),
    [
        ((900, 1_300), 1_000),
        ((1_050, 1_450), 300 + 400),
        ((700, 1_125), 600 + 100),
        ((1_025, 1_575), 450 + 400 + 37.5),
        ((500, 3_000), 1_050),
        ((1_600, 2_000), 0),
    ],
    ids=["whole samples", "part of the first", "part of the last", "of both", "all", "idle"],
)
def test_a_launch_has_its_part_of_each_sample(tmp_path: Path, span: tuple[int, int], sent: float) -> None:
    found = counted(tmp_path, span)
    assert found is not None
    assert found.sent_bytes == pytest.approx(sent)
    assert found.received_bytes == pytest.approx(sent / 10)
    assert found.bytes_per_s == pytest.approx(1e9 * sent / (span[1] - span[0]))


@pytest.mark.parametrize("span", [(1_000, 1_399), (400, 1_400), (2_700, 3_100)], ids=["short", "before", "after"])
def test_nothing_is_said_of_launches_that_samples_do_not_show(tmp_path: Path, span: tuple[int, int]) -> None:
    assert counted(tmp_path, span) is None


def test_nothing_is_said_where_samples_are_missing(tmp_path: Path) -> None:
    with_gap = msgspec.structs.replace(TRAFFIC, gaps_ns=((1_200, 1_300),))
    assert counted(tmp_path / "in", (900, 1_300), with_gap) is None
    assert counted(tmp_path / "out", (1_300, 1_700), with_gap) is not None
    assert counted(tmp_path / "a little", (1_290, 1_700), with_gap) is not None


def test_nothing_is_said_if_the_hosts_clock_was_not_read(tmp_path: Path) -> None:
    assert link_bytes(TRAFFIC, INTERVAL_NS, launch(tmp_path, [Use(0, 0, 0, 100)]).timeline) is None


def test_the_median_is_of_each_direction() -> None:
    found = [LinkBytes(1, 30, 500), LinkBytes(2, 10, 400), LinkBytes(9, 20, 600)]
    assert median_link_bytes(found) == LinkBytes(2, 20, 500)


def test_the_file_is_of_one_run(tmp_path: Path) -> None:
    record = LinkTrafficRecord(interval_ns=INTERVAL_NS, devices=(TRAFFIC,))
    assert read_link_traffic(tmp_path, "run") is None
    write_link_traffic(tmp_path, record, "run")
    assert read_link_traffic(tmp_path, "run") == record
    with pytest.raises(KprofError):
        read_link_traffic(tmp_path, "another")


@pytest.mark.parametrize(
    ("begins_ns", "sent"), [((5, 5), (1, 1)), ((9, 5), (1, 1)), ((5, 9), (1,))], ids=["equal", "back", "one is missing"]
)
def test_a_file_that_contradicts_itself_is_refused(begins_ns: tuple[int, ...], sent: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        DeviceTraffic(device="GPU-0", from_ns=0, to_ns=9, begins_ns=begins_ns, sent_bytes=sent, received_bytes=(0, 0))

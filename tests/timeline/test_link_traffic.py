"""Bytes over NVLink that are known to belong to launches, and their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprof_inject.capture.link_traffic import (
    DeviceTraffic,
    LinkTrafficRecord,
    read_link_traffic,
    write_link_traffic,
)
from kprof_inject.errors import KprofError
from kprof_inject.timeline.link_traffic import LinkBytes, link_bytes, median_link_bytes

INTERVAL_NS = 100
TRAFFIC = DeviceTraffic(
    device="GPU-0", begins_ns=(1_000, 1_100, 1_500), sent_bytes=(600, 400, 50), received_bytes=(60, 40, 5)
)


@pytest.mark.parametrize(
    ("spans", "sent"),
    [
        ([(1_010, 1_190)], [1_000]),
        ([(1_050, 1_060)], [600]),
        ([(1_050, 1_060), (1_060, 1_090)], [150, 450]),
        ([(1_060, 1_150), (1_150, 1_200)], [600 + 200, 200]),
        ([(1_200, 1_500)], [0]),
        ([(0, 5_000)], [1_050]),
    ],
    ids=["two samples", "a part of one", "one is shared", "the second is shared", "idle", "all"],
)
def test_launches_have_the_bytes_of_the_samples_that_they_are_in(
    spans: list[tuple[int, int]], sent: list[float]
) -> None:
    found = link_bytes(TRAFFIC, INTERVAL_NS, spans)
    assert found is not None
    assert [one.sent_bytes for one in found] == pytest.approx(sent)
    assert [one.received_bytes for one in found] == pytest.approx([one / 10 for one in sent])


def test_nothing_is_said_where_samples_were_lost() -> None:
    cut = DeviceTraffic(device="GPU-0", begins_ns=(), sent_bytes=(), received_bytes=(), is_cut=True)
    assert link_bytes(cut, INTERVAL_NS, [(0, 100)]) is None


def test_the_median_is_of_each_direction() -> None:
    assert median_link_bytes([LinkBytes(1, 30), LinkBytes(2, 10), LinkBytes(9, 20)]) == LinkBytes(2, 20)


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
        DeviceTraffic(device="GPU-0", begins_ns=begins_ns, sent_bytes=sent, received_bytes=(0, 0))

"""Traces of several ranks and devices, judged by the trace processor: what ran at one time stands at one time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import drawn
import pytest
from drawn import launch_name, number
from ranks import BEGIN_NS, KERNEL_NS, Timer, decode_all, save_process
from snapshots import check
from trace_processor.processor import Row
from traces import chrome_trace

KERNELS = (
    "SELECT pid, process.name AS process, ts, dur FROM slice JOIN thread_track ON thread_track.id = track_id"
    " JOIN thread USING (utid) JOIN process USING (upid) WHERE category = 'func' ORDER BY pid"
)
MINUTE_NS = 60_000_000_000

# Two devices that were switched on at different times, whose quartzes differ by 30 ppm: 1.8 ms in a minute.
TIMERS = (Timer(77_000_000_000, 1e-5), Timer(5_000_000, -2e-5))


def shown(folder: Path) -> tuple[list[Row], list[dict[str, Any]]]:
    """The kernels as the trace processor sees them, and what the trace says of each."""
    chunks = list(chrome_trace(decode_all(folder)))
    (kernels,) = drawn.load(folder / "trace.json", chunks, KERNELS)
    return kernels, json.loads(b"".join(chunks))["otherData"]


@pytest.mark.parametrize("late_ns", [(2_000, -2_000), (-1_500, 700), (0, 0)])
def test_what_two_ranks_did_at_once_stands_within_the_stated_error(tmp_path: Path, late_ns: tuple[int, int]) -> None:
    at_ns = [BEGIN_NS + part * MINUTE_NS // 4 for part in range(5)]
    for rank, timer in enumerate(TIMERS):
        readings = [timer.reading(BEGIN_NS + n * MINUTE_NS, late_ns=late_ns[rank]) for n in (0, 1)]
        save_process(tmp_path, str(rank), [(timer, host_ns) for host_ns in at_ns], readings, rank=1 - rank, pid=rank)

    kernels, data = shown(tmp_path)

    assert [row["process"] for row in kernels] == [launch_name(n, 1, rank) for rank in (0, 1) for n in range(5)]
    error_ns = data[0]["alignment_error_ns"] + data[5]["alignment_error_ns"]
    assert error_ns < 4_500
    # The fit of the cycles has an error of its own.
    off_ns = [abs(number(one, "ts") - number(other, "ts")) for one, other in zip(kernels[:5], kernels[5:], strict=True)]
    assert max(off_ns) <= error_ns + 50
    assert all(abs(number(row, "dur") - KERNEL_NS) < 200 for row in kernels)


def test_the_file_says_how_each_device_was_aligned(tmp_path: Path) -> None:
    for rank, timer in enumerate(TIMERS):
        readings = [timer.reading(BEGIN_NS + n * MINUTE_NS) for n in (0, 1)]
        save_process(tmp_path, str(rank), [(timer, BEGIN_NS)], readings, rank=rank, pid=11 + rank)

    _, data = shown(tmp_path)

    assert [(one["host"], one["rank"], one["pid"], one["device"]) for one in data] == [("a", 0, 11, 0), ("a", 1, 12, 0)]
    assert [one["axis"] for one in data] == [0, 0]
    assert {one["aligned_by"] for one in data} == {"the host's clock"}
    assert [one["globaltimer_drift_ppm"] for one in data] == pytest.approx([-10, 20], abs=0.1)
    # Of a device whose timer stood at this when the trace begins, with the call of a launch.
    assert [-one["globaltimer_to_axis_ns"] for one in data] == pytest.approx([t.begin_ns for t in TIMERS], abs=5_000)


def test_devices_that_cannot_be_aligned_each_begin_at_zero(tmp_path: Path) -> None:
    at_ns = BEGIN_NS + MINUTE_NS
    save_process(tmp_path, "0", [(TIMERS[0], at_ns)], [TIMERS[0].reading(at_ns)], rank=0)
    save_process(tmp_path, "1", [(TIMERS[1], BEGIN_NS)], rank=1)

    kernels, data = shown(tmp_path)

    assert all(0 <= number(row, "ts") < 100 for row in kernels)
    assert [one["axis"] for one in data] == [0, 1]
    check("export/several_devices", "\n".join(one["aligned_by"] for one in data))


def test_a_single_device_says_nothing_of_axes(tmp_path: Path) -> None:
    save_process(tmp_path / "plain", "1", [(TIMERS[0], BEGIN_NS)])
    readings = [TIMERS[0].reading(BEGIN_NS), TIMERS[0].reading(BEGIN_NS + MINUTE_NS)]
    save_process(tmp_path / "read", "1", [(TIMERS[0], BEGIN_NS)], readings, rank=0, device_uuids=["GPU-1"])
    plain, read = (b"".join(chrome_trace(decode_all(tmp_path / name))) for name in ("plain", "read"))
    assert json.loads(read)["otherData"] == json.loads(plain)["otherData"]
    assert b"axis" not in read

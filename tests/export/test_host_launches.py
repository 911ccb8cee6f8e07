"""The host's calls that made the launches, in the scene and in the trace processor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import drawn
import numpy as np
import pytest
from buffers import make_editable
from drawn import ARROWS
from ranks import BEGIN_NS, Timer, decode_all, save_process
from replacing import replace
from snapshots import check
from traces import chrome_trace, draw, parts_of

from kprof_inject.export.events import Events, Process, Tracks
from kprof_inject.timeline.timeline import Timeline

TIMER = Timer(5_000_000)
CALLS = (
    "SELECT process.name AS process, thread.name AS thread, slice.name AS name, ts, dur"
    " FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid) JOIN process USING (upid)"
    " WHERE category = 'host' ORDER BY pid, ts"
)


def events_of(timelines: list[Timeline], category: str) -> list[dict[str, Any]]:
    trace = json.loads(b"".join(chrome_trace(timelines)))
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def called(folder: Path, *calls_ns: tuple[int, int | None]) -> list[Timeline]:
    """A process that called launches at these times after ``BEGIN_NS``, until then, each 10 µs before it began."""
    save_process(folder, "1", [(TIMER, BEGIN_NS + at_ns + 10_000) for at_ns, _ in calls_ns], [TIMER.reading(BEGIN_NS)])
    make_editable(folder)
    path = folder / "1" / "launches.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, (at_ns, until_ns) in zip(lines, calls_ns, strict=True):
        line["host_ns"] = BEGIN_NS + at_ns
        line |= {} if until_ns is None else {"host_end_ns": BEGIN_NS + until_ns}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return decode_all(folder)


def test_each_process_that_launched_stands_before_its_launches(tmp_path: Path) -> None:
    parts = parts_of(draw(drawn.called(tmp_path)))
    names = [part.name for part in parts if isinstance(part, Process)]
    check("export/host_launches", "\n".join(names), "processes")


def test_the_trace_processor_shows_calls_and_arrows_to_their_launches(tmp_path: Path) -> None:
    chunks = list(chrome_trace(drawn.called(tmp_path)))
    calls, arrows = drawn.load(tmp_path / "trace.json", chunks, CALLS, ARROWS)

    # The trace begins with the first call, 7 µs before the first launch; clocks are off by some microseconds.
    where = [(row["process"], row["thread"], row["name"]) for row in calls]
    assert where == [(f"rank {rank}, host process {40 + rank}", "launches", "matmul") for rank in (0, 0, 1)]
    assert [row["ts"] for row in calls] == pytest.approx([0, 40_000, 41_000], abs=2)
    assert [row["dur"] for row in calls] == [3_000, 1, 1]
    # What a graph replayed has no call.
    assert [(row["from_kind"], row["to_kind"]) for row in arrows] == [("host", "launch")] * 3
    assert [row["from_ts"] for row in arrows] == [calls[at]["ts"] for at in (0, 1, 2)]
    assert [row["to_ts"] for row in arrows] == pytest.approx([7_000, 47_000, 48_000], abs=4_100)


def test_a_call_says_what_it_launched_and_what_is_not_known_of_it(tmp_path: Path) -> None:
    returned, open_ended, _ = (event["args"] for event in events_of(drawn.called(tmp_path), "host"))
    error_ns = returned.pop("error_ns")
    assert 2_000 < error_ns < 4_100
    assert returned == {"variant": "v0", "launch": 0, "device": 0, "stream": 0}
    check("export/host_launches", open_ended["end"], "open end")


def test_a_host_whose_clock_was_not_read_has_no_calls(tmp_path: Path) -> None:
    save_process(tmp_path, "1", [(TIMER, BEGIN_NS)])
    assert events_of(decode_all(tmp_path), "host") == []
    assert events_of(decode_all(tmp_path), "arrow") == []


def test_calls_at_the_same_time_stand_on_threads_of_their_own(tmp_path: Path) -> None:
    timelines = called(tmp_path, (0, 5_000), (1_000, 9_000), (2_000, 3_000), (5_000, 6_000), (9_000, None))
    host, *_ = (part for part in parts_of(draw(timelines)) if isinstance(part, Events))
    (process, threads) = list(draw(timelines).sections[0]())[:2]
    assert isinstance(process, Process) and process.own and isinstance(threads, Tracks)
    by_thread = [host.start_ns[host.tids == tid].tolist() for tid in np.unique(host.tids)]
    assert by_thread == [[0, 5_000, 9_000], [1_000], [2_000]]
    assert (process.track, process.own) == (host.tids.min(), "launches")
    assert (threads.names[0], np.asarray(threads.names[1]).tolist()) == ("launches at the same time (", [1, 2])
    assert threads.ids.tolist() == np.unique(host.tids)[1:].tolist()
    # Each thread's are in order, and each arrow is that of its launch.
    assert [kind.args[1] for kind in host.kinds] == [("launch", number) for number in (0, 3, 4, 1, 2)]
    assert host.arrows[0].ids.tolist() == [1, 4, 5, 2, 3]


def test_a_launch_that_seems_to_begin_before_its_call_keeps_its_arrow(tmp_path: Path) -> None:
    (timeline,) = called(tmp_path, (0, None))
    late = replace(timeline, launch=replace(timeline.launch, host_ns=BEGIN_NS + 12_000))
    (leaves,), (arrives,) = [part.arrows for part in parts_of(draw([late])) if isinstance(part, Events) and part.arrows]
    (arrows,) = drawn.load(tmp_path / "trace.json", list(chrome_trace([late])), ARROWS)
    assert leaves.at_ns.tolist() == arrives.at_ns.tolist() == [2_000]
    assert [(row["from_ts"], row["to_ts"]) for row in arrows] == [(0, 2_000)]


def test_a_launch_of_which_no_cta_ran_has_a_call_without_an_arrow(tmp_path: Path) -> None:
    (timeline,) = called(tmp_path, (0, None))
    (empty,) = drawn.decode(tmp_path / "empty", [[None]], slots=4)
    nothing = replace(empty, launch=replace(timeline.launch, kernel=empty.launch.kernel))
    assert [event["ts"] for event in events_of([nothing], "host")] == [0.0]
    assert events_of([nothing], "arrow") == []

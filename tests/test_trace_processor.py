"""The trace processor helper itself: that it loads, answers, and says clearly why it does not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (  # type: ignore[import-untyped]
    Trace,
    TrackEvent,
)
from trace_processor import processor
from trace_processor.processor import (
    QueryError,
    TraceLoadError,
    TraceProcessorError,
    query,
    query_many,
)

SLICES = "SELECT ts, dur, depth, name, EXTRACT_ARG(arg_set_id, 'args.grid') AS grid FROM slice ORDER BY ts"


def chrome_json() -> bytes:
    """Two nested events with arguments and an instant, on one named thread."""
    where = {"pid": 1, "tid": 10}
    outer_args = {"grid": 4, "shape": [2, 3.5], "kind": "gemm", "hot": True}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "GPU 0"}},
        {"ph": "M", "name": "thread_name", **where, "args": {"name": "SM 3"}},
        {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": 3}},
        {"ph": "X", "name": "outer", **where, "ts": 1000.123, "dur": 10.5, "args": outer_args},
        {"ph": "X", "name": "inner", **where, "ts": 1001.001, "dur": 2.002},
        {"ph": "i", "s": "t", "name": "mark", **where, "ts": 1012.005},
    ]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}).encode()


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("packed", [False, True], ids=["json", "json.gz"])
def test_chrome_json(tmp_path: Path, packed: bool) -> None:
    data = chrome_json()
    trace = write(tmp_path, "trace", gzip.compress(data) if packed else data)

    slices, threads, args, faults = query_many(
        trace,
        [
            SLICES,
            "SELECT tid, pid, thread.name AS thread, process.name AS process"
            " FROM thread JOIN process USING (upid) WHERE tid = 10",
            "SELECT key, display_value, value_type FROM args JOIN slice USING (arg_set_id) ORDER BY key",
            "SELECT name, value FROM stats WHERE severity = 'error' AND value > 0",
        ],
    )

    assert slices == [
        {"ts": 1_000_123, "dur": 10_500, "depth": 0, "name": "outer", "grid": 4},
        {"ts": 1_001_001, "dur": 2_002, "depth": 1, "name": "inner", "grid": None},
        {"ts": 1_012_005, "dur": 0, "depth": 0, "name": "mark", "grid": None},
    ]
    assert threads == [{"tid": 10, "pid": 1, "thread": "SM 3", "process": "GPU 0"}]
    assert [tuple(row.values()) for row in args] == [
        ("args.grid", "4", "int"),
        ("args.hot", "true", "bool"),
        ("args.kind", "gemm", "string"),
        ("args.shape[0]", "2", "int"),
        ("args.shape[1]", "3.5", "real"),
    ]
    assert faults == []


def test_perfetto_protobuf(tmp_path: Path) -> None:
    trace = Trace()
    sequence = 7
    track = trace.packet.add(trusted_packet_sequence_id=sequence)
    track.track_descriptor.uuid = 5
    track.track_descriptor.name = "SM 3"
    for ts, kind, name in [
        (100, TrackEvent.TYPE_SLICE_BEGIN, "outer"),
        (120, TrackEvent.TYPE_SLICE_BEGIN, "inner"),
        (130, TrackEvent.TYPE_SLICE_END, None),
        (200, TrackEvent.TYPE_SLICE_END, None),
    ]:
        packet = trace.packet.add(timestamp=ts, trusted_packet_sequence_id=sequence)
        packet.track_event.type = kind
        packet.track_event.track_uuid = 5
        if name is not None:
            packet.track_event.name = name

    rows = query(
        write(tmp_path, "trace.pftrace", trace.SerializeToString()),
        "SELECT ts, dur, depth, slice.name AS name, track.name AS track"
        " FROM slice JOIN track ON track.id = track_id ORDER BY ts",
    )

    assert rows == [
        {"ts": 100, "dur": 100, "depth": 0, "name": "outer", "track": "SM 3"},
        {"ts": 120, "dur": 10, "depth": 1, "name": "inner", "track": "SM 3"},
    ]


def test_a_trace_larger_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_CHUNK_BYTES", 100)
    assert len(query(write(tmp_path, "t.json", chrome_json()), SLICES)) == 3


def test_cells_of_every_type_in_rows_that_span_batches(tmp_path: Path) -> None:
    rows = query(
        write(tmp_path, "t.json", chrome_json()),
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)"
        " SELECT -i AS i, i + 0.5 AS f, 'é' || i AS s, NULL AS n FROM n",
    )
    assert rows == [{"i": -i, "f": i + 0.5, "s": f"é{i}", "n": None} for i in range(100_000)]


def test_queries_share_a_database(tmp_path: Path) -> None:
    trace = write(tmp_path, "t.json", chrome_json())
    created, rows = query_many(trace, ["CREATE TABLE t AS SELECT 5 AS five", "SELECT five FROM t"])
    assert created == []
    assert rows == [{"five": 5}]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no trace at all\n", "Unknown trace type"),
        (chrome_json()[:-30], "incomplete"),
        (b'{"traceEvents":[{"ph":"X","ts":NaN}]}', "Failure parsing JSON"),
        (gzip.compress(chrome_json(), mtime=0)[:-20], "GZIP stream incomplete"),
    ],
    ids=["unknown", "truncated", "malformed", "truncated-gzip"],
)
def test_a_broken_trace(tmp_path: Path, data: bytes, reason: str) -> None:
    trace = write(tmp_path, "broken.json", data)
    with pytest.raises(TraceLoadError, match=reason) as caught:
        query(trace, "SELECT 1 AS one")
    assert str(trace) in str(caught.value)


def test_a_missing_trace(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        query(tmp_path / "none.json", "SELECT 1 AS one")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT absent FROM slice", "no such column: absent"),
        ("SELEC", "syntax error"),
        ("SELECT 1 AS a, 2 AS a", "columns of the same name"),
        ("SELECT x'00' AS b", "blob"),
    ],
)
def test_a_bad_query(tmp_path: Path, sql: str, reason: str) -> None:
    trace = write(tmp_path, "t.json", chrome_json())
    with pytest.raises(QueryError, match=reason) as caught:
        query_many(trace, ["SELECT 1 AS one", sql, "SELECT 2 AS two"])
    assert sql in str(caught.value)


def test_one_string_is_not_a_list_of_queries(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        query_many(tmp_path, "SELECT 1 AS one")


def test_a_timeout(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) AS m FROM n"
    with pytest.raises(TraceProcessorError, match="more than 1 s"):
        query(write(tmp_path, "t.json", chrome_json()), endless, timeout=1)


def test_an_engine_that_fails_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "engine_bundle.js", b"throw new Error('engine down')")
    monkeypatch.setattr(processor, "_web_dir", lambda: tmp_path)
    with pytest.raises(TraceProcessorError, match="engine down"):
        query(write(tmp_path, "t.json", chrome_json()), "SELECT 1 AS one")

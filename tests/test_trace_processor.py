"""The trace processor helper itself: that it loads, answers, and says clearly why it does not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from trace_processor.processor import (
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


def test_a_broken_trace(tmp_path: Path) -> None:
    trace = write(tmp_path, "broken.json", chrome_json()[:-30])
    with pytest.raises(TraceProcessorError, match="incomplete") as caught:
        query(trace, "SELECT 1 AS one")
    assert str(trace) in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT absent FROM slice", "no such column: absent"),
        ("SELECT 1 AS a, 2 AS a", "columns of the same name"),
    ],
)
def test_a_bad_query(tmp_path: Path, sql: str, reason: str) -> None:
    trace = write(tmp_path, "t.json", chrome_json())
    with pytest.raises(TraceProcessorError, match=reason) as caught:
        query_many(trace, ["SELECT 1 AS one", sql, "SELECT 2 AS two"])
    assert sql in str(caught.value)

"""The history: what DuckDB and others read, and what a later watch goes on with."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow.parquet
import pytest
from msgspec.structs import replace
from programs.child import REPO

from kprof_inject.errors import KprofError
from kprof_inject.watching.history import MAX_DAYS, History, HistoryRow

HOUR_NS = 3_600_000_000_000
BEGIN_NS = 1_795_780_800_000_000_000
ROW = HistoryRow(
    time_ns=BEGIN_NS,
    host="node 1",
    rank=0,
    pid=7,
    capture="001",
    kernel="matmul",
    variant="matmul-1",
    grid="16x16x1",
    device="H100",
    launch=3,
    scope="",
    source="",
    count=1,
    total_ns=2000,
    p50_ns=2000.0,
    p99_ns=2000.0,
    duration_ns=2000,
    clock_hz=1.9e9,
)
SCOPE = replace(ROW, scope="loop[0]", source="kernel.py:7", count=512, total_ns=500_000, p50_ns=1000.0, p99_ns=1500.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history"


def test_each_hour_has_a_file_and_a_later_watch_goes_on_with_it(folder: Path) -> None:
    first = History(folder, "node 1")
    first.append([ROW, SCOPE], BEGIN_NS)
    second = History(folder, "node 1")
    second.append([replace(ROW, time_ns=BEGIN_NS + 1_000_000, clock_hz=None)], BEGIN_NS + 1_000_000)
    second.append([replace(ROW, time_ns=BEGIN_NS + HOUR_NS)], BEGIN_NS + HOUR_NS)
    assert sorted(path.name for path in folder.iterdir()) == [
        "2026-11-27T12-node_1.parquet",
        "2026-11-27T13-node_1.parquet",
    ]
    read = list(History(folder, "node 1").launches())
    assert [row.time_ns - BEGIN_NS for row in read] == [0, 1_000_000, HOUR_NS]
    assert read[0] == ROW
    assert [row.cycles for row in read] == [pytest.approx(3800), None, pytest.approx(3800)]
    assert History(folder, "node 2").launches() == []


def test_duckdb_reads_all_hosts_at_once(folder: Path) -> None:
    for host, p50_ns in (("a", 1000.0), ("b", 3000.0)):
        History(folder, host).append([replace(ROW, host=host), replace(SCOPE, host=host, p50_ns=p50_ns)], BEGIN_NS)
    rows = f"'{folder}/*.parquet' WHERE scope = 'loop[0]'"
    found = duckdb.sql(f"SELECT host, max(p50_ns), min(time) FROM {rows} GROUP BY host ORDER BY host").fetchall()
    assert [row[:2] for row in found] == [("a", 1000.0), ("b", 3000.0)]
    assert found[0][2].timestamp() == BEGIN_NS / 1e9


def test_the_query_in_the_docs_works(folder: Path) -> None:
    History(folder, "a").append([ROW, SCOPE], BEGIN_NS)
    (query,) = re.findall("```sql\n(.*?kprof_out/.*?)```", (REPO / "docs" / "ci-and-watch.md").read_text(), re.DOTALL)
    rows = duckdb.sql(query.replace("kprof_out/watch/history", str(folder))).fetchall()
    assert [row[1:] for row in rows] == [("matmul", "", 2000.0, 1), ("matmul", "loop[0]", 1000.0, 1)]


def test_the_docs_name_all_columns(folder: Path) -> None:
    History(folder, "a").append([ROW], BEGIN_NS)
    (path,) = folder.iterdir()
    (line,) = re.findall("Columns: (.*?)DuckDB", (REPO / "docs" / "ci-and-watch.md").read_text(), re.DOTALL)
    assert set(re.findall("`(\\w+)`", line)) == set(pyarrow.parquet.read_schema(path).names)


def test_old_files_go_and_others_stay(folder: Path) -> None:
    History(folder, "a").append([ROW], BEGIN_NS)
    History(folder, "b").append([ROW], BEGIN_NS)
    later = History(folder, "a")
    later.append([ROW], BEGIN_NS + (24 * MAX_DAYS - 1) * HOUR_NS)
    assert len(list(folder.iterdir())) == 3
    later.append([ROW], BEGIN_NS + (24 * MAX_DAYS + 1) * HOUR_NS)
    assert sorted(path.name[-9:-8] for path in folder.iterdir()) == ["a", "a", "b"]


@pytest.mark.parametrize("data", [b"", b"PAR1 and nothing else", "another table"])
def test_a_file_that_is_no_history_is_named(folder: Path, data: bytes | str) -> None:
    folder.mkdir()
    path = folder / "2026-11-27T12-a.parquet"
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        duckdb.sql(f"COPY (SELECT 1 AS one) TO '{path}'")
    history = History(folder, "a")
    with pytest.raises(KprofError, match="is not a history"):
        history.launches()
    with pytest.raises(KprofError, match="is not a history"):
        history.append([ROW], BEGIN_NS)

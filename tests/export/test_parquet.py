"""Parquet files, read back by pyarrow, DuckDB and pandas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from buffers import Cta, Scope, end, save_launch, start
from replacing import replace
from tabled import decode_ranks, rows_of
from traces import parquet_table, write_trace

from kprof_inject.capture.mode import RecordCost
from kprof_inject.errors import KprofError
from kprof_inject.export import tables as module
from kprof_inject.export.formats import TraceFile
from kprof_inject.export.tables import METADATA_KEY
from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.version import __version__

MISSING = {
    "records_written": 5,
    "records_lost": 0,
    "records_damaged": 1,
    "open_starts": 1,
    "stray_ends": 1,
    "ctas_never_ran": 1,
    "ctas_damaged": 4,
}


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return decode_ranks(tmp_path_factory.mktemp("capture"), [0, 1])


@pytest.fixture(scope="module")
def path(timelines: list[Timeline], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parquet") / "scopes.parquet"
    assert write_trace(path, timelines) == path.stat().st_size
    return path


def test_every_scope_is_a_row_with_all_its_columns(timelines: list[Timeline], path: Path) -> None:
    assert pq.read_table(path).to_pylist() == rows_of(timelines)


def test_numbers_keep_their_types_and_texts_are_dictionaries(path: Path) -> None:
    schema = pq.read_schema(path)
    assert [schema.field(name).type.to_pandas_dtype() for name in SCOPE_COLUMNS.names or ()] == [
        SCOPE_COLUMNS[name].type for name in SCOPE_COLUMNS.names or ()
    ]
    for name in ("kernel", "variant", "host", "name", "kind", "partition", "source", "called_from"):
        assert str(schema.field(name).type) == "dictionary<values=string, indices=int32, ordered=0>"


def test_it_is_compressed_with_zstd(path: Path) -> None:
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert {group.column(column).compression for column in range(group.num_columns)} == {"ZSTD"}


def test_duckdb_reads_it(timelines: list[Timeline], path: Path) -> None:
    sql = f"SELECT rank, device, launch, name, count(*), sum(self_ns) FROM '{path}' GROUP BY ALL"
    expected: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in rows_of(timelines):
        key = (row["rank"], row["device"], row["launch"], row["name"])
        count, total = expected.get(key, (0, 0))
        expected[key] = count + 1, total + row["self_ns"]
    assert {tuple(key): (count, int(total)) for *key, count, total in duckdb.execute(sql).fetchall()} == expected


def test_the_file_says_who_wrote_it_and_what_is_known_of_each_launch(timelines: list[Timeline], tmp_path: Path) -> None:
    first = timelines[0]
    kernel = replace(first.launch.kernel, record_cost=RecordCost(33.5, 33.5, 12.5))
    costly = replace(first, launch=replace(first.launch, kernel=kernel))
    metadata = pq.read_schema(_write(tmp_path, [costly, timelines[1]])).metadata
    said = json.loads(metadata[METADATA_KEY.encode()])
    assert said["version"] == __version__
    one, other = said["launches"]
    assert (one["kernel"], one["launch"], one["grid"], one["num_warps"]) == ("mat,mul", 0, [3, 1, 1], 2)
    assert one["clock_mhz"] == round(first.clock.clock_hz / 1e6, 3)
    assert one["records_written"] == first.records_written
    costs = ("record_cost_cycles", "record_cost_error_cycles")
    assert tuple(one[key] for key in costs) == (33.5, 12.5)
    assert (one["host"], one["pid"], one["rank"], one["device"]) == ("a,b", 70, 0, 0)
    assert (other["rank"], *(other[key] for key in costs)) == (1, None, None)


def test_what_is_missing_of_a_launch_is_told(tmp_path: Path) -> None:
    warp = [start(0, 100), end(0, 200), end(1, 300), start(1, 400), start(7, 500)]
    launch = save_launch(tmp_path / "capture", [Scope("k"), Scope("load", "op", 0)], [Cta([warp]), None], slots=8)
    timeline = replace(decode_launch(launch), ctas_damaged=4)
    said = json.loads(pq.read_schema(_write(tmp_path, [timeline])).metadata[METADATA_KEY.encode()])["launches"][0]
    assert {name: said[name] for name in MISSING} == MISSING
    write_trace(tmp_path / "trace.json", [timeline])
    trace = json.loads((tmp_path / "trace.json").read_bytes())
    (event,) = (event for event in trace["traceEvents"] if event.get("cat") == "launch")
    for facts in (event["args"], trace["otherData"][0]):
        assert {name: facts[name] for name in MISSING} == MISSING


def _write(folder: Path, timelines: Sequence[Timeline]) -> Path:
    write_trace(folder / "t.parquet", timelines)
    return folder / "t.parquet"


@pytest.mark.parametrize("rows", [1, 200, 300])
def test_small_launches_share_a_row_group(
    timelines: list[Timeline], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_GROUP_ROWS", rows)
    table = pq.ParquetFile(_write(tmp_path, timelines))
    sizes = [table.metadata.row_group(number).num_rows for number in range(table.num_row_groups)]
    assert all(size >= rows for size in sizes[:-1])
    assert len(sizes) == {1: 4, 200: 2, 300: 1}[rows]
    assert table.read().to_pylist() == rows_of(timelines)


def test_groups_are_handed_on_as_they_are_full(timelines: list[Timeline], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_GROUP_ROWS", 1)
    decoded: list[int] = []
    counted = [_Counted(timeline, decoded) for timeline in timelines]
    chunks = parquet_table(counted)  # type: ignore[arg-type]
    written = 0
    while written <= len(b"PAR1"):
        written += len(next(chunks))
    assert len(decoded) < len(timelines)


class _Counted:
    """A timeline that tells when it is decoded."""

    def __init__(self, timeline: Timeline, decoded: list[int]) -> None:
        self._timeline = timeline
        self._decoded = decoded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timeline, name)

    def blocks(self) -> Any:
        self._decoded.append(1)
        return self._timeline.blocks()


def test_without_pyarrow_it_is_said_before_anything_is_written(
    timelines: list[Timeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(KprofError, match="needs pyarrow, which is not installed") as caught:
        TraceFile.at(tmp_path / "t.parquet")
    assert caught.value.hint == "pip install pyarrow"
    with pytest.raises(KprofError, match="pyarrow"):
        write_trace(tmp_path / "t.parquet", timelines)
    assert list(tmp_path.iterdir()) == []

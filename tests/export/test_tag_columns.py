"""Tags in what is exported: arguments of traces, columns of tables."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from buffers import Cta, Scope, end, save_launch, start, tagged
from traces import write_trace

from kprof_inject import to_arrow, to_pandas
from kprof_inject.export.tables import COLUMN_TYPES
from kprof_inject.timeline.timeline import Timeline, decode_launch

TILES = (7, -3, None, 2_000_000_000)
ANOTHER = [Scope("kernel", tags=("slot",))]


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    """A launch with tiles, one of which was lost, and one with slots."""
    folder = tmp_path_factory.mktemp("capture")
    entries = [start(0, 1000)]
    for number, tile in enumerate(TILES):
        entries += tagged(2, tile) if tile is not None else ()
        entries += [start(1, 1100 + 100 * number), end(1, 1150 + 100 * number)]
    scopes = [Scope("kernel"), Scope("work", "op", 0, tags=("tile",))]
    first = save_launch(folder / "a", scopes, [Cta([[*entries, end(0, 1600)]])], 64)
    second = save_launch(folder / "b", ANOTHER, [Cta([[*tagged(1, 5), start(0, 1000), end(0, 1100)]])], 64)
    return [decode_launch(first), decode_launch(second)]


EXPECTED = {"tag_tile": [None, *TILES, None], "tag_slot": [None, None, None, None, None, 5]}


def test_tables_have_a_column_for_each_tag_behind_all_others(timelines: list[Timeline], tmp_path: Path) -> None:
    table = to_arrow(timelines)
    assert table.column_names == [*COLUMN_TYPES, *EXPECTED]
    assert {name: table.column(name).to_pylist() for name in EXPECTED} == EXPECTED
    frame = to_pandas(timelines)
    assert {name: [None if value != value else value for value in frame[name].astype(float)] for name in EXPECTED} == (
        EXPECTED
    )
    path = tmp_path / "scopes.parquet"
    write_trace(path, timelines)
    assert pq.read_table(path).column("tag_tile").to_pylist() == EXPECTED["tag_tile"]


def test_the_cell_of_a_scope_without_a_value_is_empty(timelines: list[Timeline], tmp_path: Path) -> None:
    path = tmp_path / "scopes.csv"
    write_trace(path, timelines)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    for name, values in EXPECTED.items():
        assert [row[name] for row in rows] == ["" if value is None else str(value) for value in values]
    assert len({*map(len, rows)}) == 1


def test_traces_have_the_values_among_the_arguments(timelines: list[Timeline], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, timelines)
    events = json.loads(path.read_text())["traceEvents"]
    tiles = [event["args"].get("tag_tile") for event in events if event.get("name") == "work"]
    assert tiles == list(TILES)
    assert [event["args"].get("tag_slot") for event in events if event.get("cat") == "func"] == [None, 5]
    write_trace(tmp_path / "trace.pftrace", timelines)
    assert b"tag_tile" in (tmp_path / "trace.pftrace").read_bytes()

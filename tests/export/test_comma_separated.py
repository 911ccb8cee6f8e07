"""Comma-separated values, as text and read back by Python's own reader, by pandas and by DuckDB."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from buffers import Cta, Scope, end, save_launch, start
from tabled import HEADER, SCOPES, decode_ranks, rows_of
from traces import csv_table, write_trace

from kprof_inject.timeline.timeline import Timeline, decode_launch


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return decode_ranks(tmp_path_factory.mktemp("capture"), [None, 3])


@pytest.fixture
def path(timelines: list[Timeline], tmp_path: Path) -> Path:
    write_trace(tmp_path / "t.csv", timelines)
    return tmp_path / "t.csv"


def text_of(timelines: list[Timeline]) -> str:
    return b"".join(csv_table(timelines)).decode()


def test_every_scope_is_a_line_with_all_its_columns(timelines: list[Timeline]) -> None:
    read = list(csv.DictReader(io.StringIO(text_of(timelines), newline=""), strict=True))
    # By hand: a warp has a function, and in each iteration that and all of the others.
    assert len(read) == 2 * sum(2 * (1 + n * (len(SCOPES) - 1)) for n in (3, 2, 1, 4))
    assert read == [{name: str(value) for name, value in row.items()} for row in rows_of(timelines)]


def test_the_text_of_a_line(tmp_path: Path) -> None:
    scopes = [Scope('=a "b", c', "op", -1, ("/a b.py", 7)), Scope("it's; plain\0", "op", 0)]
    warp = [start(0, 100), start(1, 150), end(1, 180), end(0, 1_000_100)]
    launch = save_launch(tmp_path, scopes, [None, Cta([warp], 5, 70, 1_000_128, 1_000_200)], slots=4)
    (first, second) = decode_launch(launch).scopes
    times = [
        ",".join(str(row[name]) for name in ("start_ns", "end_ns", "duration_cycles", "duration_ns", "self_ns"))
        + ",-1,-1,-1,-1"
        for row in (first, second)
    ]
    assert text_of([decode_launch(launch)]) == (
        f"{HEADER}\n"
        f'kernel,v0,,"\'=a ""b"", c",op,,/a b.py:7,,7,-1,0,0,1,5,0,0,0,0,-1,0,3,100,1000100,{times[0]}\n'
        f"kernel,v0,,it's; plain\N{REPLACEMENT CHARACTER},op,,,,7,-1,0,0,1,5,0,1,1,0,-1,1,2,150,180,{times[1]}\n"
    )


def test_launches_without_scopes_leave_the_header(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    never_ran = decode_launch(save_launch(tmp_path / "1", [Scope("k")], [None], slots=2))
    without_table = decode_launch(save_launch(tmp_path / "2", [], [Cta([[]])], slots=2))
    assert text_of([]) == text_of([never_ran, without_table]) == HEADER + "\n"


def test_pandas_and_duckdb_read_it(timelines: list[Timeline], path: Path) -> None:
    frame = pd.read_csv(path, keep_default_na=False)
    assert frame.to_dict("records") == rows_of(timelines)
    cycles = sum(row["end_cycles"] - row["start_cycles"] for row in rows_of(timelines))
    found = duckdb.execute(f"SELECT count(*), sum(end_cycles - start_cycles) FROM '{path}'").fetchall()
    assert found == [(len(frame), cycles)]

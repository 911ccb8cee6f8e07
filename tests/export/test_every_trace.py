"""Whatever is exported from wherever can be read: JSON by a strict parser, traces by the trace processor, which counts
the scopes, tables by what reads tables."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from drawn import FAULTS
from sources import HOOKS, SOURCES
from trace_processor.processor import query_many
from traces import write_trace

from kprof_inject.export.formats import FORMATS
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.timeline.timeline import Timeline

DRAWINGS = [ending for ending, known in FORMATS.items() if known.is_drawing]
PLAIN = [ending for ending in DRAWINGS if f"{ending}.gz" in DRAWINGS]
TABLES = [ending for ending in FORMATS if ending not in DRAWINGS]
NOT_SCOPES = ("launch", "host", "lost", "in flight", "kernel")
SCOPES = f"SELECT count(*) AS scopes FROM slice WHERE category NOT IN {NOT_SCOPES}"


@pytest.fixture(scope="module", params=SOURCES)
def source(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def timelines(source: str, tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return SOURCES[source](tmp_path_factory.mktemp(source))


def strictly_parsed(text: bytes) -> Any:
    """What JSON says. Raises for what many readers refuse: text that is not UTF-8, NaN, a name that comes twice."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        assert len(made) == len(pairs), f"a name comes twice: {[name for name, _ in pairs]}"
        return made

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text.decode(), object_pairs_hook=members, parse_constant=refuse)


def contents(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def scopes_of(timelines: Sequence[Timeline]) -> int:
    return sum(timeline.scope_count for timeline in timelines)


def require_readable(path: Path, timelines: Sequence[Timeline]) -> None:
    if path.suffix == ".json":
        events = strictly_parsed(path.read_bytes())["traceEvents"]
        drawn = [event for event in events if event["ph"] in ("X", "i") and event["cat"] not in NOT_SCOPES]
        assert len(drawn) == scopes_of(timelines)
    faults, (counted,) = query_many(path, [FAULTS, SCOPES])
    assert faults == []
    assert counted["scopes"] == scopes_of(timelines)


def require_same_unpacked(path: Path, plain: Path) -> None:
    assert contents(path) == plain.read_bytes()


@pytest.mark.parametrize("ending", PLAIN)
def test_a_drawing_is_readable_and_has_all_scopes(timelines: list[Timeline], tmp_path: Path, ending: str) -> None:
    write_trace(tmp_path / f"trace{ending}", timelines)
    require_readable(tmp_path / f"trace{ending}", timelines)
    write_trace(tmp_path / f"trace{ending}.gz", timelines)
    require_same_unpacked(tmp_path / f"trace{ending}.gz", tmp_path / f"trace{ending}")


@pytest.mark.parametrize("ending", [".json", *(pytest.param(one, marks=pytest.mark.exhaustive) for one in PLAIN[1:])])
def test_so_it_is_with_hooks(timelines: list[Timeline], tmp_path: Path, ending: str) -> None:
    write_trace(tmp_path / f"trace{ending}", timelines, hooks=HOOKS)
    require_readable(tmp_path / f"trace{ending}", timelines)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUT_NAMES[1:])
@pytest.mark.parametrize("ending", PLAIN)
def test_so_it_is_in_every_layout(timelines: list[Timeline], tmp_path: Path, ending: str, layout: str) -> None:
    write_trace(tmp_path / f"trace{ending}", timelines, layout)
    require_readable(tmp_path / f"trace{ending}", timelines)


def test_every_drawing_is_among_them() -> None:
    assert {*DRAWINGS} == {*PLAIN, *(f"{ending}.gz" for ending in PLAIN)}


def test_a_table_has_a_row_for_each_scope(timelines: list[Timeline], tmp_path: Path) -> None:
    for ending in TABLES:
        path = tmp_path / f"table{ending}"
        write_trace(path, timelines)
        if ".csv" in ending:
            rows = list(csv.reader(io.StringIO(contents(path).decode(), newline="")))
            assert {len(row) for row in rows} == {len(rows[0])}
            assert len(rows) == 1 + scopes_of(timelines)
        elif ending == ".parquet":
            assert pq.read_table(path).num_rows == scopes_of(timelines)
        else:
            assert ran_in(strictly_parsed(path.read_bytes())[0]) == scopes_of(timelines) + len(timelines)


def ran_in(frame: dict[str, Any]) -> int:
    """How often a frame of Hatchet's and those in it ran."""
    return int(frame["metrics"].get("count", 0)) + sum(map(ran_in, frame["children"]))

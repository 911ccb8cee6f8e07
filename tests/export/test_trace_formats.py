"""Which file names mean which format, and that a file is replaced at once."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from buffers import Cta, Scope, end, save_launch, start
from numpy.typing import NDArray
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace  # type: ignore[import-untyped]
from snapshots import check
from traces import chrome_trace, csv_table, perfetto_trace, write_trace

from kprof_inject.errors import KprofError
from kprof_inject.export.formats import TraceFile, format_of, gzipped
from kprof_inject.export.tables import hatchet_tree
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.timeline.timeline import Timeline, decode_launch


@pytest.fixture
def timelines(tmp_path: Path) -> list[Timeline]:
    launch = save_launch(tmp_path / "capture", [Scope("k")], [Cta([[start(0, 100), end(0, 900)]])], slots=2)
    return [decode_launch(launch)]


@pytest.mark.parametrize(
    ("ending", "write"),
    [(".json", chrome_trace), (".pftrace", perfetto_trace), (".csv", csv_table), (".hatchet", hatchet_tree)],
)
def test_the_ending_says_the_format(
    ending: str, write: Callable[..., Iterator[bytes]], timelines: list[Timeline], tmp_path: Path
) -> None:
    path = tmp_path / f"a.json{ending}"
    assert write_trace(path, timelines) == path.stat().st_size
    assert path.read_bytes() == b"".join(write(timelines))


def test_parquet_is_parquet(timelines: list[Timeline], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    assert write_trace(path, timelines) == path.stat().st_size
    assert pyarrow.parquet.read_table(path)["name"].to_pylist() == ["k"]


@pytest.mark.parametrize("ending", [".json", ".pftrace"])
def test_each_layout_is_written_as_it_is_asked_for(ending: str, timelines: list[Timeline], tmp_path: Path) -> None:
    write: Callable[..., Iterator[bytes]] = {".json": chrome_trace, ".pftrace": perfetto_trace}[ending]
    for name in LAYOUT_NAMES:
        for compressed in ("", ".gz"):
            path = tmp_path / f"{name}{ending}{compressed}"
            write_trace(path, timelines, name)
            data = gzip.decompress(path.read_bytes()) if compressed else path.read_bytes()
            assert data == b"".join(write(timelines, name))
    assert len({(tmp_path / f"{name}{ending}").read_bytes() for name in LAYOUT_NAMES}) == len(LAYOUT_NAMES)
    assert (tmp_path / f"sm{ending}").read_bytes() == b"".join(write(timelines))


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".hatchet"])
def test_what_draws_nothing_has_no_layout(ending: str, timelines: list[Timeline], tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    with pytest.raises(KprofError) as caught:
        write_trace(path, timelines, "sm")
    check("export/trace_registry", str(caught.value).replace(f" {ending} ", " ENDING "), "--layout")
    assert caught.value.exit_code == 2
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "usual"), [("a.JSON", "a.json"), ("a.Csv.GZ", "a.csv.gz"), ("A.PFTrace", "A.pftrace")]
)
def test_an_ending_may_be_in_capitals(name: str, usual: str, timelines: list[Timeline], tmp_path: Path) -> None:
    for each in (name, usual):
        (tmp_path / each).unlink(missing_ok=True)
        write_trace(tmp_path / each, timelines)
    assert (tmp_path / name).read_bytes() == (tmp_path / usual).read_bytes()
    assert format_of(Path(name)) is format_of(Path(usual))


def test_each_format_says_what_reads_it() -> None:
    advice = {ending: format_of(Path(f"a{ending}")).advice for ending in (".json", ".pftrace.gz", ".csv", ".hatchet")}
    assert "https://ui.perfetto.dev" in advice[".json"]
    assert advice[".pftrace.gz"] == advice[".json"]
    assert "DuckDB" in advice[".csv"]
    assert "proton-viewer -m " in advice[".hatchet"]
    assert format_of(Path("a.json")).is_drawing
    assert not format_of(Path("a.csv")).is_drawing


def test_equal_timelines_make_equal_files(timelines: list[Timeline], tmp_path: Path) -> None:
    for name in ("1.json.gz", "2.json.gz"):
        write_trace(tmp_path / name, timelines)
    assert (tmp_path / "1.json.gz").read_bytes() == (tmp_path / "2.json.gz").read_bytes()


def test_any_chunks_are_one_gzip_member() -> None:
    packed = b"".join(gzipped([b"", b"abc" * 100_000, b"", b"d"]))
    decompressor = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    assert decompressor.decompress(packed) == b"abc" * 100_000 + b"d"
    assert decompressor.eof
    assert decompressor.unused_data == b""


@pytest.mark.parametrize(
    "name",
    [
        "trace",
        "trace.txt",
        "trace.json.zip",
        "trace.parquet.gz",
        ".json",
        ".json.gz",
        "trace.json ",
    ],
)
def test_another_ending_is_a_usage_error(name: str, timelines: list[Timeline], tmp_path: Path) -> None:
    with pytest.raises(KprofError, match="no extension of a known format") as caught:
        write_trace(tmp_path / name, timelines)
    assert caught.value.exit_code == 2
    check("export/trace_registry", caught.value.hint, "extensions")
    assert not (tmp_path / name).exists()


def test_a_name_is_judged_without_writing(tmp_path: Path) -> None:
    TraceFile.at(tmp_path / "a.json")
    with pytest.raises(KprofError):
        TraceFile.at(tmp_path / "a.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_an_error(timelines: list[Timeline], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(KprofError, match=r"cannot write .*trace\.json: ") as caught:
        write_trace(tmp_path / "file" / "trace.json", timelines)
    assert caught.value.exit_code == 1


def test_a_trace_that_fails_leaves_the_old_file(
    timelines: list[Timeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_text("old")

    def no_memory(timeline: Timeline) -> Iterator[NDArray[np.void]]:
        raise MemoryError

    monkeypatch.setattr(Timeline, "blocks", no_memory)
    with pytest.raises(MemoryError):
        write_trace(path, timelines)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["trace.json"]


def test_chunks_are_made_as_they_are_asked_for(timelines: list[Timeline]) -> None:
    assert next(chrome_trace(timelines)).startswith(b'{"displayTimeUnit":"ns"')
    assert Trace.FromString(next(perfetto_trace(timelines))).packet

"""Which file names are traces, and that a trace replaces a file at once."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from buffers import Cta, Scope, end, save_launch, start

from kprof_inject.errors import KprofError
from kprof_inject.export import chrome
from kprof_inject.export.chrome import chrome_trace
from kprof_inject.export.gzip import gzipped
from kprof_inject.export.registry import trace_writer, write_trace
from kprof_inject.timeline.timeline import Timeline, decode_launch


@pytest.fixture
def timelines(tmp_path: Path) -> list[Timeline]:
    launch = save_launch(tmp_path / "capture", [Scope("k")], [Cta([[start(0, 100), end(0, 900)]])], slots=2)
    return [decode_launch(launch)]


def test_json_is_a_chrome_trace(timelines: list[Timeline], tmp_path: Path) -> None:
    path = tmp_path / "a.b.json"
    size = write_trace(path, timelines)
    assert path.read_bytes() == b"".join(chrome_trace(timelines))
    assert size == path.stat().st_size
    assert [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"] == ["k"]


def test_json_gz_is_the_same_compressed(timelines: list[Timeline], tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    size = write_trace(path, timelines)
    assert gzip.decompress(path.read_bytes()) == b"".join(chrome_trace(timelines))
    assert size == path.stat().st_size


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


@pytest.mark.parametrize("name", ["trace", "trace.txt", "trace.json.zip", "json", ".json", ".json.gz", "trace.json "])
def test_another_ending_is_a_usage_error(name: str, timelines: list[Timeline], tmp_path: Path) -> None:
    with pytest.raises(KprofError, match="does not say in which format") as caught:
        write_trace(tmp_path / name, timelines)
    assert caught.value.exit_code == 2
    assert ".json or .json.gz" in caught.value.hint
    assert not (tmp_path / name).exists()


def test_a_name_is_judged_without_writing(tmp_path: Path) -> None:
    assert trace_writer(tmp_path / "a.json") is chrome_trace
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

    def no_memory(*args: object) -> list[str]:
        raise MemoryError

    monkeypatch.setattr(chrome, "_slices", no_memory)
    with pytest.raises(MemoryError):
        write_trace(path, timelines)
    assert path.read_text() == "old"


def test_chunks_are_made_as_they_are_asked_for(timelines: list[Timeline]) -> None:
    chunks = chrome_trace(timelines)
    assert isinstance(chunks, Iterator)
    assert next(chunks).startswith(b'{"displayTimeUnit":"ns"')

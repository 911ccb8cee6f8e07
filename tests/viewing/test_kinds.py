"""What is taken for a trace, by how it begins."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from programs.child import REPO

from kprof_inject.capture.reader import read_capture
from kprof_inject.errors import KprofError
from kprof_inject.export.formats import write_trace
from kprof_inject.timeline.timeline import decode_launch
from kprof_inject.viewing.site import open_trace

DEMO = REPO / "tests/captures/matmul"
# Of five bytes each, and many more than are looked at.
PACKETS = b"\x0a\x03\x08\x01\x10" * 20_000


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".pftrace", ".pftrace.gz"])
def test_what_trace_draws_is_a_trace(tmp_path: Path, ending: str) -> None:
    write_trace(tmp_path / f"t{ending}", [decode_launch(launch) for launch in read_capture(DEMO).launches])
    (tmp_path / f"t{ending}").rename(tmp_path / "t")  # the name does not matter
    open_trace(tmp_path / "t").close()


@pytest.mark.parametrize(
    "content",
    [
        b'{"traceEvents": []}',
        b' \n{\n  "displayTimeUnit": "ns"',
        b'[\n{"ph": "X"',
        PACKETS[:5],
        PACKETS[:500],
        PACKETS,
        b"\x0a\x00" * 3,
        b"\x0a\x80\x80\x08" + bytes(1 << 17),
    ],
)
def test_these_are_traces(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    open_trace(tmp_path / "t").close()
    (tmp_path / "t").write_bytes(gzip.compress(content))
    open_trace(tmp_path / "t").close()


@pytest.mark.parametrize(
    "content",
    [
        b"# README\n",
        b"\n# A text after an empty line\n" * 5_000,
        b"\n\n\n\n\n\nSix newlines, then this.\n",
        b"kernel,variant\n",
        b"PAR1\x15\x04",
        b"null",
        b"[]",
        b"{}",
        b"\x89PNG\r\n",
        b"\x0a",
        b"\x0a\x80",
        b"\x0a\x05\x08",
        PACKETS[:500] + b"\x12",
    ],
)
def test_these_are_none(tmp_path: Path, content: bytes) -> None:
    for file, is_gzip in ((tmp_path / "t.json", False), (tmp_path / "t.json.gz", True)):
        file.write_bytes(gzip.compress(content) if is_gzip else content)
        with pytest.raises(KprofError) as raised:
            open_trace(file)
        assert raised.value.what == f"{file} is not a trace"
        assert ".pftrace" in raised.value.hint


@pytest.mark.parametrize(
    ("content", "what"),
    [(b"", "is empty"), (gzip.compress(b"", mtime=0), "is empty"), (b"\x1f\x8b and no more", "is damaged: ")],
)
def test_it_says_what_is_wrong(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(KprofError, match=f"t.json {what}"):
        open_trace(tmp_path / "t.json")


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(PACKETS)
    (tmp_path / "link").symlink_to("t")
    with open_trace(tmp_path / "link") as file:
        assert os.pread(file.fileno(), len(PACKETS), 0) == PACKETS


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(KprofError, match="it is not a regular file"):
            open_trace(path)


def test_little_of_a_large_file_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"{" + b" " * (1 << 26)))
    with pytest.raises(KprofError, match="is not a trace"):
        open_trace(tmp_path / "t.gz")

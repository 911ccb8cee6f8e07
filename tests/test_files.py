"""Files are replaced at once: a reader sees the old bytes or the new ones, never a part. What is no file is not."""

from __future__ import annotations

import csv
import gzip
import io
import os
import stat
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.files import csv_cell, read_gzip, read_text, write_chunks, write_text


def test_chunks_become_one_file_and_their_size_is_told(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    assert write_chunks(path, [b"ab", b"", memoryview(b"cde")]) == 5
    assert path.read_bytes() == b"abcde"


def test_a_name_in_a_csv_table_is_no_formula() -> None:
    for name in ("=1+1", "+1", "-1", "@a", "\t=1", "\r=1"):
        (row,) = csv.reader(io.StringIO(csv_cell(name), newline=""))
        assert row == [f"'{name}"]


def test_compressed_contents_are_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(bytes(1 << 24)))
    assert read_gzip(path, 1 << 24) == bytes(1 << 24)
    tracemalloc.start()
    try:
        with pytest.raises(KprofError, match=r"file\.gz is too large: files of its kind have at most 4096 bytes"):
            read_gzip(path, 1 << 12)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_is_no_gzip_file_is_an_error(tmp_path: Path) -> None:
    for data in (b"text", gzip.compress(b"text")[:-4]):
        (tmp_path / "file.gz").write_bytes(data)
        with pytest.raises(KprofError, match=r"cannot read .*file\.gz: "):
            read_gzip(tmp_path / "file.gz", 1 << 12)


def test_the_old_file_stands_until_the_last_chunk_is_written_and_if_none_follows(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    seen = []

    def chunks(is_whole: bool) -> Iterator[bytes]:
        yield b"new "
        seen.append(path.read_bytes())
        if not is_whole:
            raise RuntimeError("out of ideas")
        yield b"bytes"

    with pytest.raises(RuntimeError, match="out of ideas"):
        write_chunks(path, chunks(is_whole=False))
    write_chunks(path, chunks(is_whole=True))
    assert seen == [b"old", b"old"]
    assert path.read_bytes() == b"new bytes"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way_is_an_os_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError) as failed:
        write_chunks(tmp_path / "file", [b"x"])
    # It is that file which the user named, not the one that is written first.
    assert failed.value.filename == str(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_links_and_modes_stay(tmp_path: Path) -> None:
    target = tmp_path / "there" / "target"
    target.parent.mkdir()
    (tmp_path / "second").symlink_to("there/target")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    for text in ("to nothing", "to a file"):
        write_text(tmp_path / "first", text)
        assert target.read_text() == text
        target.chmod(0o640)
    assert os.readlink(tmp_path / "first") == str(tmp_path / "second")
    assert os.readlink(tmp_path / "second") == "there/target"
    write_text(tmp_path / "first", "new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_pipe_gets_the_chunks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert write_chunks(tmp_path / "pipe", [b"ne", b"w"]) == 3
    reader.join()
    assert read == [b"new"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_text_keeps_its_line_ends_and_must_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("a\r\né\n".encode())
    assert read_text(tmp_path / "f") == "a\r\né\n"
    (tmp_path / "f").write_bytes(b"ab\xff")
    with pytest.raises(KprofError, match="byte 2 is not UTF-8"):
        read_text(tmp_path / "f")

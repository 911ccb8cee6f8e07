"""Files are replaced at once: a reader sees the old bytes or the new ones, never a part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.files import read_object, read_text, write_chunks, write_json, write_text


def failing_chunks() -> Iterator[bytes]:
    yield b"half"
    raise RuntimeError("out of ideas")


def test_chunks_become_one_file_and_their_size_is_told(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "file"
    assert write_chunks(path, [b"ab", b"", memoryview(b"cde")]) == 5
    assert path.read_bytes() == b"abcde"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="out of ideas"):
        write_chunks(path, failing_chunks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_where_there_was_no_file_leaves_none(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="out of ideas"):
        write_chunks(tmp_path / "file", failing_chunks())
    assert list(tmp_path.iterdir()) == []


def test_the_old_file_stands_until_the_last_chunk_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    seen = []

    def chunks() -> Iterator[bytes]:
        yield b"new "
        seen.append(path.read_bytes())
        yield b"bytes"
        seen.append(path.read_bytes())

    write_chunks(path, chunks())
    assert seen == [b"old", b"old"]
    assert path.read_bytes() == b"new bytes"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_that_has_the_old_file_open_reads_on_in_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_chunks(path, [b"new"])
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_a_folder_in_the_way_is_an_os_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError) as failed:
        write_chunks(tmp_path / "file", [b"x"])
    # It is that file which the user named, not the one that is written first.
    assert failed.value.filename == str(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_read_for_a_file_is_told_by_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failed:
        write_chunks(tmp_path / "file", ((tmp_path / name).read_bytes() for name in ("nothing",)))
    assert failed.value.filename == str(tmp_path / "nothing")


def test_json_is_read_back(tmp_path: Path) -> None:
    values = {"b": [1, 2.5, None], "a": 'é "\\'}
    write_json(tmp_path / "f.json", values)
    assert read_object(tmp_path / "f.json", "a", "b") == values


def test_missing_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KprofError, match=r"cannot read .*none\.json: No such file"):
        read_object(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [('{"a": 1', "damaged: Expecting"), ("[1]", "damaged: no JSON object"), ('{"a": 1}', "damaged: it lacks b, c")],
)
def test_damaged_json_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    write_text(tmp_path / "f.json", text)
    with pytest.raises(KprofError, match=rf"f\.json is {reason}"):
        read_object(tmp_path / "f.json", "a", "b", "c")


def test_text_keeps_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("a\r\né\n".encode())
    assert read_text(tmp_path / "f") == "a\r\né\n"


def test_text_that_is_no_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ab\xff")
    with pytest.raises(KprofError, match="byte 2 is not UTF-8"):
        read_text(tmp_path / "f")

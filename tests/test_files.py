"""Files are replaced at once: a reader sees the old bytes or the new ones, never a part. What is no file is not."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.files import read_text, write_chunks, write_json, write_text


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


# ---- what is no regular file of one name -----------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_text(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", mode)


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_file_keeps_its_owner_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    wanted = (12345, 54321) if os.getuid() == 0 else (os.getuid(), os.getgid())
    os.chown(path, *wanted)
    write_text(path, "new")
    assert (path.stat().st_uid, path.stat().st_gid) == wanted


@pytest.mark.parametrize("old", [True, False], ids=["to a file", "to nothing"])
def test_links_stay_and_what_they_lead_to_is_written(tmp_path: Path, old: bool) -> None:
    target = tmp_path / "there" / "target"
    target.parent.mkdir()
    if old:
        target.write_text("old")
        target.chmod(0o600)
    (tmp_path / "second").symlink_to("there/target")
    (tmp_path / "first").symlink_to(tmp_path / "second")
    write_text(tmp_path / "first", "new")
    assert os.readlink(tmp_path / "first") == str(tmp_path / "second")
    assert os.readlink(tmp_path / "second") == "there/target"
    assert target.read_text() == "new"
    assert not old or stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_links_in_a_circle_are_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links") as failed:
        write_text(tmp_path / "a", "new")
    assert failed.value.filename == str(tmp_path / "a")


def test_a_file_of_two_names_is_written_once_all_is_made(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old and longer")
    os.link(tmp_path / "one", tmp_path / "two")
    with pytest.raises(RuntimeError, match="out of ideas"):
        write_chunks(tmp_path / "one", failing_chunks())
    assert (tmp_path / "two").read_text() == "old and longer"
    assert write_chunks(tmp_path / "one", [b"ne", b"w"]) == 3
    assert (tmp_path / "two").read_text() == "new"
    assert (tmp_path / "one").stat().st_nlink == 2


def test_a_pipe_gets_the_chunks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert write_chunks(tmp_path / "pipe", [b"ne", b"w"]) == 3
    reader.join()
    assert read == [b"new"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_device_stays_one(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    assert write_chunks(tmp_path / "null", [b"new"]) == 3
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "{}/link"])
def test_an_open_file_is_written_on(tmp_path: Path, name: str) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(b"before ")
        file.flush()
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{file.fileno()}")
        write_text(Path(name.format(tmp_path if "link" in name else file.fileno())), "new")
        file.write(b" after")
    assert (tmp_path / "file").read_text() == "before new after"


def test_an_open_file_that_is_closed_is_an_os_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor: '/dev/fd/999'"):
        write_text(Path("/dev/fd/999"), "new")


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)
    write_text(path, "new")
    assert path.read_text() == "new"


# ---- reading -----------------------------------------------------------------------------------------------


def test_json_is_written_as_it_is(tmp_path: Path) -> None:
    values = {"b": [1, 2.5, None], "a": 'é "\\'}
    write_json(tmp_path / "f.json", values)
    assert json.loads((tmp_path / "f.json").read_bytes()) == values


def test_text_keeps_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("a\r\né\n".encode())
    assert read_text(tmp_path / "f") == "a\r\né\n"


def test_text_that_is_no_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"ab\xff")
    with pytest.raises(KprofError, match="byte 2 is not UTF-8"):
        read_text(tmp_path / "f")

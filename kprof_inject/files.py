"""Files: written so that a reader never sees half of one, and read so that nothing but a file of bounded size is."""

from __future__ import annotations

import io
import json
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kprof_inject.errors import KprofError, Position

_LARGEST_SOURCE_BYTES = 4 << 20


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace ``path`` by ``data`` at once. Raises ``OSError``; the old file is then still there."""
    write_chunks(path, (data,))


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> int:
    """Replace ``path`` by the chunks' bytes once the last is written; returns how many bytes they are. Raises
    ``OSError``, which names ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    size = 0
    try:
        with temporary.open("wb") as file:
            for chunk in chunks:
                size += file.write(chunk)
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is not None and Path(error.filename) != temporary:
            raise  # of a file that the chunks are made from
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return size


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, values: Any) -> None:
    write_text(path, json.dumps(values, indent=1, sort_keys=True) + "\n")


def source_text(path: Path) -> str | None:
    """A file that a kernel's locations name, if it can be read here. Its name may be anything, and of any machine."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_SOURCE_BYTES:
            return None
        return path.read_bytes().decode(errors="replace")
    except (OSError, ValueError):  # not ours to read, too long a name, a NUL in it
        return None


def _leads_out(path: Path, within: Path) -> bool:
    """Whether a symbolic link makes ``path``, which is below the folder ``within``, lie outside of it."""
    part, folder = str(path), str(within)  # this is asked for each launch, and texts are much faster than paths
    while len(part) > len(folder):
        if os.path.islink(part):
            return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(within))
        part = os.path.dirname(part)
    return False


def open_regular(path: Path, within: Path | None = None) -> io.FileIO:
    """Open a file to read it, unbuffered. Raises ``KprofError`` at once if it cannot be read, or is a pipe, a device or
    a folder; and if it lies outside of the folder ``within``, where a symbolic link may have led."""
    if within is not None and _leads_out(path, within):
        raise KprofError(f"{path} leads out of {within}", hint="put the file itself there instead of a link to it")
    try:
        # Without O_NONBLOCK, to open a pipe is to wait for somebody who writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # a NUL in the name
        raise KprofError(f"cannot read {path}: {error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise KprofError(f"cannot read {path}: it is no regular file")
    return io.FileIO(descriptor, "rb")


def read_regular(path: Path, most_bytes: int, within: Path | None = None) -> bytes:
    """All bytes of a file. Raises as ``open_regular`` does, and for a file of more than ``most_bytes``."""
    with open_regular(path, within) as file:
        try:
            data = file.read(most_bytes + 1)
        except OSError as error:
            raise KprofError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > most_bytes:
        raise KprofError(f"{path} is too large: no file of its kind has more than {most_bytes} bytes")
    return data


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """The JSON object in a file of ours. Raises ``KprofError`` if it is missing, damaged, or lacks one of the keys."""
    try:
        return object_with(keys, json.loads(path.read_bytes()), path)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise KprofError(f"{path} is damaged: {error}") from None


def object_with(keys: Iterable[str], value: Any, path: Path) -> dict[str, Any]:
    """``value`` if it is an object that has all the keys; ``path`` is where it comes from, for the ``KprofError``."""
    if not isinstance(value, dict):
        raise KprofError(f"{path} is damaged: no JSON object")
    if missing := [key for key in keys if key not in value]:
        raise KprofError(f"{path} is damaged: it lacks {', '.join(missing)}")
    return value


def read_text(path: Path) -> str:
    """A text file of the user's, bytes kept as they are (line ends too). Raises ``KprofError``."""
    try:
        return decode_text(path.read_bytes(), str(path))
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None


def _position_of_byte(data: bytes, offset: int, name: str) -> Position:
    before = data[:offset].decode()
    line = before.rpartition("\n")[2] + data[offset:].partition(b"\n")[0].decode(errors="replace")
    return Position(name, before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1, line.rstrip("\r"))


def decode_text(data: bytes, name: str) -> str:
    """A text's bytes as text. Raises ``KprofError`` if they are none; ``name`` is what to call them."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise KprofError(
            f"this is no text file: byte {error.start} is not UTF-8",
            where=_position_of_byte(data, error.start, name),
            hint="give a .ttgir file as Triton writes it (see 'kprof-inject dump')",
        ) from None

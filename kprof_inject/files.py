"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
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

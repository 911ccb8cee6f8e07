"""Files: written so that a reader never sees half of one, and read so that nothing but a file of bounded size is."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from kprof_inject.errors import KprofError, Position

_LARGEST_SOURCE_BYTES = 4 << 20
_MOST_LINKS = 40  # as many as Linux follows


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file of ``data`` (see ``write_chunks``)."""
    write_chunks(path, (data,))


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> int:
    """Write the chunks' bytes to what ``path`` names; returns how many they are. Raises ``OSError``, which names
    ``path``.

    A regular file is replaced once the last chunk is written, so that a reader sees the old bytes or the new ones, and
    keeps its mode and owner. Links stay, and what they lead to is written. A file with several names is written in
    place, once all chunks are made. Whatever is no regular file (a device, a pipe) gets each chunk as it is made.
    """
    # Their errors are about files that they are made from.
    made = _Chunks(chunks)
    try:
        return _write(_target_of(path), made)
    except OSError as error:
        if error is made.error:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


class _Chunks:
    """The chunks, and the error that making them ended with."""

    def __init__(self, chunks: Iterable[bytes | memoryview]) -> None:
        self._chunks = chunks
        self.error: OSError | None = None

    def __iter__(self) -> Iterator[bytes | memoryview]:
        try:
            yield from self._chunks
        except OSError as error:
            self.error = error
            raise


def _target_of(path: Path) -> Path | int:
    """The file that a path leads to by its links, whether it is there or not; of ``/dev/stdout`` and ``/dev/fd/3`` the
    number of the open file."""
    for _ in range(_MOST_LINKS):
        folder = Path(os.path.realpath(path.parent))
        if str(folder) in (f"/proc/{os.getpid()}/fd", "/dev/fd") and path.name.isdigit():
            return int(path.name)
        path = folder / path.name
        if not path.is_symlink():
            return path
        path = folder / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _write(target: Path | int, chunks: Iterable[bytes | memoryview]) -> int:
    if isinstance(target, int):
        # Not opened anew: what was written to it before would be overwritten.
        with open(target, "wb", closefd=False) as file:
            return _write_all(file, chunks)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        old = target.stat()
    except FileNotFoundError:
        return _replace(target, None, chunks)
    if stat.S_ISREG(old.st_mode) and old.st_nlink == 1:
        return _replace(target, old, chunks)
    if not stat.S_ISREG(old.st_mode):
        with target.open("wb") as file:
            return _write_all(file, chunks)
    # Neither is needed inside the user's program, which is not to wait for them.
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as made:
        size = _write_all(made, chunks)
        made.seek(0)
        with target.open("wb") as file:
            shutil.copyfileobj(made, file)
    return size


def _replace(target: Path, old: os.stat_result | None, chunks: Iterable[bytes | memoryview]) -> int:
    """Put a new file in the place of ``old``, with its mode and, where that is allowed, its owner."""
    temporary = target.with_name(f".{target.name[:40]}.{os.getpid()}.{threading.get_ident()}.{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            size = _write_all(file, chunks)
            if old is not None:
                with contextlib.suppress(OSError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def _write_all(file: BinaryIO, chunks: Iterable[bytes | memoryview]) -> int:
    return sum(file.write(chunk) for chunk in chunks)


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
        raise KprofError(f"{path} points outside {within}", hint="replace the link with the file itself")
    try:
        # Without O_NONBLOCK, to open a pipe is to wait for somebody who writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # a NUL in the name
        raise KprofError(f"cannot read {path}: {error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise KprofError(f"cannot read {path}: it is not a regular file")
    return io.FileIO(descriptor, "rb")


def read_regular(path: Path, most_bytes: int, within: Path | None = None) -> bytes:
    """All bytes of a file. Raises as ``open_regular`` does, and for a file of more than ``most_bytes``."""
    with open_regular(path, within) as file:
        try:
            data = file.read(most_bytes + 1)
        except OSError as error:
            raise KprofError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > most_bytes:
        raise KprofError(f"{path} is too large: files of its kind have at most {most_bytes} bytes")
    return data


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
            f"this is not a text file: byte {error.start} is not UTF-8",
            where=_position_of_byte(data, error.start, name),
            hint="give a .ttgir file as Triton writes it (see 'kprof-inject dump')",
        ) from None

"""Files, written so that readers never see half of one, and read only if they are regular and of bounded size."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kprof_inject.errors import KprofError, Position, printable

_MAX_SOURCE_BYTES = 4 << 20


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write ``data`` to a file (see ``write_chunks``)."""
    write_chunks(path, (data,))


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> int:
    """Write the chunks to ``path``; return the number of bytes. Raises ``OSError`` that names ``path``.

    A regular file is replaced at once, so that a reader sees either the old bytes or the new ones, and keeps its mode;
    a link remains, and its target is replaced. A device or a pipe gets each chunk as it is made.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                return sum(map(file.write, chunks))
        target = path.resolve()
        make_folder(target.parent)
        temporary = target.with_name(f".{target.name[:40]}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            with temporary.open("xb") as file:
                size = sum(map(file.write, chunks))
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        return size
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they exist; ``Path.mkdir`` calls itself for each."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    for one in (*reversed(missing), folder):
        one.mkdir(exist_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 (see ``write_chunks``)."""
    write_bytes(path, text.encode())


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file with sorted keys (see ``write_chunks``)."""
    write_text(path, json.dumps(values, indent=1, sort_keys=True) + "\n")


def csv_cell(text: str) -> str:
    """Return a text as a cell of a CSV table (RFC 4180) that spreadsheets do not evaluate as a formula."""
    # Many readers end a text at a zero byte.
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    # https://owasp.org/www-community/attacks/CSV_Injection
    if text.startswith(("=", "+", "-", "@", "\t", "\r")):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if set(',"\r\n') & set(text) else text


def source_text(path: Path) -> str | None:
    """Read a file that a kernel's locations name; None if that fails: the name may come from any machine."""
    try:
        return read_regular(path, _MAX_SOURCE_BYTES).decode(errors="replace")
    except KprofError:
        return None


def _leads_out(path: Path, within: Path) -> bool:
    """Return whether a symbolic link leads ``path``, which is below ``within``, out of that folder."""
    part, folder = str(path), str(within)  # strings, because this runs for each launch and paths are much slower
    while len(part) > len(folder):
        if os.path.islink(part):
            return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(within))
        part = os.path.dirname(part)
    return False


def open_regular(path: Path, within: Path | None = None) -> io.FileIO:
    """Open a regular file for reading, unbuffered, without waiting.

    Raises ``KprofError`` if it cannot be read, is no regular file, or is outside ``within``, where a link may lead.
    """
    if within is not None and _leads_out(path, within):
        raise KprofError(f"{path} points outside {within}", hint="replace the link with the file itself")
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # a NUL in the name
        raise KprofError(f"cannot read {path}: {error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise KprofError(f"cannot read {path}: it is not a regular file")
    return io.FileIO(descriptor, "rb")


def read_regular(path: Path, max_bytes: int, within: Path | None = None) -> bytes:
    """Read a whole file. Raises as ``open_regular`` does, and for a file of more than ``max_bytes``."""
    with open_regular(path, within) as file:
        try:
            # Python takes as much memory as may be read before it reads.
            data = file.read(min(os.fstat(file.fileno()).st_size, max_bytes) + 1) or b""  # None: it would wait
        except OSError as error:
            raise KprofError(f"cannot read {path}: {error.strerror}") from None
    return _within(max_bytes, data, path)


def read_gzip(path: Path, max_bytes: int) -> bytes:
    """Read the contents of a whole gzip file, whose size nothing says. Raises as ``read_regular`` does."""
    import gzip
    import zlib

    with open_regular(path) as file, gzip.open(file) as contents:
        try:
            data = contents.read(max_bytes + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise KprofError(f"cannot read {path}: {printable(str(error))}") from None
    return _within(max_bytes, data, path)


def _within(max_bytes: int, data: bytes, path: Path) -> bytes:
    if len(data) > max_bytes:
        raise KprofError(f"{path} is too large: files of its kind have at most {max_bytes} bytes")
    return data


def read_text(path: Path) -> str:
    """Read a text file of the user's without changing its bytes or line ends. Raises ``KprofError``."""
    try:
        return decode_text(path.read_bytes(), str(path))
    except OSError as error:
        raise KprofError(f"cannot read {path}: {error.strerror}") from None


def decode_text(data: bytes, name: str) -> str:
    """Decode UTF-8. Raises ``KprofError`` if it is none, with ``name`` as the file's name."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        raise KprofError(
            f"this is not a text file: byte {error.start} is not UTF-8",
            where=Position.at_offset(name, data.decode(errors="replace"), len(before)),
            hint="give a .ttgir file as Triton writes it (see 'kprof-inject dump')",
        ) from None

"""Encoding of records as JSON, and decoding: their text, its checksum, and the errors of invalid ones.

The memory of saved launches is compressed with Zstandard, if the package ``zstandard`` is installed.
"""

from __future__ import annotations

import importlib
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from kprof_inject.errors import KprofError, printable
from kprof_inject.files import read_regular, write_bytes

CAPTURE_AGAIN = "capture again: kprof-inject run -- PROG"
PROFILE_AGAIN = "profile again: kprof-inject profile -- PROG"

_MAX_JSON_BYTES = 4 << 20  # a larger file is not one of ours, and is not read

Record = TypeVar("Record")


def encode(record: Any) -> bytes:
    """Return the JSON text of a record, on one line; characters that UTF-8 cannot hold are replaced."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        values = msgspec.to_builtins(record, str_keys=True)
        return msgspec.json.encode(_with_texts(values, lambda text: text.encode(errors="replace").decode()))


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_with_texts(key, change): _with_texts(part, change) for key, part in value.items()}
    return [_with_texts(part, change) for part in value] if isinstance(value, list | tuple) else value


def indented(record: Any) -> bytes:
    """Return the JSON text of a record on several lines, the last of which ends, too."""
    return msgspec.json.format(encode(record), indent=1) + b"\n"


def decode(data: bytes, kind: type[Record], where: str, hint: str = CAPTURE_AGAIN) -> Record:
    """Decode the record in a JSON text; raises ``KprofError`` that begins with ``where`` and names the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise KprofError(f"{where}: {_at_its_field(str(error))}", hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise KprofError(f"{where}: this is not JSON: {printable(str(error))}", hint=hint) from None
    except RecursionError:
        raise KprofError(f"{where}: this JSON is nested too deeply", hint=hint) from None


def converted(value: Any, kind: type[Record], where: str, hint: str) -> Record:
    """Convert ``value``, of Python's own types, to a record; raises ``KprofError`` as ``decode`` does."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except (msgspec.ValidationError, OverflowError) as error:
        raise KprofError(f"{where}: {_at_its_field(str(error)).removeprefix('$.')}", hint=hint, exit_code=2) from None


def json_values(record: Any) -> dict[str, Any]:
    """Return a record as JSON values; columns and tuples become lists."""
    values: dict[str, Any] = msgspec.to_builtins(record, enc_hook=lambda column: column.tolist())
    return values


def json_text(values: Any) -> str:
    """Return JSON values as a text on several lines, for users; floats are ``rounded``."""
    # With an indent, json's encoder is in Python, and takes four times as long.
    return msgspec.json.format(json.dumps(rounded(values)), indent=1)


def rounded(values: Any) -> Any:
    """Return JSON values with floats of nine digits: the last ones depend on the order in which a processor adds."""
    match values:
        case float():
            return float(f"{values:.9g}")
        case list() | tuple():
            return [rounded(value) for value in values]
        case dict():
            return {name: rounded(value) for name, value in values.items()}
    return values


def schema_of(kind: type[Record], title: str) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a record; numpy's columns are lists of numbers."""
    columns = {"type": "array", "items": {"type": "number"}}
    # The indentation of docstrings depends on Python's version.
    schema = msgspec.json.schema(kind, schema_hook=lambda _: columns)
    made: dict[str, Any] = _with_texts(schema, lambda text: " ".join(text.split()))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **made}


_MISSING = re.compile(r"Object missing required field `(.*)`")
_MAX_MESSAGE = 300
_EXCEPT_SLASHES = "[^/"  # part of the pattern of files' names


def _at_its_field(message: str) -> str:
    """Put the field's path first in msgspec's message: ``$.grid[0]: expected int >= 1``."""
    what, _, path = message.rpartition(" - at ")
    what, path = what or path, (path if what else "$")
    if missing := _MISSING.fullmatch(what):
        return f"{printable(path.strip('`'))}.{missing[1]}: it is missing"
    if "matching regex" in what:
        is_file_name = _EXCEPT_SLASHES in what
        what = "expected the name of a file, without a folder" if is_file_name else "this text is of another form"
    text = f"{path}: {what[:1].lower()}{what[1:]}".replace("`", "")
    return printable(text[:_MAX_MESSAGE])


_SEAL = re.compile(rb',\s*"crc32":\s*(\d{1,10})\s*\}\s*\Z')
_MAX_SEAL = 64


def write_sealed(path: Path, record: Any) -> None:
    """Write a record as JSON, whose last member is the checksum of all bytes before it."""
    body = encode(record)[:-1]
    write_bytes(path, b'%s,"crc32":%d}\n' % (body, zlib.crc32(body)))


def read_sealed(path: Path, kind: type[Record], hint: str = CAPTURE_AGAIN) -> Record:
    """Read a file that ``write_sealed`` wrote, or another program without a checksum; raises ``KprofError``."""
    text = read_json(path, path.parent)
    seal = _SEAL.search(text, max(0, len(text) - _MAX_SEAL))
    if seal is not None and int(seal[1]) != zlib.crc32(text[: seal.start()]):
        raise KprofError(f"{path} is damaged: its checksum does not match", hint=hint)
    return decode(text, kind, str(path), hint)


class _Version(Struct, frozen=True):
    version: int = 0


def require_version(path: Path, version: int, hint: str) -> None:
    """Raise ``KprofError`` if another version of kprof-inject made a file."""
    found = decode(read_json(path, path.parent), _Version, str(path), hint).version
    if found != version:
        age = "an older" if found < version else "a newer"
        raise KprofError(f"{path.parent} was made by {age} kprof-inject", hint=hint)


def read_json(path: Path, within: Path) -> bytes:
    """Return the bytes of a JSON file that we wrote; raises ``KprofError`` as ``read_regular`` does."""
    return read_regular(path, _MAX_JSON_BYTES, within)


def compressor() -> Callable[[bytes], bytes] | None:
    """Return a function that compresses bytes to a frame; None if the package is not installed."""
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        return None
    compress: Callable[[bytes], bytes] = zstandard.ZstdCompressor(level=3).compress
    return compress


def decompressed(frame: bytes, size_bytes: int) -> bytes:
    """Return the contents of a frame, at most ``size_bytes``: zeros for an empty frame, nothing for a damaged one.

    Raises ``KprofError`` if the package is not installed.
    """
    if not frame:
        return bytes(size_bytes)
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        raise KprofError(
            "the memory of this launch is compressed", hint="install Zstandard: pip install zstandard"
        ) from None
    try:
        # A foreign frame may claim any size, so its header's is not used.
        reader = zstandard.ZstdDecompressor(max_window_size=2 * size_bytes + (1 << 20)).stream_reader(frame)
        data: bytes = reader.read(size_bytes + 1)
    except zstandard.ZstdError:
        return b""
    return data

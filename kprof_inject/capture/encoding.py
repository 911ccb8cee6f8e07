"""Encoding of records as JSON, and decoding: their text, its seal, and the errors of invalid ones."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Hashable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from kprof_inject.errors import KprofError, printable
from kprof_inject.files import read_regular

CAPTURE_AGAIN = "capture again: kprof-inject run -- PROG"

# A larger file is not one of ours, and is not read.
_MAX_JSON_BYTES = 4 << 20

Record = TypeVar("Record")


def encode(record: Any) -> bytes:
    """Return the JSON text of a record, on one line.

    Characters of an argument or a path that UTF-8 cannot hold are replaced.
    """
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_in_utf8(msgspec.to_builtins(record, str_keys=True)))


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(part) for key, part in value.items()}
    return [_in_utf8(part) for part in value] if isinstance(value, list | tuple) else value


def indented(record: Any) -> bytes:
    """Return the JSON text of a record on several lines, the last of which ends, too."""
    return msgspec.json.format(encode(record), indent=1) + b"\n"


def decode(data: bytes, kind: type[Record], where: str, hint: str = CAPTURE_AGAIN) -> Record:
    """Decode the record in a JSON text.

    Raises ``KprofError`` that begins with ``where`` and names the field.
    """
    try:
        record: Record = _decoder(cast(Hashable, kind)).decode(data)
        return record
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
    """Return a record, and the records in it, as JSON values: a column becomes a list, as a tuple does."""
    values: dict[str, Any] = msgspec.to_builtins(record, enc_hook=lambda column: column.tolist())
    return values


def schema_of(kind: type[Record], title: str) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a record."""
    made: dict[str, Any] = _on_one_line(msgspec.json.schema(kind))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **made}


def _on_one_line(value: Any) -> Any:
    """Join the lines of each text: the indentation of docstrings depends on Python's version."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {key: _on_one_line(part) for key, part in value.items()}
    return [_on_one_line(part) for part in value] if isinstance(value, list) else value


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


_MISSING = re.compile(r"Object missing required field `(.*)`")


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


_MAX_MESSAGE = 300
_EXCEPT_SLASHES = "[^/"
"""Part of the pattern of files' names."""
_SEAL = re.compile(rb',\s*"crc32":\s*(\d{1,10})\s*\}\s*\Z')
_MAX_SEAL = 64


def sealed(text: bytes, of: str) -> bytes:
    """Append a checksum to a JSON object as its last member.

    The checksum is over all bytes before it, and over ``of``, which identifies the object, so that one of another
    process or file is not accepted in its place.
    """
    body = text.rstrip()[:-1].rstrip()
    return b'%s,"crc32":%d}' % (body, zlib.crc32(body, zlib.crc32(of.encode())))


def is_sealed(text: bytes) -> bool:
    """Return whether the text ends with a checksum."""
    return _SEAL.search(text[-_MAX_SEAL:]) is not None


def require_seal(text: bytes, of: str, where: str, hint: str = CAPTURE_AGAIN) -> None:
    """Raise ``KprofError`` unless ``sealed`` made this text for ``of``."""
    seal = _SEAL.search(text, max(0, len(text) - _MAX_SEAL))
    if seal is None or int(seal[1]) != zlib.crc32(text[: seal.start()], zlib.crc32(of.encode())):
        raise KprofError(
            f"{where}: the checksum {'does not match' if seal else 'is missing'}: "
            "this was edited, damaged, or taken from another capture",
            hint=hint,
        )


def read_of_run(path: Path, kind: type[Record], run: str) -> Record | None:
    """Read a record of a capture as a whole, sealed for its run; None if there is no such file.

    ``run`` is empty if it is unknown (see ``ProcessRecord``). Raises ``KprofError`` if the file is damaged, or of
    another run.
    """
    if not os.path.lexists(path):
        return None
    text = read_json(path, path.parent)
    if run:
        require_seal(text, run, str(path))
    return decode(text, kind, str(path))


def read_json(path: Path, within: Path) -> bytes:
    """Return the bytes of a JSON file that we wrote; raises ``KprofError`` as ``read_regular`` does."""
    return read_regular(path, _MAX_JSON_BYTES, within)

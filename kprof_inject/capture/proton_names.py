"""The names of Proton's scope ids, from a file beside the buffer: the buffer itself has none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kprof_inject.errors import KprofError
from kprof_inject.files import read_text

# An entry has eight bits for the id of its scope.
_MOST_SCOPE_IDS = 256

_STRING = r'"((?:[^"\\\n]|\\.)*)"'
_TAKES_ID = re.compile(rf"\bproton\.(?:record\s+(?P<side>start|end)\s+{_STRING}|allocate_event\s+{_STRING})")
_FUNCTION = re.compile(r'(?<![\w.$-])"?tt\.func\b')
_ESCAPE = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))")
_CONTROLS = {b"n": b"\n", b"t": b"\t"}

_HINT = 'give the kernel\'s .ttgir with its records, or JSON: {"0": "name", ...}'


def read_scope_names(path: Path) -> dict[int, str]:
    """The name of each scope id, from the kernel's TTGIR with its records, or from JSON: an object from id to name, the
    same under ``scope_ids``, or a list of names or of pairs (as Triton's ``get_scope_id_names`` gives them).

    Several ids may bear one name. Raises ``KprofError`` if the file is neither."""
    text = read_text(path)
    return _names_of_json(text, path) if path.suffix == ".json" else names_of_ttgir(text, str(path))


def names_of_ttgir(text: str, file: str) -> dict[int, str]:
    """The ids that Proton gives to the records of a module, in the order of its text (``ScopeIdAllocation``): a start
    takes the next, and the end that follows shares it. ``file`` is what to call it in the ``KprofError``."""
    if len(_FUNCTION.findall(text)) > 1:
        raise KprofError(
            f"{file} has several functions: which ids their records get is decided when they are inlined",
            hint='give JSON: {"0": "name", ...}',
        )
    names: dict[int, str] = {}
    opened: dict[str, str] = {}
    for match in _TAKES_ID.finditer(text):
        name, side = _unquoted(match[2] or match[3] or ""), match["side"]
        if side is not None and opened.get(name, side) != side:
            del opened[name]
            continue
        if side is not None:
            opened[name] = side
        names[len(names)] = name
    if not names:
        raise KprofError(f"{file} has no proton.record, and so no names of scopes", hint=_HINT)
    return checked_names(names, file)


def _names_of_json(text: str, path: Path) -> dict[int, str]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KprofError(f"{path} is no JSON: {error}", hint=_HINT) from None
    if isinstance(values, dict):
        values = values.get("scope_ids", values)
    try:
        return checked_names(dict(_pair(*pair) for pair in _pairs(values)), str(path))
    except (TypeError, ValueError):
        raise KprofError(f"{path} has no names of scope ids", hint=_HINT) from None


def _pairs(values: Any) -> Iterable[Any]:
    if isinstance(values, dict):
        return values.items()
    return enumerate(values) if all(isinstance(value, str) for value in values) else values


def _pair(scope_id: Any, name: Any) -> tuple[int, str]:
    if not isinstance(name, str) or isinstance(scope_id, float):
        raise TypeError
    return int(scope_id), name


def checked_names(names: Mapping[int, str], file: str) -> dict[int, str]:
    """The names, if all ids can be a scope's; ``file`` says where they are from, for the ``KprofError``."""
    if wrong := [scope_id for scope_id in names if not 0 <= scope_id < _MOST_SCOPE_IDS]:
        raise KprofError(
            f"{file} names scope id {wrong[0]}: ids go from 0 to {_MOST_SCOPE_IDS - 1}",
            hint="give the names of the kernel that wrote the buffer",
        )
    return dict(names)


def _unquoted(text: str) -> str:
    """A string of MLIR's: bytes that it cannot print stand as two hexadecimal digits."""

    def plain(match: re.Match[bytes]) -> bytes:
        return bytes.fromhex(match[1].decode()) if match[1] else _CONTROLS.get(match[2], match[2])

    return _ESCAPE.sub(plain, text.encode()).decode(errors="replace")

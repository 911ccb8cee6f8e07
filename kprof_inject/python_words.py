"""Errors in the words of the Python API: an option that a message names becomes the argument that does the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kprof_inject.errors import KprofError

ARGUMENTS = {
    "--at": "at",
    "--budget": "budget",
    "--counters": "counters",
    "--ctas": "ctas",
    "--fail-above": "fail_above",
    "--iter-records": "iter_records",
    "--kernel": "kernel",
    "--launches": "launches",
    "--max-bytes": "max_bytes",
    "--max-launches": "max_launches",
    "--renamed": "renamed",
    "--replay": "replay",
    "--split": "split",
}
"""Arguments of the API by the options that do the same; other options stay as they are."""

ARGUMENTS_OF = {
    "Mode": {
        "--buffer": "buffer",
        "--buffer-bytes": "buffer_bytes",
        "--clock": "clock_bits",
        "--sched-barriers": "sched_barriers",
        "--sched-stores": "sched_stores",
        "--warps": "warps",
    },
    "read_buffer": {"--buffer-format": "format", "--buffer-units": "units", "--names": "names"},
}
"""The same for arguments that are written with their function."""

_FLAGS = ("--sched-barriers", "--sched-stores")
_WORDS = "all|auto|default|first|global|last|never|none|one|runs|shared|two"
_VALUE = rf"[^\s=;,]+=[^\s=;,]+|\d+(?:[:/]\d*)*|(?:{_WORDS})\b"
# The options of a command are its own: "make one: kprof-inject profile --keep-launches -- PROG".
_OPTION = re.compile(rf"kprof-inject [a-z][^;,']*|(--[a-z][a-z-]*)(?: ({_VALUE})(?: or ({_VALUE}))?)?")


def python_words(text: str) -> str:
    """Return a message with arguments for options: ``launches="all"`` for ``--launches all``."""
    return _OPTION.sub(_argument, text)


@contextmanager
def in_python_words() -> Iterator[None]:
    """Write the errors that are raised in a block, or in a function that this decorates, in the API's words."""
    try:
        yield
    except KprofError as error:
        error.what, error.hint = python_words(error.what), python_words(error.hint)
        error.args = (error.what,)
        if error.where is not None:
            error.where = replace(error.where, file=ARGUMENTS.get(error.where.file, error.where.file))
        raise


def _argument(found: re.Match[str]) -> str:
    option, value, other = found.groups()
    for function, arguments in ARGUMENTS_OF.items():
        if option in arguments:
            given = "True" if option in _FLAGS else _value(value) if value else "..."
            return f"{function}({arguments[option]}={given})"
    name = ARGUMENTS.get(option)
    if name is None:
        return found[0]
    if value is None:
        return name if found.string[found.end() :].startswith(":") else f"{name}="
    return f"{name}={_value(value)}{f' or {_value(other)}' if other else ''}"


def _value(text: str) -> str:
    key, separator, value = text.partition("=")
    if separator:
        return f'{{"{key}": "{value}"}}'
    return text if text.isdecimal() else f'"{text}"'

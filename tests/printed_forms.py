"""The same module, printed otherwise, by rewriting its text; and what has changed between two texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import count

from kprof_inject.analysis.structure.structural_changes import differing_lines, structural_changes
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.strings import STRING

_LOCATION = re.compile(r"[ \t]*\bloc\((?:[^()\"]|\((?:[^()\"]|" + STRING + r")*\)|" + STRING + r")*\)")
_LOCATION_ALIAS = re.compile(r"^#loc\d* = .*\n", re.MULTILINE)
_NAME = re.compile(rf"{STRING}|%([a-zA-Z]\w*)")
_ALIAS = re.compile(rf"{STRING}|#[\w$.-]+")
_DEFINITION = re.compile(r"^#[\w$.-]+ = .*\n", re.MULTILINE)


def without_locations(text: str) -> str:
    """As ``str_nodebug`` prints it, but for names."""
    return _outside_of_strings(_LOCATION, lambda found: "", _LOCATION_ALIAS.sub("", text))


def with_other_names(text: str) -> str:
    return _NAME.sub(lambda found: f"%{found[1]}_x" if found[1] else found[0], text)


def local_scope(text: str) -> str:
    """With each alias written out, as ``--mlir-print-local-scope`` has it."""
    aliases = parse(text).aliases

    def written_out(found: re.Match[str]) -> str:
        body = aliases.get(found[0])
        if body is None:
            return found[0]
        return _ALIAS.sub(written_out, body.removeprefix("loc(").removesuffix(")") if body.startswith("loc(") else body)

    return _ALIAS.sub(written_out, _DEFINITION.sub("", text))


def located_in_dump(text: str) -> str:
    """With USE_IR_LOC=ttir: each operation's location is its line in Triton's dump of the stage before."""
    numbers = count(100)
    bare = without_locations(text)
    return re.sub(
        r"^( +(?:%\S.* = )?\"?[a-z]+\.[\w.]+.*[^{\n])$",
        lambda found: f'{found[1]} loc("/tmp/kernel.ttir":{next(numbers)}:5)',
        bare,
        flags=re.MULTILINE,
    )


REWRITTEN: dict[str, Callable[[str], str]] = {
    "without locations": without_locations,
    "other names": with_other_names,
    "local scope": local_scope,
    "locations in a dump": located_in_dump,
    "all of it": lambda text: local_scope(with_other_names(without_locations(text))),
}


def _outside_of_strings(pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str], text: str) -> str:
    either = re.compile(rf"(?P<string>{STRING})|(?:{pattern.pattern})")
    return either.sub(lambda found: found[0] if found["string"] else replace(found), text)


def _unknown(point: SourcePoint) -> str:
    return ""


@cache
def _parsed(text: str) -> Module:
    return parse(text, "kernel.ttgir")


def found_between(a: str, b: str) -> tuple[list[str], int]:
    """The changes, as many from either side, and how many lines differ."""
    modules = _parsed(a), _parsed(b)
    changes = structural_changes(*modules, _unknown, _unknown)
    assert len(changes) == len(structural_changes(*reversed(modules), _unknown, _unknown))
    return [change.id for change in changes], len(differing_lines(*modules))

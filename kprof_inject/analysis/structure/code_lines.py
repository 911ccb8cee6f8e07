"""Find the lines in which the code of two modules differs, regardless of their kind.

Locations, comments, records, and the names of values and layouts do not count as code.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from itertools import zip_longest

from msgspec import Struct

from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.strings import STRING, without_locations

_NAME = re.compile(rf"{STRING}|(%[\w$.-]+)")
_DECLARED = re.compile(rf"{STRING}|(%[\w$.-]+)(?: =|: )")
_ALIAS = re.compile(rf"{STRING}|(?<![\w@])#[\w$.-]+")
_ALIAS_DEFINITION = re.compile(r"#[\w$.-]+ =")
_MAX_LAYOUT = 10_000  # characters; in a hostile file, layouts may double with each alias

LinePair = tuple[int | None, int | None]
"""Numbers of a line in A and of the one that replaces it in B, from 1; None where a side has none."""


class _Line(Struct, frozen=True):
    number: int
    text: str
    """The code with layouts in place of their aliases, and without the names of values."""
    names: tuple[str, ...]
    given: frozenset[str]
    """Results and arguments among ``names``."""


def differing_lines(a: Module, b: Module) -> list[LinePair]:
    """Return the lines that differ; there are none only if all lines are equal and name the same values."""
    lines_a, lines_b = _lines_of(a), _lines_of(b)
    found: list[LinePair] = []
    b_of: dict[str, str] = {}
    a_of: dict[str, str] = {}
    matcher = SequenceMatcher(None, [line.text for line in lines_a], [line.text for line in lines_b])
    for tag, a_begin, a_end, b_begin, b_end in matcher.get_opcodes():
        for one, other in zip_longest(lines_a[a_begin:a_end], lines_b[b_begin:b_end]):
            # Values that a line gives are new ones: other regions and functions reuse names.
            for known, line in ((b_of, one), (a_of, other)):
                for name in line.given if line else ():
                    known.pop(name, None)
            if not (tag == "equal" and _name_the_same(one, other, b_of, a_of)):
                found.append((one.number if one else None, other.number if other else None))
    return found


def _name_the_same(a: _Line, b: _Line, b_of: dict[str, str], a_of: dict[str, str]) -> bool:
    """Return True if two lines name corresponding values; values seen for the first time correspond from then on."""
    pairs = list(zip(a.names, b.names, strict=True))
    # Not lazily: both must see each pair.
    agree = [b_of.setdefault(name_a, name_b) == name_b for name_a, name_b in pairs]
    agree += [a_of.setdefault(name_b, name_a) == name_a for name_a, name_b in pairs]
    return all(agree)


def _lines_of(module: Module) -> list[_Line]:
    layouts: dict[str, str] = {}

    def written_out(text: str) -> str:
        return _ALIAS.sub(lambda alias: layouts.get(alias[0], alias[0]), without_locations(text))

    for alias, body in module.aliases.items():
        layout = written_out(body)
        layouts[alias] = layout if len(layout) <= _MAX_LAYOUT else alias
    inserted = set(module.line_numbers([one.start for one in module.walk() if is_inserted(one)]))
    lines = []
    for number, printed in enumerate(module.text.split("\n"), 1):
        if number in inserted or _ALIAS_DEFINITION.match(printed) or not (text := written_out(printed)):
            continue
        names = tuple(name[1] for name in _NAME.finditer(text) if name[1])
        results = text.partition(" = ")[0] if text.startswith("%") else ""
        given = {name[1] for pattern, part in ((_NAME, results), (_DECLARED, text)) for name in pattern.finditer(part)}
        without_names = _NAME.sub(lambda name: "%" if name[1] else name[0], text)
        lines.append(_Line(number, without_names, names, frozenset(given - {None})))
    return lines

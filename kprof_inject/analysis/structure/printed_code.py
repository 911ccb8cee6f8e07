"""Text of a module's operations for comparison, independent of the names of its values and layouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import label_text
from kprof_inject.ttgir.strings import STRING, without_locations
from kprof_inject.ttgir.types import closing_bracket

_NAME = re.compile(rf"{STRING}|(%[\w$.-]+)")
_LAYOUT = re.compile(rf"{STRING}|(?<![\w@])(#[\w$.-]+)")
_RESULTS = re.compile(r"%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*\s*=")
_BOUND = re.compile(r"\s*=(?!=)")
_TAKES_ARGUMENTS = re.compile(r"(?:tt\.)?func\b|\^|\}?\s*partition\d+\(")

# Bounds of an attribute's nesting and number of parts. Real layouts nest four deep; in a hostile file they may double
# at each level.
_MAX_DEPTH = 32
_MAX_PARTS = 256


class CodeLine(Struct, frozen=True):
    """An operation up to its first region, or the text between its regions or after them."""

    number: int
    """Number of its first line."""
    text: str
    """Text without the names of values and layouts."""
    names: tuple[str, ...]
    """Names of its values."""
    given: frozenset[str]
    """Results and arguments among ``names``."""
    layouts: tuple[str, ...]
    """Texts of its layouts."""


def code_lines(module: Module, pieces: Sequence[tuple[int, str]]) -> list[CodeLine]:
    """Return the lines that begin at these offsets and have these texts."""
    numbers = module.line_numbers([start for start, _ in pieces])
    layouts = _PrintedLayouts(module.aliases)
    return [_code_line(number, text, layouts) for number, (_, text) in zip(numbers, pieces, strict=True)]


def printed_pieces(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the offset and the text of each operation except records, without what is in its regions."""
    text = module.text
    waiting: list[Operation | tuple[int, str]] = list(reversed(module.operations))
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            yield one
        elif not is_inserted(one):
            inside: list[Operation | tuple[int, str]] = []
            start = one.start
            for region in one.regions:
                first, *others = region.blocks
                inside += [(start, text[start : first.start]), *first.operations]
                for block in others:
                    label = label_text(module, region, block)
                    inside += [(block.start - len(label), label), *block.operations]
                start = region.end
            inside.append((start, text[start : one.end]))
            waiting += reversed(inside)


def _code_line(number: int, printed: str, layouts_of: _PrintedLayouts) -> CodeLine:
    text, layouts = layouts_of.take(without_locations(printed))
    results = _RESULTS.match(text)
    takes_arguments = _TAKES_ARGUMENTS.search(text) is not None
    found = [name for name in _NAME.finditer(text) if name[1]]
    given = {
        name[1]
        for name in found
        if (results and name.start() < results.end())
        or _BOUND.match(text, name.end())
        or (takes_arguments and text.startswith(":", name.end()))
    }
    without_names = _NAME.sub(lambda name: "%" if name[1] else name[0], text)
    return CodeLine(number, without_names, tuple(name[1] for name in found), frozenset(given), layouts)


class _PrintedLayouts:
    """Attributes of a module by their text: a name, or a whole attribute."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str, tuple[str, ...]] = {}
        self._depth = 0

    def take(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Return the text with a ``#`` for each attribute, and the attributes.

        Each is without the attributes in it, which follow it.
        """
        found: list[str] = []

        def put_away(attribute: str) -> str:
            found.extend(self._whole(attribute))
            return "#"

        return _replaced(text, put_away), tuple(found)

    def _whole(self, attribute: str) -> tuple[str, ...]:
        if attribute not in self._known:
            body = self._aliases.get(attribute)
            self._known[attribute] = (attribute,)  # an attribute that refers to itself is left unchanged
            if self._depth < _MAX_DEPTH:
                self._depth += 1
                own, inner = self.take(attribute[1:] if body is None else without_locations(body))
                self._depth -= 1
                parts = inner if body is not None and own == "#" else (f"#{own}", *inner)
                if len(parts) <= _MAX_PARTS:
                    self._known[attribute] = parts
        return self._known[attribute]


def _replaced(text: str, replace: Callable[[str], str]) -> str:
    """Return the text with each outermost attribute replaced."""
    pieces: list[str] = []
    done = 0
    for mark in _LAYOUT.finditer(text):
        if not mark[1] or mark.start() < done:
            continue
        end = mark.end()
        if text.startswith("<", end):
            end = closing_bracket(text, end + 1) + 1
        pieces += [text[done : mark.start()], replace(text[mark.start() : end])]
        done = end
    return "".join([*pieces, text[done:]])


_CURRENT = {
    "#triton_gpu.shared<": "#ttg.swizzled_shared<",
    "triton_gpu.": "ttg.",
    "triton_nvidia_gpu.": "ttng.",
    "amdgpu.": "amdg.",
    "!tt.memdesc<": "!ttg.memdesc<",
    "tt.experimental_descriptor_": "tt.descriptor_",
}
_FORMER = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}" for name in _CURRENT))


def with_current_names(module: Module) -> Module:
    """Return the module with today's names for what Triton has renamed; its lines keep their numbers.

    Up to Triton 3.2, its GPU dialects were ``triton_gpu`` and ``triton_nvidia_gpu``; up to 3.5, AMD's was ``amdgpu``.
    ``!tt.memdesc``, ``#triton_gpu.shared`` and ``tt.experimental_descriptor_load`` date from the same time.
    """
    if not any(name in module.text for name in _CURRENT):
        return module
    return parse(_FORMER.sub(lambda found: _CURRENT[found[0]], module.text), module.file)

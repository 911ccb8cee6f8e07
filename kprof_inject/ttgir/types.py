"""The types that an operation is printed with: what is in them, how many elements, and how large one is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import without_strings

# The shape and the element, of which the latter may be a pointer: ``128x64x!tt.ptr<f16>``, ``3x1xi64``, ``64xf8E5M2``.
_SHAPED = re.compile(r"((?:\d+x)*)(!tt\.ptr<[^,]*>|[a-z]\w*)")
# What begins a type: a word and a bracket, a bracket alone where the printer leaves the word out, or a scalar's name.
_BEGIN = re.compile(
    r"(?P<shaped>\btensor|!ttg\.memdesc|!tt\.tensordesc|!tt\.ptr|(?<![\w.<]))<|\b(?P<scalar>(?:[fi]|bf|f8E)\d\w*|index)\b"
)
_POINTEE = re.compile(r"!tt\.ptr<([^,<>]+)")
# f16, bf16, f8E4M3FN, i1: the first number is the width.
_WIDTH = re.compile(r"[a-z]+(\d+)")
_POINTER_BITS = 64
# Triton's verifier refuses tensors of more than 2^20 elements; a piece of memory has some of these, for each stage.
_MAX_ELEMENTS = 1 << 31
_MAX_WIDTH_DIGITS = 4

_OPEN, _CLOSE = "([{<", ")]}>"


@dataclass(frozen=True, slots=True)
class PrintedType:
    """A type: of a tensor, of a piece of shared or tensor memory, of a tensor descriptor, or of one scalar.

    ``element`` is a type's name, ``f16`` or ``!tt.ptr<f16>``; ``rest`` all that stands behind it: the layout and the
    memory. ``kind`` is ``tensor``, ``memdesc``, ``tensordesc``, ``pointer`` where only what it leads to is printed, or
    empty for a scalar."""

    kind: str
    shape: tuple[int, ...]
    element: str
    rest: str = ""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def pointee(self) -> str:
        """What a pointer, or each of a tensor's, leads to; the element itself where that is none."""
        found = _POINTEE.match(self.element)
        return found[1] if found else self.element

    @property
    def bits(self) -> int:
        """The size of an element: of a pointer's its own, not that of what it leads to."""
        return _POINTER_BITS if self.element.startswith("!tt.ptr") else bits_of(self.element)

    @property
    def is_pointer(self) -> bool:
        return self.element.startswith("!tt.ptr")


def bits_of(element: str) -> int:
    """The size of an element that is no pointer; 0 if its name does not tell."""
    found = _WIDTH.match(element)
    return int(found[1]) if found and len(found[1]) <= _MAX_WIDTH_DIGITS else 0


def types_of(operation: Operation) -> tuple[PrintedType, ...]:
    """Those that an operation is printed with, operands' before results', as far as they are of these kinds. Some
    operations print a type of their operands that stands for all of them, or leave out what their name says. Empty
    if one has a size that no type of Triton's has: the file is damaged."""
    return _printed_with(operation.closing or operation.tail)


@lru_cache(maxsize=4096)  # a module's operations come with each launch of its kernel
def _printed_with(text: str) -> tuple[PrintedType, ...]:
    types = tuple(_types_in(_signature(without_strings(text).partition(" loc(")[0])))
    return types if all(0 < one.elements <= _MAX_ELEMENTS for one in types) else ()


# ``tt.dot_scaled`` prints the type of a scale behind that of what it scales.
_FIRST_SCALE = re.compile(r"\s*%[\w$.#-]+ scale ")


def factors_of(dot: Operation) -> tuple[PrintedType, ...]:
    """The types of what a dot multiplies: two, unless it is printed with fewer."""
    types = types_of(dot)
    return types[0:3:2] if _FIRST_SCALE.match(dot.tail) else types[:2]


def printed_types(text: str) -> tuple[PrintedType, ...]:
    """Those in a text that is nothing but types."""
    return tuple(_types_in(text))


def _signature(text: str) -> str:
    """What stands behind the last colon outside all brackets."""
    depth, last = 0, len(text)
    for place, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE and not _is_arrow(text, place):
            depth -= 1
        elif letter == ":" and depth <= 0:  # the text may begin with what closes a region
            last = place
    return text[last + 1 :]


def _types_in(text: str) -> Iterator[PrintedType]:
    """In the order of the text; a type in another's brackets is part of that."""
    place = 0
    while found := _BEGIN.search(text, place):
        place = found.end()
        if found["scalar"]:
            yield PrintedType("", (), found["scalar"])
            continue
        end = closing_bracket(text, place)
        inside, place = text[place:end], end + 1
        if found["shaped"] == "!tt.ptr":
            yield PrintedType("", (), f"!tt.ptr<{inside}>")
            continue
        if inside.startswith("tensor<"):  # in a descriptor's
            inside = inside[len("tensor<") : -1]
        if shaped := _SHAPED.match(inside):
            kind = found["shaped"].rpartition(".")[2] or ("memdesc" if "," in inside else "pointer")
            shape = tuple(int(size) for size in shaped[1].split("x") if size)
            yield PrintedType(kind, shape, shaped[2], inside[shaped.end() :])


def closing_bracket(text: str, place: int) -> int:
    """Return where the bracket ends that was opened before ``place``."""
    depth = 1
    for end in range(place, len(text)):
        if text[end] in _OPEN:
            depth += 1
        elif text[end] in _CLOSE and not _is_arrow(text, end):
            depth -= 1
            if not depth:
                return end
    return len(text)


def _is_arrow(text: str, place: int) -> bool:
    return text[place - 1 : place + 1] == "->"

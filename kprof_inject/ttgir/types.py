"""The types that an operation is printed with: their kinds, shapes and element sizes.

Operands, results, types or attributes of an operation may not fit each other: no compiler makes such a misfit, but a
damaged file may have one, and so may a Triton that prints an operation in another way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from math import prod
from typing import ParamSpec, TypeVar

from msgspec import Struct

from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import without_strings

# The shape and the element type, which may be a pointer: ``128x64x!tt.ptr<f16>``, ``3x1xi64``, ``64xf8E5M2``.
_SHAPED = re.compile(r"((?:\d+x)*)(!tt\.ptr<[^,]*>|[a-z]\w*)")
# The beginning of a type: a word and a bracket, a bracket alone where the printer omits the word, or a scalar's name.
_BEGIN = re.compile(
    r"(?P<shaped>\btensor|!ttg\.memdesc|!tt\.tensordesc|!tt\.ptr|(?<![\w.<]))<|\b(?P<scalar>(?:[fi]|bf|f8E)\d\w*|index)\b"
)
_POINTEE = re.compile(r"!tt\.ptr<([^,<>]+)")
# f16, bf16, f8E4M3FN, i1: the first number is the width.
_WIDTH = re.compile(r"[a-z]+(\d+)")
_POINTER_BITS = 64
# Triton's verifier refuses tensors of more than 2^20 elements; a memory descriptor may hold some per stage.
_MAX_ELEMENTS = 1 << 31
_MAX_WIDTH_DIGITS = 4

_OPEN, _CLOSE = "([{<", ")]}>"


class PrintedType(Struct, frozen=True):
    """The type of a tensor, of shared or tensor memory, of a tensor descriptor, or of a scalar."""

    kind: str  # tensor, memdesc, tensordesc, pointer where only the pointee is printed, or empty for a scalar
    shape: tuple[int, ...]
    element: str  # a type's name, ``f16`` or ``!tt.ptr<f16>``
    rest: str = ""  # the text after it: the layout and the memory

    @property
    def elements(self) -> int:
        """The number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def pointee(self) -> str:
        """The pointee of a pointer, or of a tensor's pointers; the element type itself if it is no pointer."""
        found = _POINTEE.match(self.element)
        return found[1] if found else self.element

    @property
    def bits(self) -> int:
        """The size of an element in bits; a pointer counts as itself, not as its pointee."""
        return bits_of(self.element)

    @property
    def is_pointer(self) -> bool:
        """True if the elements are pointers."""
        return self.element.startswith("!tt.ptr")


def bits_of(element: str) -> int:
    """Return the size in bits of an element, a pointer's own; 0 if its name does not contain it."""
    if element.startswith("!tt.ptr"):
        return _POINTER_BITS
    found = _WIDTH.match(element)
    return int(found[1]) if found and len(found[1]) <= _MAX_WIDTH_DIGITS else 0


def bytes_of(element: str) -> int:
    """Return the size of an element type in bytes, at least 1."""
    return max(bits_of(element) // 8, 1)


def types_of(operation: Operation) -> tuple[PrintedType, ...]:
    """Return the types that an operation is printed with, operands' before results'.

    Some operations print one type for all operands, or omit types that follow from their names. Empty if a type has a
    size that no type of Triton's has: the file is damaged.
    """
    return _printed_with(operation.closing or operation.tail)


@lru_cache(maxsize=4096)  # the same operations come with each launch of a kernel
def _printed_with(text: str) -> tuple[PrintedType, ...]:
    text = without_strings(text).partition(" loc(")[0]
    depth, last = 0, len(text)
    for place, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE and not _is_arrow(text, place):
            depth -= 1
        elif letter == ":" and depth <= 0:  # the text may begin with the end of a region
            last = place
    types = printed_types(text[last + 1 :])
    return types if all(0 < printed.elements <= _MAX_ELEMENTS for printed in types) else ()


# ``tt.dot_scaled`` prints the type of a scale after the type that it scales.
_FIRST_SCALE = re.compile(r"\s*%[\w$.#-]+ scale ")


def factors_of(dot: Operation) -> tuple[PrintedType, ...]:
    """Return the types of a dot's two factors, or fewer if it is printed with fewer."""
    types = types_of(dot)
    return types[0:3:2] if _FIRST_SCALE.match(dot.tail) else types[:2]


def printed_types(text: str) -> tuple[PrintedType, ...]:
    """Return the types in a text that contains only types; a type in another's brackets is part of that."""
    types: list[PrintedType] = []
    place = 0
    while found := _BEGIN.search(text, place):
        place = found.end()
        if found["scalar"]:
            types.append(PrintedType("", (), found["scalar"]))
            continue
        end = closing_bracket(text, place)
        inside, place = text[place:end], end + 1
        if found["shaped"] == "!tt.ptr":
            types.append(PrintedType("", (), f"!tt.ptr<{inside}>"))
            continue
        if inside.startswith("tensor<"):  # in a descriptor's type
            inside = inside[len("tensor<") : -1]
        if shaped := _SHAPED.match(inside):
            kind = found["shaped"].rpartition(".")[2] or ("memdesc" if "," in inside else "pointer")
            shape = tuple(int(size) for size in shaped[1].split("x") if size)
            types.append(PrintedType(kind, shape, shaped[2], inside[shaped.end() :]))
    return tuple(types)


def closing_bracket(text: str, place: int) -> int:
    """Return the place of the bracket that closes the one before ``place``."""
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


MISFITS = (ArithmeticError, LookupError, TypeError, ValueError)
"""Exceptions raised by reading such an operation: a missing operand, a list too short, a size of 0 or less."""

_Parameters = ParamSpec("_Parameters")
_Known = TypeVar("_Known")
_Unknown = TypeVar("_Unknown")


def if_misfit(unknown: _Unknown) -> Callable[[Callable[_Parameters, _Known]], Callable[_Parameters, _Known | _Unknown]]:
    """Make a function that reads an operation, or one of its types, return ``unknown`` for a misfit."""

    def guarded(read: Callable[_Parameters, _Known]) -> Callable[_Parameters, _Known | _Unknown]:
        @wraps(read)
        def guard(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Known | _Unknown:
            try:
                return read(*args, **kwargs)
            except MISFITS:
                return unknown

        return guard

    return guarded

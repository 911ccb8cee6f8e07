"""The types that an operation is printed with: what is in them, how many elements, and how large one is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from kprof_inject.ttgir.strings import STRING

_STRING = re.compile(STRING)
# The shape and the element, of which the latter may be a pointer: ``128x64x!tt.ptr<f16>``, ``3x1xi64``, ``64xf8E5M2``.
_SHAPED = re.compile(r"((?:\d+x)*)(!tt\.ptr<[^,]*>|[a-z]\w*)")
_SCALAR = re.compile(r"(?:!tt\.ptr<|[fib]f?\d|index\b|tf32\b)")
_POINTEE = re.compile(r"!tt\.ptr<([^,<>]+)")
# f16, bf16, f8E4M3FN, i1, tf32: the first number is the width.
_WIDTH = re.compile(r"[a-z]+(\d+)")
_POINTER_BITS = 64

_OPEN, _CLOSE = "([{<", ")]}>"
_HEADS = ("tensor<", "!ttg.memdesc<", "!tt.tensordesc<", "vector<")


@dataclass(frozen=True, slots=True)
class PrintedType:
    """A type: of a tensor, of a piece of shared or tensor memory, of a tensor descriptor, or of one scalar.

    ``element`` is a type's name, ``f16`` or ``!tt.ptr<f16>``; ``rest`` all that stands behind it: the layout and the
    memory. ``kind`` is ``tensor``, ``memdesc``, ``tensordesc``, or empty for a scalar."""

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

    @property
    def in_tensor_memory(self) -> bool:
        """True of the memory beside the tensor cores (NVIDIA, from sm_100 on)."""
        return "tensor_memory" in self.rest or "#tmem" in self.rest


def bits_of(element: str) -> int:
    """The size of an element that is no pointer; 0 if its name does not tell."""
    found = _WIDTH.match(element)
    return int(found[1]) if found else 0


def types_of(tail: str) -> tuple[PrintedType, ...]:
    """Those that stand behind the last colon of an operation, operands' before results', as far as they are of these
    kinds; ``tail`` is what follows the operation's name."""
    return tuple(_types_in(_signature(_STRING.sub("", tail).partition(" loc(")[0])))


def _signature(text: str) -> str:
    """What stands behind the last colon outside all brackets; the generic form puts operands' types into some."""
    depth, last = 0, len(text)
    for place, letter in enumerate(text):
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE and text[place - 1 : place + 1] != "->":
            depth -= 1
        elif letter == ":" and not depth:
            last = place
    return text[last + 1 :]


def _types_in(text: str) -> Iterator[PrintedType]:
    """In the order of the text; a type in another's brackets is part of that."""
    place = 0
    while place < len(text):
        head = next((head for head in _HEADS if text.startswith(head, place)), "")
        if head or _stands_alone(text, place):
            end = _closing(text, place + max(len(head), 1) - 1)
            yield from _shaped(head, text[place + max(len(head), 1) : end])
            place = end + 1
        elif (scalar := _SCALAR.match(text, place)) and not text[place - 1 : place].isalnum():
            word = re.compile(r"!tt\.ptr<[^>]*>+|\w+").match(text, place)
            end = word.end() if word else scalar.end()
            yield PrintedType("", (), text[place:end])
            place = end
        else:
            place += 1


def _stands_alone(text: str, place: int) -> bool:
    """``-> <128x64xf16, #shared, #smem>``: the printer leaves out what the operation's name says anyway."""
    return text[place] == "<" and text[:place].rstrip().endswith(("->", ",", "*", "")) and text[place - 1 : place] == " "


def _closing(text: str, opening: int) -> int:
    depth = 0
    for place in range(opening, len(text)):
        if text[place] in _OPEN:
            depth += 1
        elif text[place] in _CLOSE and text[place - 1 : place + 1] != "->":
            depth -= 1
            if not depth:
                return place
    return len(text)


def _shaped(head: str, inside: str) -> Iterator[PrintedType]:
    kind = head.strip("!<").rpartition(".")[2] or "memdesc"
    if kind == "tensordesc":
        # ``!tt.tensordesc<tensor<128x64xf16, #shared>>``; newer ones leave the inner word out.
        inside = inside.removeprefix("tensor<")
    found = _SHAPED.match(inside)
    if found:
        shape = tuple(int(size) for size in found[1].split("x") if size)
        yield PrintedType(kind, shape, found[2], inside[found.end() :])

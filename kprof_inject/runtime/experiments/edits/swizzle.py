"""Swizzle of shared memory that dots read by ``ldmatrix``, or that loops without dots load into ahead.

A layout says where each element of a buffer is. All operations on a buffer have its type, which names the layout, so a
layout that is edited where it is defined is the same for writers and readers. Layouts of the operands of wgmma and
tcgen05, and of TMA, are the hardware's, and have another name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.rewrite import Replacement, spliced
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit

_NUMBERS = (2, 4, 8, 16)
_OFF = "off"
_VEC, _PHASES = "vec", "phases"
# Layouts of one dimension are those of barriers, and have nothing to swizzle.
_LAYOUT = re.compile(
    r"^#\w+ = #ttg\.swizzled_shared<\{vec = (?P<vec>\d+), perPhase = \d+, maxPhase = (?P<phases>\d+), "
    r"order = \[\d+, [\d, ]+\]",
    re.MULTILINE,
)
# A buffer that is read as one of another layout.
_REINTERPRETED = re.compile(r"\bttg\.memdesc_(?:reinterpret|reshape)\b")


class Swizzle(EditKind):
    """The elements that stay together, and the number of phases, of all swizzled layouts."""

    name = "swizzle"
    values = f"{_OFF}, {_VEC}:N or {_PHASES}:N, with N {', '.join(map(str, _NUMBERS))}"
    edits_ttgir = True

    def more(self, kernel: KernelToEdit) -> Sequence[str]:
        """Return the values that change a layout."""
        if _REINTERPRETED.search(kernel.ttgir):
            return []
        wanted = [f"{_PHASES}:8", f"{_PHASES}:4", f"{_VEC}:8", f"{_VEC}:4", _OFF]
        return [value for value in wanted if _edits_of(kernel.ttgir, *_part_and_number(value))]

    def applied(self, kernel: KernelToEdit, value: str) -> KernelToEdit:
        """Replace the number in the layouts."""
        part, number = _part_and_number(value)
        if not number:
            raise EditRefused(f"{value} is none of {self.values}")
        if _REINTERPRETED.search(kernel.ttgir):
            raise EditRefused("it reads a buffer in two layouts (ttg.memdesc_reinterpret or ttg.memdesc_reshape)")
        edits = _edits_of(kernel.ttgir, part, number)
        if not edits:
            raise EditRefused("it has no layout that this changes (those of wgmma, tcgen05 and TMA are the hardware's)")
        return replace(kernel, ttgir=spliced(kernel.ttgir, edits))


def _part_and_number(value: str) -> tuple[str, int]:
    """Return which number of a layout a value sets, and to what; 0 if it is no value."""
    part, _, number = (f"{_PHASES}:1" if value == _OFF else value).partition(":")
    is_known = part in (_VEC, _PHASES) and (value == _OFF or number in map(str, _NUMBERS))
    return part, int(number) if is_known else 0


def _edits_of(text: str, part: str, number: int) -> list[Replacement]:
    """Return the edits that set a number of each layout with another one; ``vec`` matters only with several phases."""
    return [
        (*found.span(part), str(number))
        for found in _LAYOUT.finditer(text)
        if int(found[part]) != number and (part == _PHASES or int(found[_PHASES]) > 1)
    ]

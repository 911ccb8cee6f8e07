"""Attributes of loops in TTIR, which ``tl.range`` sets in the source: the loops that edits may choose, and the texts.

Each is set on loops that Triton compiles again, so Triton decides what is legal: it ignores an attribute where it
cannot do what that requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kprof_inject.errors import KprofError
from kprof_inject.rewrite import Replacement, spliced
from kprof_inject.runtime.experiments.edits.edit import EditRefused, KernelToEdit
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Module, Operation

_LOOP = "scf.for"
_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
# In the printed form, attributes are between the brace that closes the loop and its location.
_DICTIONARY = re.compile(r"\}\s*\{(?P<attributes>[^{}]*)\}")


def counted_loops(kernel: KernelToEdit) -> list[Operation]:
    """Return the ``scf.for`` of the TTIR, in its order; none if there is no TTIR, or it is not understood."""
    try:
        return _loops_in(kernel.parsed("ttir")) if kernel.ttir else []
    except KprofError:
        return []


def with_attribute(kernel: KernelToEdit, loops: Sequence[Operation], name: str, value: int | None) -> KernelToEdit:
    """Return the kernel with an attribute of ``loops``, to be compiled from its TTIR; None as value is a unit.

    Raises ``EditRefused``.
    """
    recompiled = kernel.to_recompile()
    attribute = name if value is None else f"{name} = {value} : i32"
    return replace(recompiled, ttir=spliced(kernel.ttir, [_edit_of(loop, name, attribute) for loop in loops]))


def require_understood(kernel: KernelToEdit) -> None:
    """Raise ``EditRefused`` if there is no TTIR to compile again, or it is not understood."""
    kernel.to_recompile()
    try:
        kernel.parsed("ttir")
    except KprofError as error:
        raise EditRefused(error.what) from None


def has_attribute(loop: Operation, name: str) -> bool:
    """Return whether a loop has an attribute of this name."""
    found = _DICTIONARY.match(loop.closing)
    return found is not None and _named(name).search(found["attributes"]) is not None


def number_of(loop: Operation, name: str) -> int | None:
    """Return an attribute that is a number; None if the loop has none of this name."""
    found = re.search(rf"{_named(name).pattern} = (\d+)", loop.closing)
    return int(found[1]) if found else None


def inside(loop: Operation) -> Iterator[Operation]:
    """Yield the operations inside a loop."""
    return (operation for operation in loop.walk() if operation is not loop)


def is_innermost(loop: Operation) -> bool:
    """Return whether there is no loop inside."""
    return not any(operation.traits.is_loop for operation in inside(loop))


def has_dots(loop: Operation) -> bool:
    """Return whether there is a dot inside."""
    return any(operation.traits.is_dot for operation in inside(loop))


def has_loads(loop: Operation) -> bool:
    """Return whether there is a load from global memory inside."""
    return any(operation.name in _LOADS for operation in inside(loop))


def source_lines(kernel: KernelToEdit, loops: Sequence[Operation]) -> list[list[int]]:
    """Return the lines of the source of each loop: its own, then that of the call which inlined it, and so on."""
    if not loops:
        return []
    table = LocationTable(kernel.parsed("ttir"))
    return [_lines_of(loop, table) for loop in loops]


def _lines_of(loop: Operation, table: LocationTable) -> list[int]:
    try:
        chains = table.chains_of(loop)
    except KprofError:  # an alias that refers to itself
        return []
    return [point.line for point in chains[0]] if chains else []


def _loops_in(module: Module) -> list[Operation]:
    return [operation for operation in module.walk() if operation.name == _LOOP]


def _named(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.])")


def _edit_of(loop: Operation, name: str, attribute: str) -> Replacement:
    """Return the text that follows the brace that closes the loop, or what replaces the attribute there."""
    closing = loop.regions[-1].end
    found = _DICTIONARY.match(loop.closing)
    if found is None:
        return closing + 1, closing + 1, f" {{{attribute}}}"
    start, attributes = closing + found.start("attributes"), found["attributes"]
    present = re.search(rf"{_named(name).pattern}(?: = [^,]*)?", attributes)
    if present:
        return start + present.start(), start + present.end(), attribute
    return start, start, f"{attribute}, " if attributes.strip() else attribute

"""Number of stages of single loops, which is otherwise an option of the kernel.

Triton pipelines the loads of loops without dots only if the source sets their number: as an attribute of the loop in
TTIR, which ``tl.range`` writes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from kprof_inject.errors import KprofError
from kprof_inject.rewrite import Replacement, spliced
from kprof_inject.runtime.experiments.edits.edit import EditKind, EditRefused, KernelToEdit, number_in
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Operation

_MAX_STAGES = 8
_PROPOSED = ("2", "3", "4")
_MAX_PROPOSED = 6
# Triton's ``kNumStagesAttrName``, which ``tl.range(..., num_stages=N)`` sets.
_ATTRIBUTE = "tt.num_stages"
_NAMED = re.compile(r"(?<![\w.])tt\.num_stages(?![\w.])(?: = (\d+))?(?: : i32)?")
_LOOP = "scf.for"
_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
# In the printed form, attributes are between the brace that closes the loop and its location.
_DICTIONARY = re.compile(r"\}\s*\{(?P<attributes>[^{}]*)\}")


def _in_source(value: str) -> str:
    """Return the range to write."""
    line, _, stages = value.rpartition(":")
    loops = f"the loop at line {line}" if line else "loops that load without dots"
    return f"tl.range(..., num_stages={stages}) in {loops}"


def _more(kernel: KernelToEdit) -> list[str]:
    """Return the usual numbers of stages for loops without dots, then one stage more of each of several loops."""
    proposed = _PROPOSED if _without_stages(kernel) else ()
    lines = [f"{line}:{stages + 1}" for line, stages in _stages_by_line(kernel) if stages < _MAX_PROPOSED]
    return [*proposed, *lines]


def _fewer(kernel: KernelToEdit) -> list[str]:
    """Return one stage less of each of several loops; without the attribute, loops without dots have no stages."""
    return [f"{line}:{stages - 1}" for line, stages in _stages_by_line(kernel) if stages > 1]


def _applied(kernel: KernelToEdit, value: str) -> KernelToEdit:
    """Set the attribute in the TTIR: of loops without dots, or of the loop at a line, which may call its helper."""
    line, is_at_line, number = value.rpartition(":")
    stages = number_in(number, 1 if is_at_line else 2, _MAX_STAGES)
    kernel.to_recompile()
    try:
        kernel.parsed("ttir")
    except KprofError as error:
        raise EditRefused(error.what) from None
    if not is_at_line:
        loops = _without_stages(kernel)
        if not loops:
            raise EditRefused("it has no loop that loads without dots, or the source has chosen their stages")
    else:
        all_loops = _loops_that_load(kernel)
        lines = _source_lines(kernel, all_loops)
        loops = [loop for loop, of_loop in zip(all_loops, lines, strict=True) if line in map(str, of_loop)]
        if not loops:
            raise EditRefused(f"it has no innermost loop that loads at line {line}, nor in a helper called there")
    attribute = f"{_ATTRIBUTE} = {stages} : i32"
    return replace(kernel.to_recompile(), ttir=spliced(kernel.ttir, [_edit_of(loop, attribute) for loop in loops]))


LOOP_STAGES = EditKind(
    "loop_stages",
    f"2 to {_MAX_STAGES} for loops without dots, or LINE:N, with N from 1, for the loop at a line",
    _applied,
    _more,
    _fewer,
    _in_source,
)


def _loops_that_load(kernel: KernelToEdit) -> list[Operation]:
    """Return the innermost ``scf.for`` of the TTIR with loads; none if there is no TTIR, or it is not understood."""
    try:
        operations = list(kernel.parsed("ttir").walk()) if kernel.ttir else []
    except KprofError:
        return []
    loops = [one for one in operations if one.name == _LOOP and any(inner.name in _LOADS for inner in _inside(one))]
    return [loop for loop in loops if not any(inner.traits.is_loop for inner in _inside(loop))]


def _without_stages(kernel: KernelToEdit) -> list[Operation]:
    """Return the loops without dots for which the source has not chosen a number of stages."""
    return [loop for loop in _loops_that_load(kernel) if not _has_dots(loop) and _stages_of(loop) is None]


def _stages_by_line(kernel: KernelToEdit) -> list[tuple[int, int]]:
    """Return a line that no other loop has, and the number of stages, of each loop that loads; none of a single one."""
    loops = _loops_that_load(kernel)
    if len(loops) < 2:
        return []
    lines = _source_lines(kernel, loops)
    counts = Counter(line for of_loop in lines for line in of_loop)
    found = []
    for loop, of_loop in zip(loops, lines, strict=True):
        default = kernel.number("num_stages") if _has_dots(loop) else 1
        own = next((line for line in of_loop if counts[line] == 1), None)
        if own is not None:
            found.append((own, _stages_of(loop) or default))
    return found


def _stages_of(loop: Operation) -> int | None:
    """Return the number of stages that the source has chosen for a loop; None if it has not."""
    attributes = _DICTIONARY.match(loop.closing)
    found = _NAMED.search(attributes["attributes"]) if attributes else None
    return int(found[1] or 0) if found else None


def _inside(loop: Operation) -> Iterator[Operation]:
    return (operation for operation in loop.walk() if operation is not loop)


def _has_dots(loop: Operation) -> bool:
    return any(operation.traits.is_dot for operation in _inside(loop))


def _source_lines(kernel: KernelToEdit, loops: Sequence[Operation]) -> list[list[int]]:
    """Return the lines of the source of each loop: its own, then that of the call which inlined it, and so on."""
    if not loops:
        return []
    table, lines = LocationTable(kernel.parsed("ttir")), []
    for loop in loops:
        try:
            chains = table.chains_of(loop)
        except KprofError:  # an alias that refers to itself
            chains = ()
        lines.append([point.line for point in chains[0]] if chains else [])
    return lines


def _edit_of(loop: Operation, attribute: str) -> Replacement:
    """Return the text that follows the brace that closes the loop, or what replaces the attribute there."""
    closing = loop.regions[-1].end
    found = _DICTIONARY.match(loop.closing)
    if found is None:
        return closing + 1, closing + 1, f" {{{attribute}}}"
    start, attributes = closing + found.start("attributes"), found["attributes"]
    if present := _NAMED.search(attributes):
        return start + present.start(), start + present.end(), attribute
    return start, start, f"{attribute}, " if attributes.strip() else attribute

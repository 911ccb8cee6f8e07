"""Operations in words: what they are, of which variable, and where in the source."""

from __future__ import annotations

from pathlib import PurePath

from kprof_inject.ttgir.dialect import DIVISIONS, INTEGER_DIVISIONS
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import result_names
from kprof_inject.ttgir.strings import variable_in

_WORDS = {
    "tt.load": "the load",
    "tt.store": "the store",
    "tt.reduce": "the reduction",
    "tt.atomic_rmw": "the atomic operation",
    "ttg.async_copy_global_to_local": "the copy",
    "ttg.convert_layout": "the change of layout",
    **dict.fromkeys(DIVISIONS, "the division"),
    **dict.fromkeys(INTEGER_DIVISIONS, "the integer division"),
}


def place_of(module: Module, operation: Operation) -> str:
    """Return an operation's source line, such as ``matmul.py:58``, or its TTGIR line if the source is unknown."""
    chains = LocationTable(module).chains_of(operation)
    if not chains:
        return f"TTGIR line {module.line_numbers([operation.start])[0]}"
    return f"{PurePath(chains[0][0].file).name}:{chains[0][0].line}"


def words_of(module: Module, operation: Operation) -> str:
    """Return an operation in words, such as *the load of 'x' at matmul.py:58*."""
    if operation.traits.is_loop:  # its location names one of the values that it carries
        return f"the loop at {place_of(module, operation)}"
    what = _WORDS.get(operation.name, operation.name.rpartition(".")[2])
    variable = next(map(variable_in, result_names(operation)), "")
    return f"{what}{f' of {variable!r}' if variable else ''} at {place_of(module, operation)}"

"""The kinds of removals: one line for each, and the text without several operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kprof_inject.pipeline.removals.accesses import COPY, STORE, without_access
from kprof_inject.pipeline.removals.elementwise import ARITHMETIC, without_arithmetic
from kprof_inject.pipeline.removals.iterations import LOOP, without_half
from kprof_inject.pipeline.removals.loads import LOAD, without_load
from kprof_inject.pipeline.removals.reductions import REDUCTION, without_exchange
from kprof_inject.pipeline.removals.replacing import RemovalRefused
from kprof_inject.rewrite import Replacement, spliced
from kprof_inject.ttgir.influence import gives_floats, objection_to_other_values
from kprof_inject.ttgir.nodes import Module, Operation

_KINDS: Mapping[str, Callable[[Module, Operation], list[Replacement]]] = {
    **dict.fromkeys(ARITHMETIC, without_arithmetic),
    LOAD: without_load,
    LOOP: without_half,
    REDUCTION: without_exchange,
    **dict.fromkeys((STORE, COPY), without_access),
}

PARTLY_REMOVED = {LOOP: "half of the iterations of ", REDUCTION: "the exchange between threads in "}
"""Words before an operation of which only a part is removed."""


def is_removable(operation: Operation) -> bool:
    """Return whether there is a way to remove such an operation."""
    return operation.name in _KINDS and (operation.name == LOOP or gives_floats(operation))


def text_without(module: Module, operations: Sequence[Operation]) -> str:
    """Return the module's text without some operations; all lines keep their numbers. Raises ``RemovalRefused``."""
    if objection := objection_to_other_values(module, operations):
        raise RemovalRefused(objection)
    return spliced(module.text, [edit for one in operations for edit in _KINDS[one.name](module, one)])

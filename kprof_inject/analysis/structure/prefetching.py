"""Number of iterations by which a loop requests its loads ahead of their use."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.ttgir.dialect import WARP_SPECIALIZE
from kprof_inject.ttgir.loops import body_of, pipeline_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names, result_names

_STORE, _COPY = "ttg.local_store", "ttg.async_copy_global_to_local"


def iterations_ahead(module: Module, loop: Operation, load: Operation, occurrences: Sequence[Operation]) -> int | None:
    """Return the number of iterations by which a load is issued before its wait or its use.

    0 if an iteration waits for its own load; None if unknown, because another partition waits for it. If copies are
    committed in groups, the loop's wait shows it. Otherwise it is the number of iterations whose loads precede the
    loop, because the compiler has peeled them off; ``occurrences`` are all operations of the load's line.
    """
    pipeline = pipeline_of(module, loop) if load.traits.starts_async else None
    if pipeline is not None and (ahead := pipeline.iterations_ahead(load)) is not None:
        return ahead
    inside = sum(one.loop is loop for one in occurrences)
    peeled_off = sum(_is_peeled_off(loop, one) for one in occurrences) // max(inside, 1)
    if not peeled_off and load.traits.starts_async and any(one.name == WARP_SPECIALIZE for one in load.owners()):
        return None
    return peeled_off


def is_used_at_once(loop: Operation, load: Operation) -> bool:
    """Return True if a dot in the same iteration depends on what is loaded.

    Otherwise a later iteration uses it, for instance if threads load into registers and store to shared memory after
    the dots.
    """
    made = {*result_names(load)}
    for operation in _later(loop, load):
        taken = [name for one in operation.walk() for name in operand_names(one)]
        if operation.traits.is_terminator or made.isdisjoint(taken):
            continue
        if any(one.traits.is_dot for one in operation.walk()):
            return True
        # A store puts its data into memory, which a later load may read.
        made.update(taken if operation.name == _STORE else result_names(operation))
    return False


def is_for_a_branch(loop: Operation, load: Operation) -> bool:
    """Return True if what is loaded only reaches dots under a condition in the loop's body.

    Triton's pipeliner looks for loads from the dots that the body itself has.
    """
    made, is_in_branch = {*result_names(load)}, False
    for operation in _later(loop, load):
        inside = [*operation.walk()]
        if operation.traits.is_terminator or made.isdisjoint(name for one in inside for name in operand_names(one)):
            continue
        if operation.traits.is_dot:
            return False
        is_in_branch |= any(one.traits.is_dot and one.loop is loop for one in inside)
        made.update(result_names(operation))
    return is_in_branch


def is_for_a_copy(loop: Operation, load: Operation) -> bool:
    """Return True if an asynchronous copy in the loop's body copies from an address that depends on a load."""
    made = {*result_names(load)}
    for operation in _later(loop, load):
        if made.isdisjoint(operand_names(operation)):
            continue
        if operation.name == _COPY and operand_names(operation)[0] in made:
            return True
        if operation.traits.is_move or operation.traits.is_arithmetic or operation.traits.is_indexing:
            made.update(result_names(operation))
    return False


def _later(loop: Operation, load: Operation) -> list[Operation]:
    """Return the operations of a loop's body after a load."""
    return [one for one in body_of(loop) if one.start > load.start]


def _is_peeled_off(loop: Operation, one: Operation) -> bool:
    """Return True if an operation precedes the loop, in the same block or under a condition there.

    It must also follow any loop before that one.
    """
    block = loop.block
    if block is None or one.start >= loop.start:
        return False
    outermost = next((owner for owner in (one, *one.owners()) if owner.block is block), None)
    if outermost is None or outermost.traits.is_loop:
        return False
    return not any(other.traits.is_loop and outermost.start < other.start < loop.start for other in block.operations)

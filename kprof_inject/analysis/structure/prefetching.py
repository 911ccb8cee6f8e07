"""How many iterations ahead of its use a loop asks for what it loads."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.ttgir.copy_groups import pipeline_of
from kprof_inject.ttgir.dialect import WARP_SPECIALIZE
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import operand_names, result_names

_READ, _STORE = "ttg.local_load", "ttg.local_store"


def iterations_ahead(loop: Operation, load: Operation, occurrences: Sequence[Operation]) -> int | None:
    """0 if an iteration waits for what it asks for itself. None if that cannot be told: another partition waits for it.

    Where copies are committed in groups, the loop's wait tells. Elsewhere it is how many iterations' loads stand in
    front of the loop, for the compiler has peeled as many off; ``occurrences`` are all of the load's line.
    """
    pipeline = pipeline_of(loop) if load.traits.starts_async else None
    if pipeline is not None and (waits := pipeline.waits_for(load)):
        return min(iterations + _is_for_the_next(wait, loop) for wait, iterations in waits)
    peeled_off = sum(_is_peeled_off(loop, one) for one in occurrences)
    if not peeled_off and load.traits.starts_async and any(one.name == WARP_SPECIALIZE for one in load.owners()):
        return None
    return peeled_off


def is_used_at_once(loop: Operation, load: Operation) -> bool:
    """Whether a dot of the iteration that loads takes what is made of it. Else a later iteration does, as where the
    compiler has threads load into registers, and store these to shared memory behind the dots.
    """
    made = {*result_names(load)}
    for operation in (one for block in loop.regions[-1].blocks for one in block.operations if one.start > load.start):
        taken = [name for one in operation.walk() for name in operand_names(one)]
        if operation.traits.is_terminator or made.isdisjoint(taken):
            continue
        if any(one.traits.is_dot for one in operation.walk()):
            return True
        # A store gives its data to memory, which a later load may read.
        made.update(taken if operation.name == _STORE else result_names(operation))
    return False


def _is_for_the_next(wait: Operation, loop: Operation) -> bool:
    """Whether all that is read behind a wait is used by the next iteration alone, as where the compiler reads a part of
    the next tiles at an iteration's end.
    """
    body = [one for block in loop.regions[-1].blocks for one in block.operations]
    reads = [one for one in body if one.name == _READ and _result(wait) in operand_names(one)]
    results = {_result(one) for one in reads}
    users = [one for one in body if not results.isdisjoint(operand_names(one))]
    return bool(reads) and all(one.traits.is_terminator for one in users)


def _result(operation: Operation) -> str:
    return operation.results.partition("=")[0].partition(":")[0].strip()


def _is_peeled_off(loop: Operation, one: Operation) -> bool:
    """Whether it stands in front of the loop, in the same block or under a condition there; and behind any loop that
    comes before it.
    """
    block = loop.block
    if block is None or one.start >= loop.start:
        return False
    outermost = next((owner for owner in (one, *one.owners()) if owner.block is block), None)
    if outermost is None or outermost.traits.is_loop:
        return False
    return not any(other.traits.is_loop and outermost.start < other.start < loop.start for other in block.operations)

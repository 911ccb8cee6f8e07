"""How many iterations ahead of its use a loop asks for what it loads."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.ttgir.copy_groups import pipeline_of
from kprof_inject.ttgir.nodes import Operation


def iterations_ahead(loop: Operation, load: Operation, occurrences: Sequence[Operation]) -> int:
    """0 if an iteration waits for what it asks for itself.

    Where copies are committed in groups, the loop's wait tells. Elsewhere it is how many iterations' loads stand in
    front of the loop, for the compiler has peeled as many off; ``occurrences`` are all of the load's line."""
    pipeline = pipeline_of(loop) if load.traits.starts_async else None
    if pipeline is not None and (depth := pipeline.depth_of(load)) is not None:
        return depth
    return sum(_is_peeled_off(loop, one) for one in occurrences)


def _is_peeled_off(loop: Operation, one: Operation) -> bool:
    """Whether it stands in front of the loop, in the same block or under a condition there; and behind any loop that
    comes before it."""
    block = loop.block
    if block is None or one.start >= loop.start:
        return False
    outermost = next((owner for owner in (one, *one.owners()) if owner.block is block), None)
    if outermost is None or outermost.traits.is_loop:
        return False
    return not any(other.traits.is_loop and outermost.start < other.start < loop.start for other in block.operations)

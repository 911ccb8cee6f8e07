"""Find the arguments of a kernel that it only writes to, so that what was there before does not matter."""

from __future__ import annotations

from collections import defaultdict

from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, argument_names

# Operations that write to the address in their first operand, and do nothing else with it.
_WRITES = ("tt.store", "tt.descriptor_store", "ttng.async_tma_copy_local_to_global")


def written_arguments(module: Module) -> list[bool]:
    """Return for each argument of the kernel whether its only use is as an address to write to.

    Empty if the module has several functions: what a helper does with an address is not followed.
    """
    functions = [operation for operation in module.walk() if operation.name == FUNCTION]
    if len(functions) != 1:
        return []
    graph = ValueGraph(module, functions[0])
    count = len(argument_names(module, functions[0]))
    arguments = next(values for operation, values in graph.nests if operation is functions[0])[:count]
    users: defaultdict[int, list[Leaf]] = defaultdict(list)
    for leaf in graph.leaves:
        for value in leaf.values:
            users[value].append(leaf)
    return [_is_only_written(graph, users, argument) for argument in arguments]


def _is_only_written(graph: ValueGraph, users: dict[int, list[Leaf]], argument: int) -> bool:
    """Follow an argument through everything that is computed from it."""
    of_leaves = {leaf.node for leaf in graph.leaves}
    reached, pending, is_written = {argument}, [argument], False
    while pending:
        value = pending.pop()
        following = [use for use in graph.uses[value] if use not in of_leaves]
        for leaf in users.get(value, ()):
            if leaf.operation.name in _WRITES:
                if leaf.values[0] != value or value in leaf.values[1:]:
                    return False
                is_written = True
            elif _only_computes(leaf):
                following.append(leaf.node)
            elif not leaf.operation.traits.is_terminator:
                return False
        pending += [node for node in following if node not in reached]
        reached.update(following)
    return is_written


def _only_computes(leaf: Leaf) -> bool:
    traits = leaf.operation.traits
    if traits.reads_memory or traits.is_foreign or traits.is_branch or traits.makes_pointers:
        return False
    return traits.is_indexing or traits.is_arithmetic or traits.is_move

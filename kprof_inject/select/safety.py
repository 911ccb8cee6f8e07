"""Safety of relaunching a module's kernel, and the memory that needs no restoring."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Set

from kprof_inject.capture.scopes import RelaunchRecord
from kprof_inject.select.functions import symbol_of
from kprof_inject.select.module_view import callee_symbol
from kprof_inject.ttgir.dialect import CALL, FUNCTION
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.polling import goes_on_until_memory_changes, has_branch, is_impure, polls, sees_changes
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, argument_names, successors_of

_POINTER_TO_POINTER = "!tt.ptr<!tt.ptr<"
_SYMBOL = re.compile(r'\bsymbol = "([^"]*)"')


def relaunch(module: Module) -> RelaunchRecord:
    """Find what prevents relaunching the kernel, and whether the kernel may wait for others' writes."""
    operations = list(module.walk())
    functions = [operation for operation in operations if operation.name == FUNCTION]
    # The functions that see changes of memory by others, themselves or in what they call.
    inside = {symbol_of(function): list(function.walk()) for function in functions}
    looking: set[str] = set()
    before: set[str] | None = None
    while looking != before:
        before = looking
        looking = {symbol for symbol, body in inside.items() if any(_looks(one, before) for one in body)}
    waits = any(_waits(operation, looking) for operation in operations)
    waits = waits or any(goes_on_until_memory_changes(module, one) for one in functions)
    return RelaunchRecord(refusal=next(filter(None, map(_refusal, operations)), ""), waits=waits)


def _looks(operation: Operation, looking: Set[str]) -> bool:
    return callee_symbol(operation) in looking if operation.name == CALL else sees_changes(operation)


def _refusal(operation: Operation) -> str:
    # Memory is saved by the kernel's arguments, and all other effects would be repeated.
    traits = operation.traits
    if traits.makes_pointers:
        return f"casts integers to pointers ({operation.name})"
    if _POINTER_TO_POINTER in operation.tail:
        return f"reads pointers from memory ({operation.name})"
    if traits.is_output:
        return f"prints ({operation.name})"
    if is_impure(operation) and (symbol := _SYMBOL.search(operation.tail)):
        return f"calls {symbol[1]}, which may do anything"
    return ""


def _waits(operation: Operation, looking: Set[str]) -> bool:
    # Nothing else may run in a replay to change the memory.
    if polls(operation) or has_branch(operation):
        return True
    return _looks(operation, looking) and any(map(_is_endless, operation.ancestors()))


def _is_endless(operation: Operation) -> bool:
    if operation.name != FUNCTION:
        return operation.traits.is_loop and not operation.traits.is_counted
    for region in operation.regions:
        places = {block.label: place for place, block in enumerate(region.blocks)}
        for place, block in enumerate(region.blocks):
            # Every loop of blocks has one that branches to itself, or to one that is printed before it.
            for last in block.operations[-1:]:
                if any(places.get(label, -1) <= place for label, _ in successors_of(last)):
                    return True
    return False


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
                continue
            traits = leaf.operation.traits
            has_effect = traits.reads_memory or traits.is_foreign or traits.is_branch or traits.makes_pointers
            if (traits.is_indexing or traits.is_arithmetic or traits.is_move) and not has_effect:
                following.append(leaf.node)
            elif not traits.is_terminator:
                return False
        pending += [node for node in following if node not in reached]
        reached.update(following)
    return is_written

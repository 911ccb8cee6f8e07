"""Definitions and uses of the values of a module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, reached
from kprof_inject.ttgir.types import if_misfit, types_of

Use = tuple[Operation, int]
"""An operation, and the position of the operand."""
_Node = tuple[int, int]

_MAX_CHAIN = 64  # changes of layout or type in a row
_MOVES = frozenset(("ttg.local_alloc", "ttg.local_load", "ttg.memdesc_trans", "ttg.memdesc_index", "tt.bitcast"))


class Uses:
    """The operations without regions of a module, and the values that flow between them."""

    def __init__(self, module: Module) -> None:
        """Build the graph of each function."""
        functions = [one for one in module.walk() if one.name == FUNCTION]
        self._graphs = [ValueGraph(module, function) for function in functions]
        self._leaves: dict[_Node, Leaf] = {}
        self._nodes: dict[Operation, _Node] = {}
        self._users: defaultdict[_Node, list[Use]] = defaultdict(list)
        for number, graph in enumerate(self._graphs):
            for leaf in graph.leaves:
                self._leaves[number, leaf.node] = leaf
                self._nodes[leaf.operation] = number, leaf.node
                for place, value in enumerate(leaf.values):
                    self._users[number, value].append((leaf.operation, place))
            for operation, values in graph.nests:
                for place, value in enumerate(values):
                    self._users[number, value].append((operation, place))

    def users(self, operation: Operation) -> Sequence[Use]:
        """Return the uses of an operation's results; loops and terminators are among them."""
        return self._users[self._nodes[operation]] if operation in self._nodes else ()

    def readers(self, operation: Operation) -> list[Use]:
        """Return the uses of an operation's elements, whatever changes their layout or shape before."""
        found: list[Use] = []
        pending = [operation]
        for _ in range(_MAX_CHAIN):
            if not pending:
                break
            for user, place in self.users(pending.pop()):
                if keeps_values(user) and place == 0:
                    pending.append(user)
                else:
                    found.append((user, place))
        return found

    def maker(self, operation: Operation, place: int) -> Operation | None:
        """Return the operation that computes an operand; None for arguments, and for what regions and loops pass on."""
        number, node = self._nodes.get(operation, (0, -1))
        leaf = self._leaves.get((number, node))
        if leaf is None or place >= len(leaf.values):
            return None
        made = self._leaves.get((number, leaf.values[place]))
        return made.operation if made else None

    def origin(self, operation: Operation, place: int) -> Operation | None:
        """Return the operation that computes an operand's elements, whatever changed their layout or shape since."""
        made = self.maker(operation, place)
        for _ in range(_MAX_CHAIN):
            if made is None or not keeps_values(made):
                return made
            source = self.maker(made, 0)
            if source is None:
                return made
            made = source
        return made

    @property
    def of_addresses(self) -> set[Operation]:
        """The operations that only compute which memory is accessed: addresses, offsets and masks.

        Those that only compute, from indices, which value a select takes are among them.
        """
        found: set[Operation] = set()
        for number, graph in enumerate(self._graphs):
            places, choices, data, other = set[int](), set[int](), set[int](), set[int]()
            operands = [*graph.operands]
            for leaf in graph.leaves:
                traits = leaf.operation.traits
                if traits.reads_memory or traits.is_random or _is_float(leaf.operation):
                    other.add(leaf.node)
                if leaf.operation.name == "arith.select":
                    choices.update(leaf.values[:1])
                    operands[leaf.node] = leaf.values[1:]
                elif traits.takes_addresses and not traits.is_indexing:
                    places.update(leaf.addresses)
                    data.update(set(leaf.values) - set(leaf.addresses))
                elif traits.is_of_dot or traits.accesses_shared or traits.is_output:
                    data.update(leaf.values)
            of_indices = reached(choices, operands) - reached(other, graph.uses)
            decide = reached(places, operands) | of_indices
            leaves = (self._leaves.get((number, node)) for node in decide - reached(data, operands))
            found.update(leaf.operation for leaf in leaves if leaf and not leaf.operation.traits.reads_memory)
        return found


@if_misfit(False)
def _is_float(operation: Operation) -> bool:
    return any(printed.element.startswith(("f", "bf")) for printed in types_of(operation)[-1:])


def keeps_values(operation: Operation) -> bool:
    """Return True if an operation passes on the elements of its first operand, in another layout, shape or memory."""
    return operation.traits.keeps_elements or operation.name in _MOVES


@lru_cache(maxsize=KERNELS_CACHED)
def uses_of(module: Module) -> Uses:
    """Return the uses of a module's values."""
    return Uses(module)

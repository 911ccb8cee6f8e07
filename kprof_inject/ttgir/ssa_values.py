"""Definitions and uses of the values of a function, and the values of constants."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from msgspec import Struct

from kprof_inject.ttgir.dialect import data_operands_of
from kprof_inject.ttgir.nodes import Block, Module, Operation, Region
from kprof_inject.ttgir.strings import STRING

_STRING = re.compile(STRING)
_VALUE = re.compile(r"%[\w$.-]+(?:#[0-9]+)?")
_RESULT = re.compile(r"(%[\w$.-]+)(?::([0-9]+))?")
_BOUND = re.compile(r"(%[\w$.-]+)\s*=")
_ARGUMENT = re.compile(r"(%[\w$.-]+)\s*:")
_ARGUMENT_TYPE = re.compile(r"%[\w$.-]+\s*:\s*([^\s,)]+)")
_SUCCESSOR = re.compile(r"(\^[\w$.-]+)(?:\(([^:)]*))?")


def without_strings(text: str) -> str:
    """Return an operation's text without its strings, which may contain anything."""
    return _STRING.sub("", text)


def operand_names(operation: Operation) -> list[str]:
    """Return the operands of an operation without regions, in the order of the text."""
    return names_in(operation.tail)


def names_in(text: str) -> list[str]:
    """Return the values that a text names, in order."""
    return _VALUE.findall(without_strings(text))


def definition_of(name: str, user: Operation) -> Operation | None:
    """Return the operation that defines an operand of ``user`` in the same function; None if it is an argument."""
    for operation in (user, *user.owners()):
        if operation.block is None:
            return None
        for block in operation.block.region.blocks:
            for candidate in takewhile(lambda other: other is not operation, block.operations):  # noqa: B023 (used at once)
                if name.partition("#")[0] == candidate.results.partition("=")[0].partition(":")[0].strip():
                    return candidate
    return None


def makers_of(operations: Sequence[Operation], names: Sequence[str]) -> list[Operation]:
    """Return the operations of a block, except loops, that compute the named values, in the order of the text."""
    needed, found = set(names), []
    for operation in reversed(operations):
        if not operation.traits.is_loop and not needed.isdisjoint(result_names(operation)):
            found.append(operation)
            needed.update(name for inner in operation.walk() for name in operand_names(inner))
    return found[::-1]


def argument_names(module: Module, holder: Operation | Region) -> list[str]:
    """Return the arguments of a function, or those of a region that its own text names."""
    if isinstance(holder, Operation):
        return _ARGUMENT.findall(without_strings(holder.tail))
    return block_arguments(module, holder, holder.blocks[0])


def argument_types(function: Operation) -> list[str]:
    """Return the types of a function's arguments, each up to its first comma."""
    return _ARGUMENT_TYPE.findall(without_strings(function.tail))


def block_arguments(module: Module, region: Region, block: Block) -> list[str]:
    """Return the arguments in a block's label, or in the clause that begins it."""
    return _ARGUMENT.findall(without_strings(label_text(module, region, block)))


def label_text(module: Module, region: Region, block: Block) -> str:
    """Return a block's label, or the clause that begins it, with its arguments; empty if it has neither."""
    head = block.label or region.clause
    if not head.startswith(("^", "partition")):
        return ""
    text = module.text
    return text[text.rindex(head, 0, block.start) : block.start]


def successors_of(branch: Operation) -> list[tuple[str, list[str]]]:
    """Return the labels of the blocks that an operation branches to, each with the values that it passes on."""
    # The generic form does not say which values go to which block: there are none then.
    return [(label, _VALUE.findall(passed)) for label, passed in _SUCCESSOR.findall(without_strings(branch.tail))]


def bound_names(operation: Operation) -> list[str]:
    """Return the arguments of an operation's first region that the operation itself names."""
    return _BOUND.findall(without_strings(operation.tail))


def loop_arguments(module: Module, loop: Operation) -> list[str]:
    """Return the arguments of a loop's first region: for an ``scf.for``, the induction variable and carried values."""
    return bound_names(loop) or argument_names(module, loop.regions[0])


# Attributes may precede the value or, in the generic form, enclose it: ``{async_task_id = array<i32: 0>} 5``,
# ``<{value = dense<5> : tensor<8xi32>}>``. A float has more characters after the digits.
_CONSTANT = re.compile(
    r"\s*(?:\(\) <\{value = |\{[^{}]*\} )?(?P<dense>dense<)?(?P<value>-?\d+|true|false)(?(dense)>)(?![\w.])"
)
_MIN_INTEGER, _MAX_INTEGER = -(1 << 63), (1 << 63) - 1  # Triton has no wider integers


def constant_of(operation: Operation) -> int | None:
    """Return the value of an integer constant, or of each element of a constant tensor; one bit gives a ``bool``."""
    found = _CONSTANT.match(operation.tail) if operation.traits.is_constant else None
    if found is None:
        return None
    if found["value"] in ("true", "false"):
        return found["value"] == "true"
    value = int(found["value"])
    return value if _MIN_INTEGER <= value <= _MAX_INTEGER else None


class Leaf(Struct, frozen=True):
    """An operation without regions: the node of its results and those of its operands, in the order of the text."""

    operation: Operation
    node: int
    values: list[int]

    @property
    def addresses(self) -> list[int]:
        """The operands that may be addresses, indices or masks: all but those known to be data."""
        name, is_generic = self.operation.name, self.operation.tail.startswith("(")
        data = {place % len(self.values) for place in data_operands_of(name, is_generic=is_generic) if self.values}
        return [value for place, value in enumerate(self.values) if place not in data]


class _Body(Struct, frozen=True):
    arguments: list[int]  # of the entry block
    ends: list[list[int]]  # the values that the end of each block passes on


class ValueGraph:
    """The values of a function as the nodes of a graph, with the ``operands`` and the ``uses`` of each.

    An operation with regions passes values on by their position and has a node for each result, in ``results``, and its
    operands in ``nests``; the others, the ``leaves``, have one node for all results. A name is resolved while the
    region that defines it is read; a name without a definition is an unknown value.
    """

    def __init__(self, module: Module, function: Operation) -> None:
        self.operands: list[list[int]] = []
        self.uses: list[list[int]] = []
        self.leaves: list[Leaf] = []
        self.results: list[tuple[Operation, list[int]]] = []
        self.nests: list[tuple[Operation, list[int]]] = []
        self._module = module
        self._named: dict[str, int] = {}
        self._hidden: list[tuple[str, int | None]] = []
        # Not recursive: operations may be nested deeper than Python's calls.
        pending = [self._take_nest(function)]
        while pending:
            inner = next(pending[-1], None)
            if inner is None:
                pending.pop()
            else:
                pending.append(self._take_nest(inner))

    def _take_nest(self, operation: Operation) -> Iterator[Operation]:
        """Add an operation with regions; yield each nested one at the moment when it must be added."""
        text = without_strings(operation.tail)
        values = [self._find(name) for name in _VALUE.findall(_BOUND.sub("", text))]
        bound = _BOUND.findall(text)
        bodies = []
        for region in operation.regions:
            outer = len(self._hidden)
            named = {block.label: block_arguments(self._module, region, block) for block in region.blocks}
            named[region.blocks[0].label] += bound
            arguments = {label: [self._give(name) for name in names] for label, names in named.items()}
            bound = []
            ends = []
            for block in region.blocks:
                passed: list[int] = []
                for inner in block.operations:
                    passed = []
                    if inner.regions:
                        yield inner
                    else:
                        passed = self._take_leaf(inner)
                if block.operations and block.operations[-1].traits.is_terminator:
                    ends.append(passed)
                    self._branch(block.operations[-1], passed, arguments)
            # The next region may define the same names again.
            while len(self._hidden) > outer:
                name, hidden = self._hidden.pop()
                if hidden is None:
                    del self._named[name]
                else:
                    self._named[name] = hidden
            bodies.append(_Body(arguments[region.blocks[0].label], ends))
        results = [self._give(name) for name in result_names(operation)]
        for targets, given in _PASSING.get(operation.name, _pass_all)(values, bodies, results):
            for target, value in zip(targets, given, strict=False):
                self._link(target, value)
        self.results.append((operation, results))
        self.nests.append((operation, values))

    def _branch(self, operation: Operation, values: Sequence[int], arguments: dict[str, list[int]]) -> None:
        # Each successor gets all values where the text does not say which.
        for label, passed in successors_of(operation):
            for index, argument in enumerate(arguments.get(label, ())):
                for value in [self._find(name) for name in passed[index : index + 1]] or values:
                    self._link(argument, value)

    def _take_leaf(self, operation: Operation) -> list[int]:
        values = [self._find(name) for name in operand_names(operation)]
        node = self._new([] if operation.traits.reads_memory else values)
        for name, _ in _RESULT.findall(operation.results):
            self._name(name, node)
        self.leaves.append(Leaf(operation, node, values))
        return values

    def _find(self, name: str) -> int:
        found = self._named.get(name, self._named.get(name.partition("#")[0]))
        return self._give(name) if found is None else found

    def _give(self, name: str) -> int:
        node = self._new([])
        self._name(name, node)
        return node

    def _name(self, name: str, node: int) -> None:
        self._hidden.append((name, self._named.get(name)))
        self._named[name] = node

    def _new(self, operands: Sequence[int]) -> int:
        node = len(self.operands)
        self.operands.append([])
        self.uses.append([])
        for operand in operands:
            self._link(node, operand)
        return node

    def _link(self, node: int, operand: int) -> None:
        self.operands[node].append(operand)
        self.uses[operand].append(node)


def reached(start: Iterable[int], successors: Sequence[Sequence[int]]) -> set[int]:
    """Return the nodes of a graph that can be reached from some of them, with these."""
    found = set(start)
    pending = list(found)
    while pending:
        for node in successors[pending.pop()]:
            if node not in found:
                found.add(node)
                pending.append(node)
    return found


_Passing = Iterator[tuple[Sequence[int], Sequence[int]]]


def _pass_in_for(values: list[int], bodies: Sequence[_Body], results: list[int]) -> _Passing:
    # Not the induction variable, even if a bound was loaded.
    for passed in (values[3:], *(end for body in bodies for end in body.ends)):
        yield bodies[0].arguments[1:], passed
        yield results, passed


def _pass_in_while(values: list[int], bodies: Sequence[_Body], results: list[int]) -> _Passing:
    before, after = bodies[0], bodies[-1]
    for passed in (values, *after.ends):
        yield before.arguments, passed
    for end in before.ends:
        yield after.arguments, end[1:]
        yield results, end[1:]


def _pass_out(values: list[int], bodies: Sequence[_Body], results: list[int]) -> _Passing:
    return ((results, end) for body in bodies for end in body.ends)


def _pass_all(values: list[int], bodies: Sequence[_Body], results: list[int]) -> _Passing:
    # The operation's semantics are unknown.
    yield results, values
    yield from ((body.arguments, values) for body in bodies)
    yield from _pass_out(values, bodies, results)


_PASSING = {"scf.for": _pass_in_for, "scf.while": _pass_in_while, "scf.if": _pass_out}


def result_names(operation: Operation) -> list[str]:
    """Return the names of an operation's results; several under one name get a number each."""
    return [
        f"{name}#{number}" if count else name
        for name, count in _RESULT.findall(operation.results)
        for number in range(int(count or 1))
    ]

"""Values of a module: their uses, and what they depend on: a loop's iteration, the CTA, the result of a reduction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache

from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.ttgir.dialect import FUNCTION, INTEGER_DIVISIONS, PROGRAM_ID
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import ValueGraph, loop_arguments, names_in, operand_names, reached, result_names
from kprof_inject.ttgir.types import types_of

Use = tuple[Operation, int]  # an operation, and the position of the operand

# These pass on the elements of their first operand, as do operations that keep elements.
_KEEPING = frozenset(("ttg.local_alloc", "ttg.local_load", "ttg.memdesc_trans", "ttg.memdesc_index", "tt.bitcast"))


class Uses:
    """The operations without regions of a module, and the values that flow between them."""

    def __init__(self, module: Module) -> None:
        self._graphs = [ValueGraph(module, one) for one in module.walk() if one.name == FUNCTION]
        self._leaves = {(number, leaf.node): leaf for number, graph in enumerate(self._graphs) for leaf in graph.leaves}
        self._nodes = {leaf.operation: node for node, leaf in self._leaves.items()}
        self._users: defaultdict[tuple[int, int], list[Use]] = defaultdict(list)
        for number, graph in enumerate(self._graphs):
            for operation, values in [*((leaf.operation, leaf.values) for leaf in graph.leaves), *graph.nests]:
                for place, value in enumerate(values):
                    self._users[number, value].append((operation, place))

    def users(self, operation: Operation) -> Sequence[Use]:
        """Return the uses of an operation's results; loops and terminators are among them."""
        return self._users[self._nodes[operation]] if operation in self._nodes else ()

    def readers(self, operation: Operation) -> list[Use]:
        """Return the uses of an operation's elements, whatever changes their layout or shape before."""
        found, pending = [], [operation]
        while pending:
            for user, place in self.users(pending.pop()):
                if place == 0 and _keeps_elements(user):
                    pending.append(user)
                else:
                    found.append((user, place))
        return found

    def maker(self, operation: Operation, place: int) -> Operation | None:
        """Return the operation that computes an operand; None for arguments, and for what regions and loops pass on."""
        number, node = self._nodes.get(operation, (0, -1))
        leaf = self._leaves.get((number, node))
        made = self._leaves.get((number, leaf.values[place])) if leaf and place < len(leaf.values) else None
        return made.operation if made else None

    def origin(self, operation: Operation, place: int) -> Operation | None:
        """Return the operation that computes an operand's elements, whatever changed their layout or shape since."""
        made = self.maker(operation, place)
        while made is not None and _keeps_elements(made) and (source := self.maker(made, 0)) is not None:
            made = source
        return made

    def sources(self, operation: Operation, place: int, passes: Callable[[Operation], bool]) -> set[Operation]:
        """Return the operations from which an operand is computed, back to the first that do not pass."""
        found, pending = set[Operation](), [(operation, place)]
        while pending:
            made = self.maker(*pending.pop())
            if made is not None and made not in found:
                found.add(made)
                if passes(made):
                    pending += [(made, number) for number in range(len(operand_names(made)))]
        return found

    def loads_for(self, access: Operation) -> list[Operation]:
        """Return the loads from whose results the address of an access is computed."""
        sources = self.sources(access, 0, lambda made: not made.traits.reads_memory)
        return [one for one in sources if one.traits.reads_memory]

    @property
    def of_addresses(self) -> set[Operation]:
        """The operations that only compute addresses, offsets and masks, or from indices what a select takes."""
        found: set[Operation] = set()
        for number, graph in enumerate(self._graphs):
            places, choices, data, other = set[int](), set[int](), set[int](), set[int]()
            operands = [*graph.operands]
            for leaf in graph.leaves:
                traits = leaf.operation.traits
                results = types_of(leaf.operation)[-1:]
                is_float = any(printed.element.startswith(("f", "bf")) for printed in results)
                if traits.reads_memory or traits.is_random or is_float:
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


def _keeps_elements(operation: Operation) -> bool:
    return operation.traits.keeps_elements or operation.name in _KEEPING


uses_of = lru_cache(maxsize=KERNELS_CACHED)(Uses)


@lru_cache(maxsize=KERNELS_CACHED)
def varying_names(module: Module, loop: Operation) -> Set[str]:
    """Return the names of a loop's values that may differ between iterations, as if nothing wrote to memory."""
    varying = set(loop_arguments(module, loop))
    for region in loop.regions[:-1]:
        varying.update(name for one in region.walk() for name in result_names(one))
    for one in body_of(loop):
        if not _is_repeated(one, varying):
            varying.update(name for inner in one.walk() for name in _names_given(inner))
    return varying


def invariant_operations(module: Module, loop: Operation) -> list[Operation]:
    """Return the operations of a loop's body that compute or load the same in each iteration."""
    varying = varying_names(module, loop)
    return [one for one in body_of(loop) if _is_repeated(one, varying) and not one.traits.is_constant]


@lru_cache(maxsize=KERNELS_CACHED)
def independent_operations(module: Module, function: Operation, varying: frozenset[Operation]) -> Sequence[Operation]:
    """Return the operations of a function that compute or load the same whatever some program ids are.

    ``varying`` are these program ids, and what is divided by them. A load depends on its address alone, as if nothing
    wrote to memory meanwhile.
    """
    tainted: set[str] = set()
    inside = [one for one in function.walk() if one is not function]
    known = -1
    while known != len(tainted):  # a loop passes values back to its begin
        known = len(tainted)
        for one in inside:
            bounds = names_in(one.tail.partition("iter_args")[0])
            is_unknown = one.name != PROGRAM_ID and not (_is_repeatable(one) or one.traits.is_loop)
            if one.name == "scf.for" and tainted.isdisjoint(bounds):
                tainted.update(_carried(module, one, tainted))
            elif one in varying or is_unknown or not tainted.isdisjoint(_names_taken(one)):
                tainted.update(_names_given(one), loop_arguments(module, one) if one.traits.is_loop else ())
    return tuple(one for one in inside if _is_repeated(one, tainted))


def _carried(module: Module, loop: Operation, tainted: Set[str]) -> Iterator[str]:
    arguments, results = loop_arguments(module, loop)[1:], result_names(loop)
    initial = operand_names(loop)[-len(arguments) :] if arguments else []
    yielded = operand_names(body_of(loop)[-1])[: len(arguments)]
    for place, argument in enumerate(arguments):
        sources = [*initial[place : place + 1], *yielded[place : place + 1], argument]
        if any(name in tainted or name.partition("#")[0] in tainted for name in sources):
            yield argument
            yield from results[place : place + 1]


def _is_repeated(one: Operation, changing: Set[str]) -> bool:
    return _is_repeatable(one) and changing.isdisjoint(_names_taken(one))


def _is_repeatable(one: Operation) -> bool:
    traits = one.traits
    has_effects = traits.writes_global or traits.is_atomic or traits.starts_async or traits.is_wait or traits.is_output
    if has_effects or traits.is_terminator or traits.is_foreign or (one.regions and not traits.combines_elements):
        return False
    is_pure = traits.is_arithmetic or traits.is_indexing or traits.is_move or traits.combines_elements
    return is_pure or traits.reads_global


def _names_taken(one: Operation) -> set[str]:
    own = {name for region in one.regions for inner in region.walk() for name in result_names(inner)}
    taken = {name for inner in one.walk() for name in operand_names(inner)}
    return {name for name in taken - own for name in (name, name.partition("#")[0])}


def _names_given(one: Operation) -> set[str]:
    return {name for name in result_names(one) for name in (name, name.partition("#")[0])}


def program_ids(function: Operation) -> Mapping[str, frozenset[Operation]]:
    """Return the operations that give each of a function's program ids, or its quotient and remainder, by words."""
    found: defaultdict[str, set[Operation]] = defaultdict(set)
    inside = [one for one in function.walk() if one is not function]
    for one in (one for one in inside if one.name == PROGRAM_ID):
        of_axis = f"program_id({max('xyz'.find(one.tail.strip()[:1]), 0)})"
        users = list(_users_of(set(result_names(one)), inside))
        divided = [user for user in users if user.name in INTEGER_DIVISIONS]
        if users and all(user in divided and operand_names(user)[:1] == result_names(one) for user in users):
            for user in users:
                found[f"{of_axis} {'//' if user.name.startswith('arith.div') else '%'} n"].add(user)
        else:
            found[of_axis].add(one)
    return {words: frozenset(operations) for words, operations in found.items()}


def _users_of(names: Set[str], operations: Sequence[Operation]) -> Iterator[Operation]:
    return (one for one in operations if not names.isdisjoint(_names_taken(one)))


_CASTS = frozenset(("tt.splat", "arith.extf", "arith.truncf", "arith.extsi", "arith.extui"))
_ACCUMULATIONS = frozenset(
    f"arith.{name}"
    for name in ("addf", "addi", "maximumf", "maxnumf", "minimumf", "minnumf", "maxsi", "maxui", "minsi", "minui")
)


def accumulation_of(module: Module, loop: Operation, reduction: Operation) -> Operation | None:
    """Return the operation that adds a reduction's result to a loop-carried value, if it has no other use.

    A single reduction after the loop then gives the same result, but for the order of its additions.
    """
    body, user = body_of(loop), reduction
    while user is reduction or user.traits.keeps_elements or user.traits.is_move or user.name in _CASTS:
        names, moved = set(result_names(user)), user
        users = [one for one in _users_of(names, body) if one is not moved]
        if len(users) != 1:
            return None
        (user,) = users
    combined = {one.name for region in reduction.regions for one in region.walk() if not one.traits.is_terminator}
    arguments, end = loop_arguments(module, loop), body[-1]
    others = [name for name in operand_names(user) if name not in names]
    if user.name not in _ACCUMULATIONS or combined != {user.name} or len(others) != 1 or others[0] not in arguments[1:]:
        return None
    passed_on = operand_names(end)[arguments.index(others[0]) - 1 :][:1] if end.name == "scf.yield" else []
    is_carried = bool(passed_on) and passed_on[0] in result_names(user)
    uses = [one for one in _users_of({others[0], *result_names(user)}, body) if one not in (user, end)]
    return user if is_carried and not uses else None

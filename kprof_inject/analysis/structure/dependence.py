"""Dependence of values: on the iteration of a loop, on the CTA, and on the result of a reduction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache

from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.ttgir.dialect import INTEGER_DIVISIONS, PROGRAM_ID
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import loop_arguments, names_in, operand_names, result_names, without_strings

_MOVES = frozenset(("tt.splat", "arith.extf", "arith.truncf", "arith.extsi", "arith.extui"))
_ACCUMULATIONS = frozenset(
    f"arith.{name}"
    for name in ("addf", "addi", "maximumf", "maxnumf", "minimumf", "minnumf", "maxsi", "maxui", "minsi", "minui")
)


@lru_cache(maxsize=KERNELS_CACHED)
def varying_names(module: Module, loop: Operation) -> Set[str]:
    """Return the names of the values in a loop that may differ from iteration to iteration.

    A load varies with its address, as if nothing wrote to memory meanwhile.
    """
    varying = set(loop_arguments(module, loop))
    for region in loop.regions[:-1]:
        varying.update(name for one in region.walk() for name in result_names(one))
    for one in body_of(loop):
        if _is_repeatable(one) and varying.isdisjoint(_names_taken(one)):
            continue
        varying.update(name for inner in one.walk() for name in result_names(inner))
        varying.update(name.partition("#")[0] for name in result_names(one))
    return varying


def invariant_operations(module: Module, loop: Operation) -> list[Operation]:
    """Return the operations of a loop's body that compute or load the same in each iteration."""
    varying = varying_names(module, loop)
    return [
        one
        for one in body_of(loop)
        if _is_repeatable(one) and not one.traits.is_constant and varying.isdisjoint(_names_taken(one))
    ]


@lru_cache(maxsize=KERNELS_CACHED)
def independent_operations(module: Module, function: Operation, varying: frozenset[Operation]) -> Sequence[Operation]:
    """Return the operations of a function that compute or load the same whatever some program ids are.

    ``varying`` are these program ids, and what is divided by them. Operations that only compute addresses are included,
    as are those inside of loops. A load depends on its address alone, as if nothing wrote to memory meanwhile.
    """
    tainted: set[str] = set()
    inside = [one for one in function.walk() if one is not function]
    known = -1
    while known != len(tainted):  # a loop passes values back to its begin
        known = len(tainted)
        for one in inside:
            tainted.update(_tainted_by(module, one, tainted, varying))
    return tuple(one for one in inside if _is_repeatable(one) and tainted.isdisjoint(_names_taken(one)))


def program_ids(function: Operation) -> Mapping[str, frozenset[Operation]]:
    """Return the program ids that a function distinguishes, in words, each with the operations that give it.

    A program id that is only divided stands for two: its quotient and its remainder.
    """
    found: dict[str, frozenset[Operation]] = {}
    inside = [one for one in function.walk() if one is not function]
    for one in (one for one in inside if one.name == PROGRAM_ID):
        users = list(users_of(set(result_names(one)), inside))
        axis = "xyz".find(one.tail.strip()[:1])
        of_axis = f"program_id({max(axis, 0)})"
        if users and all(
            user.name in INTEGER_DIVISIONS and operand_names(user)[:1] == result_names(one) for user in users
        ):
            for words, names in ((f"{of_axis} // n", _QUOTIENTS), (f"{of_axis} % n", _REMAINDERS)):
                found[words] = found.get(words, frozenset()) | {user for user in users if user.name in names}
        else:
            found[of_axis] = found.get(of_axis, frozenset()) | {one}
    return {words: operations for words, operations in found.items() if operations}


_QUOTIENTS, _REMAINDERS = ("arith.divsi", "arith.divui"), ("arith.remsi", "arith.remui")


def _tainted_by(module: Module, one: Operation, tainted: set[str], varying: frozenset[Operation]) -> Iterator[str]:
    bounds = names_in(without_strings(one.tail.partition("iter_args")[0])) if one.name == "scf.for" else None
    is_tainted = not tainted.isdisjoint(_names_taken(one))
    is_unknown = one.name != PROGRAM_ID and not (_is_repeatable(one) or one.traits.is_loop)
    if bounds is not None and tainted.isdisjoint(bounds):
        yield from _carried(module, one, tainted)
    elif one in varying or is_tainted or is_unknown:
        yield from result_names(one)
        yield from (name.partition("#")[0] for name in result_names(one))
        if one.traits.is_loop:
            yield from loop_arguments(module, one)


def _carried(module: Module, loop: Operation, tainted: set[str]) -> Iterator[str]:
    """Yield the values that a loop carries, and its results, as far as they depend on the CTA."""
    arguments, results = loop_arguments(module, loop)[1:], result_names(loop)
    initial = operand_names(loop)[-len(arguments) :] if arguments else []
    end = body_of(loop)[-1]
    yielded = names_in(without_strings(end.tail))[: len(arguments)]
    for place, argument in enumerate(arguments):
        sources = [*initial[place : place + 1], *yielded[place : place + 1], argument]
        if any(name in tainted or name.partition("#")[0] in tainted for name in sources):
            yield argument
            yield from results[place : place + 1]


def _is_repeatable(one: Operation) -> bool:
    """Return True if an operation has the same result when it is executed again with the same operands and memory."""
    traits = one.traits
    has_effects = traits.writes_global or traits.is_atomic or traits.starts_async or traits.is_wait or traits.is_output
    if has_effects or traits.is_terminator or traits.is_foreign or (one.regions and not traits.combines_elements):
        return False
    is_pure = traits.is_arithmetic or traits.is_indexing or traits.is_move or traits.combines_elements
    return is_pure or traits.reads_global


def _names_taken(one: Operation) -> set[str]:
    """Return the values that an operation takes, without those that its own regions define."""
    own = {name for region in one.regions for inner in region.walk() for name in result_names(inner)}
    taken = {name for inner in one.walk() for name in operand_names(inner)}
    return {name for name in taken - own for name in (name, name.partition("#")[0])}


def users_of(names: set[str], operations: Sequence[Operation]) -> Iterator[Operation]:
    """Yield those operations that take any of the named values, also inside of their regions."""
    return (one for one in operations if not names.isdisjoint(_names_taken(one)))


def accumulation_of(module: Module, loop: Operation, reduction: Operation) -> Operation | None:
    """Return the operation that adds a reduction's result to a loop-carried value; None if it is used otherwise.

    The loop must combine the results of its iterations as the reduction combines elements, and use them for nothing
    else, so that a single reduction after the loop gives the same result, but for the order of its additions.
    """
    body = body_of(loop)
    combined = {one.name for region in reduction.regions for one in region.walk() if not one.traits.is_terminator}
    names, moved = set(result_names(reduction)), reduction
    while True:
        users = [one for one in users_of(names, body) if one is not moved]
        if len(users) != 1:
            return None
        (user,) = users
        if user.traits.keeps_elements or user.traits.is_move or user.name in _MOVES:
            names, moved = set(result_names(user)), user
            continue
        break
    if user.name not in _ACCUMULATIONS or combined != {user.name}:
        return None
    others = [name for name in operand_names(user) if name not in names]
    arguments = loop_arguments(module, loop)
    if len(others) != 1 or others[0] not in arguments[1:]:
        return None
    place = arguments.index(others[0]) - 1
    end = body[-1]
    yielded = names_in(without_strings(end.tail))
    is_carried = end.name == "scf.yield" and place < len(yielded) and yielded[place] in result_names(user)
    uses = [one for one in users_of({others[0], *result_names(user)}, body) if one not in (user, end)]
    return user if is_carried and not uses else None

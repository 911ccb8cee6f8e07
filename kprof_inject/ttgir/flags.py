"""Find the flags that operations use: integers in memory that one CTA or GPU sets, and another one polls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from kprof_inject.ttgir.dialect import CONDITION
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.polling import assembly_of, is_impure, polls, writes_to_others
from kprof_inject.ttgir.ssa_values import (
    constant_of,
    definition_of,
    loop_arguments,
    operand_names,
    result_names,
)
from kprof_inject.ttgir.types import if_misfit, types_of

FlagAccess = Literal["waits", "takes", "sets", "adds", "changes"]
"""Kind of access: the flag is polled; polled and then changed, as a lock is taken; set to a value; increased; or
changed in another way.
"""

_STORE, _RMW, _CAS = "tt.store", "tt.atomic_rmw", "tt.atomic_cas"
_ON_RMW: Mapping[str, FlagAccess] = {"exch": "sets", "add": "adds"}
_RMW_KIND = re.compile(r"\s*(\w+)\s*,\s*(\w+)\s*,\s*(\w+)\s*,\s*%")
_CAS_ORDER = re.compile(r"\s*(\w+)\s*,\s*(\w+)\s*,\s*%")
# Passes on what was written before (PTX ISA, "Memory Consistency Model"). Triton's atomics are acq_rel by default.
_RELEASING = "release"
_ALL_GPUS = "sys"
_POINTER = "!tt.ptr"
_RELEASING_ASSEMBLY = re.compile(r"\b(?:st|red|atom|multimem)\b[\w.:]*\.(?:release|acq_rel|sys)\b")
# Of an instruction of inline assembly: the operand that it takes its address from, and a value after it.
_ADDRESS = re.compile(r"\[\s*\$(\d+)\s*\]")
_STORED = re.compile(r"\b(st|red|atom)\b([\w.:]*)\s+(?:[^,;\[\]]+,\s*)?\[\s*\$\d+\s*\]\s*,\s*\$(\d+)\s*;")
_CONSTRAINTS = re.compile(r'\bconstraints = "([^"]*)"')
_INTEGER = re.compile(r"i(?:8|16|32|64)")
_MIRRORED = (("lt", "gt"), ("gt", "lt"), ("le", "ge"), ("ge", "le"))
_COMPARE = re.compile(r"\s*(\w+)\s*,\s*%")
_SWAPPED = {f"{sign}{one}": f"{sign}{other}" for sign in "su" for one, other in _MIRRORED}


class Operand(Struct, frozen=True):
    """A value of the module by its name, and its type as printed."""

    name: str
    type: str


class FlagUse(Struct, frozen=True):
    """Use of a flag by an operation, or by a loop that polls.

    ``address`` is the flag's pointer, or its address as an integer; None if it is not a single one. A wait goes on as
    long as ``condition``, a predicate of ``arith.cmpi``, holds for the flag and ``value``; it is empty if that is not
    known. Otherwise ``value`` is what is stored or added. ``constant`` is the value if it is a constant.
    """

    does: FlagAccess
    address: Operand | None = None
    value: Operand | None = None
    constant: int | None = None
    condition: str = ""


def flags_polled(
    module: Module, function: Operation, loops: Mapping[Operation, tuple[Operation, ...]]
) -> dict[Operation, FlagUse]:
    """Return how each loop that polls (``polling_loops``), and each operation that does, uses its flag."""
    found = {loop: _polled_by_loop(module, loop, reads) for loop, reads in loops.items()}
    inside = {inner for loop in loops for inner in loop.walk()}
    for operation in function.walk():
        if operation not in inside and polls(operation):
            does: FlagAccess = "takes" if writes_to_others(operation) else "waits"
            found[operation] = FlagUse(does, _address(operation))
    return found


def flags_set(
    function: Operation, loops: Iterable[Operation], polled: Mapping[Operation, FlagUse]
) -> dict[Operation, FlagUse]:
    """Return how each operation of a function that signals others uses its flag.

    It changes one integer in memory. Where the function polls flags, it changes one of their size; elsewhere, it is
    written to make earlier writes visible to others, or is visible to all GPUs, and the result of an atomic is not
    used, as that of a counter of tiles is.
    """
    inside = {inner for loop in loops for inner in loop.walk()} | set(polled)
    outside = (operation for operation in function.walk() if operation not in inside)
    if not polled:
        found = {operation: use for operation in filter(_releases, outside) if (use := _signal(operation))}
        used = {name for operation in function.walk() for name in operand_names(operation)} if found else set()
        return {one: use for one, use in found.items() if use.address and used.isdisjoint(result_names(one))}
    types = {use.address.type if use.address else "" for use in polled.values()}
    has_pointers = all(kind.startswith(_POINTER) for kind in types)
    found = {}
    for operation in outside:
        use = _signal(operation)
        if use is None or use.address is None:
            continue
        if not has_pointers or not use.address.type.startswith(_POINTER) or use.address.type in types:
            found[operation] = use
    return found


def _polled_by_loop(module: Module, loop: Operation, reads: tuple[Operation, ...]) -> FlagUse:
    takes = any(map(_changes, reads))
    does: FlagAccess = "takes" if takes else "waits"
    if len(reads) != 1:
        return FlagUse(does)
    (read,) = reads
    condition, value, constant = _goes_on(module, loop, read)
    return FlagUse(does, _address(read), value, constant, condition)


def _changes(read: Operation) -> bool:
    """Return whether what a loop reads with also changes memory; adding nothing does not."""
    if read.name == _RMW:
        return _adds_nothing(read) is False
    return writes_to_others(read)


@if_misfit(None)
def _adds_nothing(operation: Operation) -> bool | None:
    kind = _RMW_KIND.match(operation.tail)
    if kind is None or kind[1] not in ("add", "or", "xor"):
        return False
    added = definition_of(operand_names(operation)[1], operation)
    return added is not None and constant_of(added) == 0


def _signal(operation: Operation) -> FlagUse | None:
    """Return how an operation changes a flag; None if it changes none, or reads it by changing nothing."""
    if operation.traits.is_foreign:
        return _signal_of_assembly(operation) if is_impure(operation) and writes_to_others(operation) else None
    if operation.name == _STORE:
        return _stored(operation, "sets")
    if operation.name == _CAS:
        return FlagUse("changes", _address(operation))
    if operation.name == _RMW and not _adds_nothing(operation):
        kind = _RMW_KIND.match(operation.tail)
        return _stored(operation, _ON_RMW.get(kind[1], "changes") if kind else "changes")
    return None


@if_misfit(None)
def _stored(operation: Operation, does: FlagAccess) -> FlagUse:
    address = _address(operation)
    if address is None or does == "changes":
        return FlagUse(does, address)
    value = operand_names(operation)[1]
    maker = definition_of(value, operation)
    constant = constant_of(maker) if maker else None
    pointee = address.type.removeprefix("!tt.ptr<").partition(">")[0].partition(",")[0]
    return FlagUse(does, address, None if constant is not None else Operand(value, pointee), constant)


def _signal_of_assembly(operation: Operation) -> FlagUse:
    stores = _STORED.findall(assembly_of(operation))
    address, operands = _address(operation), _operands_of_assembly(operation)
    if len(stores) != 1 or address is None:
        return FlagUse("changes", address)
    kind, suffix, place = stores[0]
    does: FlagAccess = "sets" if kind == "st" or ".exch" in suffix else "adds" if ".add" in suffix else "changes"
    value = operands.get(int(place))
    if value is None or does == "changes":
        return FlagUse("changes", address)
    maker = definition_of(value.name, operation)
    constant = constant_of(maker) if maker else None
    return FlagUse(does, address, None if constant is not None else value, constant)


def _releases(operation: Operation) -> bool:
    """Return whether an operation is written to make earlier writes visible to others, or is visible to all GPUs."""
    if operation.traits.is_foreign:
        return _RELEASING_ASSEMBLY.search(assembly_of(operation)) is not None
    if operation.name == _RMW and (kind := _RMW_KIND.match(operation.tail)):
        return kind[2] == _RELEASING or kind[3] == _ALL_GPUS
    order = _CAS_ORDER.match(operation.tail) if operation.name == _CAS else None
    return order is not None and (order[1] == _RELEASING or order[2] == _ALL_GPUS)


@if_misfit(None)
def _address(operation: Operation) -> Operand | None:
    """Return the one address of a scalar that an operation accesses: a pointer to an integer, or an integer."""
    if operation.traits.is_foreign:
        places = {int(place) for place in _ADDRESS.findall(assembly_of(operation))}
        operands = _operands_of_assembly(operation)
        found = operands.get(places.pop()) if len(places) == 1 else None
        return found if found and (found.type.startswith(_POINTER) or found.type == "i64") else None
    names, types = operand_names(operation), types_of(operation)
    pointer = types[0]
    if pointer.kind or not pointer.is_pointer or not _INTEGER.fullmatch(pointer.pointee):
        return None
    return Operand(names[0], pointer.element)


def _operands_of_assembly(operation: Operation) -> dict[int, Operand]:
    """Return the scalar operands of inline assembly, by the numbers that it uses."""
    constraints = _CONSTRAINTS.search(operation.tail)
    if constraints is None:
        return {}
    outputs = sum(part.startswith("=") for part in constraints[1].split(","))
    pairs = zip(operand_names(operation), types_of(operation), strict=False)
    return {
        outputs + place: Operand(name, printed.element)
        for place, (name, printed) in enumerate(pairs)
        if not printed.kind
    }


_UNKNOWN: tuple[str, Operand | None, int | None] = ("", None, None)


@if_misfit(_UNKNOWN)
def _goes_on(module: Module, loop: Operation, read: Operation) -> tuple[str, Operand | None, int | None]:
    """Return the comparison with which a loop goes on: its predicate, and the other value, or that as a constant."""
    ends = [one for one in loop.walk() if one.name == CONDITION and one.loop is loop]
    if len(ends) != 1 or loop.name != "scf.while":
        return _UNKNOWN
    compared = definition_of(operand_names(ends[0])[0], ends[0])
    if compared is None or compared.name != "arith.cmpi" or compared.block is not ends[0].block:
        return _UNKNOWN
    predicate = _COMPARE.match(compared.tail)
    carried = loop_arguments(module, loop)
    polled = {*result_names(read), *(carried if len(carried) == 1 else ())}
    one, other = operand_names(compared)
    if predicate is None or (one in polled) == (other in polled):
        return _UNKNOWN
    condition = predicate[1] if one in polled else _SWAPPED.get(predicate[1], predicate[1])
    value = other if one in polled else one
    maker = definition_of(value, compared)
    constant = constant_of(maker) if maker else None
    return condition, None if constant is not None else Operand(value, types_of(compared)[0].element), constant

"""Values that an operation may use: their names in the module and in the source, and the types of scalars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.ttgir.dialect import FUNCTION, PARTITIONS, WARP_SPECIALIZE
from kprof_inject.ttgir.locations import Alias, CallSite, Fused, Location, Named, SourcePoint, parse_location
from kprof_inject.ttgir.nodes import Block, Module, Operation, Region
from kprof_inject.ttgir.ssa_values import (
    bound_names,
    constant_of,
    label_text,
    loop_arguments,
    result_names,
    without_strings,
)
from kprof_inject.ttgir.strings import variable_in
from kprof_inject.ttgir.types import PrintedType, closing_bracket, printed_types, types_of

_ARGUMENT = re.compile(r"(%[\w$.-]+)\s*:\s*([^\s,(){}]+)")
_SCALAR = re.compile(r"[a-z]\w*")
_MAX_ALIASES = 64


class Scalar(Struct, frozen=True):
    """A value that is visible at an operation."""

    name: str  # in the module, ``%pid_3``; empty if a loop or branch assigned the variable, so its value is unknown
    variable: str  # name in the source that it, or a part of what computes it, was assigned to; empty if unknown
    line: int  # of that, in the function that everything was inlined into; 0 if unknown
    type: str  # as printed; empty for anything but a scalar
    distance: int  # number of blocks between the operation and the block that defines the value


def scalars_at(module: Module, user: Operation) -> Iterator[Scalar]:
    """Yield all values that dominate ``user`` in its function or, in a partition, within that; the nearest first.

    In a region with several blocks, only values of the first one and of ``user``'s own are found, although others may
    dominate it, too. Values that are no scalars have no type; variables that loops and branches assign have no name.
    """
    distance = 0
    for operation in (user, *user.owners()):
        block = operation.block
        if block is None:
            return
        region = block.region
        before = block.operations[: block.operations.index(operation)]
        blocks = [(block, before)]
        if block is not region.blocks[0]:
            blocks.append((region.blocks[0], region.blocks[0].operations))
        for outer, operations in blocks:
            for made in (*map(partial(_results, module), reversed(operations)), _arguments(module, region, outer)):
                yield from (replace(scalar, distance=distance) for scalar in made)
            distance += 1
        if is_isolated(region):
            return


def is_isolated(region: Region) -> bool:
    """Return whether a region cannot see values around it; the default region of ``ttg.warp_specialize`` can."""
    owner = region.operation
    return owner.name in (FUNCTION, PARTITIONS) or (owner.name == WARP_SPECIALIZE and region is not owner.regions[0])


def _results(module: Module, operation: Operation) -> Iterator[Scalar]:
    names = result_names(operation)
    if not names:
        return
    types = [*[""] * len(names), *_result_types(operation)][-len(names) :]
    variable, line = _origin(module, operation.location_text)
    if operation.regions and len(names) > 1:
        # The location names all loop-carried values, but not in their order.
        variables = [*_loop_carried_variables(module, operation), *[""] * len(names)][: len(names)]
    else:
        variables = [variable or ("" if operation.traits.is_constant else variable_in(name)) for name in names]
    for name, assigned, kind in zip(names, variables, types, strict=True):
        yield Scalar(name, assigned, line, kind, 0)
    # The variables that a loop or branch assigns, each at its last line.
    lines: dict[str, int] = {}
    for region in operation.regions if operation.traits.regions in ("body", "branch") else ():
        for inner in region.walk():
            for result in _results(module, inner) if not inner.regions else ():
                if result.variable and result.variable not in variables:
                    lines[result.variable] = max(lines.get(result.variable, 0), result.line)
    for variable, line in lines.items():
        yield Scalar("", variable, line, "", 0)


def _loop_carried_variables(module: Module, loop: Operation) -> list[str]:
    """Return the variables of a ``scf.for``'s loop-carried values, by the names of the arguments of its body.

    Values that the compiler adds get the name of the loop's last result, so a name that several share is dropped.
    """
    if loop.name != "scf.for":
        return []
    variables = [variable_in(name) for name in loop_arguments(module, loop)[1:]]
    last = _variable_of_results(loop)
    if last in variables and (variables.count(last) > 1 or "" in variables[: variables.index(last)]):
        return [variable if variable != last else "" for variable in variables]
    return variables


def _variable_of_results(operation: Operation) -> str:
    return next(map(variable_in, result_names(operation)), "")


def _result_types(operation: Operation) -> list[str]:
    """Return the types of an operation's results; its name gives those that are not printed, or printed otherwise."""
    if operation.regions:
        text = operation.closing if _ARROW in operation.closing else operation.tail
        return _scalars_in(_types_after_arrow(without_strings(text)))
    types = types_of(operation)
    if not types and isinstance(constant_of(operation), bool):
        return ["i1"]
    if operation.name in ("arith.cmpi", "arith.cmpf"):
        return ["" if any(printed.kind for printed in types) else "i1"]
    if operation.name == "tt.addptr":
        return [_scalar(types[0])] if types else []
    if operation.name == "tt.load":
        return ["" if printed.kind else printed.pointee for printed in types]
    last = without_strings(operation.tail).partition(" loc(")[0].rpartition(_LAST_TYPE)[2]
    # The printed types do not include a token's.
    return _scalars_in(last.rpartition(_ARROW)[2]) if _ARROW in last else [_scalar(printed) for printed in types]


_ARROW = "->"
_LAST_TYPE = " : "  # the type of a scf.for's induction variable comes last, after those of the loop-carried values


def _types_after_arrow(text: str) -> str:
    types = text.partition(_ARROW)[2]
    return types.rpartition(_LAST_TYPE)[0] or types


def _scalars_in(types: str) -> list[str]:
    """Return the scalar type for each type of a list, which may be in brackets; empty for the others."""
    found, depth, begin = [], 0, 0
    text = types.strip().removesuffix("{").strip()
    text = text[1:-1] if text.startswith("(") else text
    for place, letter in enumerate(f"{text},"):
        depth += (letter in "(<[{") - (letter in ")>]}")
        if letter == "," and depth == 0:
            found.append(next(map(_scalar, printed_types(text[begin:place])), ""))
            begin = place + 1
    return found if text else []


def _scalar(printed: PrintedType) -> str:
    return "" if printed.kind or printed.is_pointer else printed.element


def _arguments(module: Module, region: Region, block: Block) -> Iterator[Scalar]:
    owner = region.operation
    is_entry = block is region.blocks[0]
    if owner.name == FUNCTION and is_entry:
        yield from _declared(module, owner.tail)  # the generic form has them in a label
    yield from _declared(module, label_text(module, region, block))
    if is_entry and region is owner.regions[0]:
        names = bound_names(owner)
        variables, text = [variable_in(name) for name in names], without_strings(owner.tail)
        types = _scalars_in(text.partition(_LAST_TYPE)[2].partition(_ARROW)[0])
        if owner.name == "scf.for" and names:
            # The printer may give the induction variable the name of the loop's last result.
            counter = variables[0] if variables[0] != _variable_of_results(owner) else ""
            variables = [counter, *_loop_carried_variables(module, owner)]
            _, colon, counter_type = text.rpartition(_LAST_TYPE)
            types = [*(_scalars_in(counter_type) if colon else ["index"]), *_scalars_in(_types_after_arrow(text))]
        for name, variable, kind in zip(names, variables, types, strict=False):
            yield Scalar(name, variable, 0, kind, 0)


def _declared(module: Module, text: str) -> Iterator[Scalar]:
    found = list(_ARGUMENT.finditer(text))
    begins = [*(argument.start() for argument in found), len(text)]
    for argument, end in zip(found, begins[1:], strict=True):
        name, kind = argument.groups()
        # The location after the argument's type, up to its closing bracket.
        after = text[argument.end() : end]
        place = after.find("loc(")
        location = after[place : closing_bracket(after, place + len("loc(")) + 1] if place >= 0 else ""
        variable, line = _origin(module, location)
        yield Scalar(name, variable or variable_in(name), line, kind if _SCALAR.fullmatch(kind) else "", 0)


def _origin(module: Module, location_text: str) -> tuple[str, int]:
    """Return the variable and the line of a location; for inlined code, the line of the call.

    A variable of the inlined function only counts if the call's result is assigned to none.
    """
    location: Location = parse_location(location_text)
    variable = ""
    for _ in range(_MAX_ALIASES):
        match location:
            case Named(name, child):
                variable, location = name, child
            case CallSite(callee, caller):
                for _ in range(_MAX_ALIASES):
                    if isinstance(callee, Alias):
                        callee = parse_location(module.aliases.get(callee.name, ""))
                    elif isinstance(callee, CallSite):
                        callee = callee.callee
                    else:
                        break
                variable, location = callee.name if isinstance(callee, Named) else variable, caller
            case Alias(name):
                location = parse_location(module.aliases.get(name, ""))
            case Fused((first, *_)):
                location = first
            case SourcePoint(_, line, _):
                return variable, line
            case _:
                break
    return variable, 0

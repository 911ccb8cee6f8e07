"""The values that an operation may use: what they are called in the module and in the source, and scalars' types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kprof_inject.ttgir.constants import constant_of
from kprof_inject.ttgir.dialect import FUNCTION, PARTITIONS, WARP_SPECIALIZE
from kprof_inject.ttgir.locations import Alias, CallSite, Fused, Location, Named, SourcePoint, parse_location
from kprof_inject.ttgir.nodes import Block, Module, Operation, Region
from kprof_inject.ttgir.ssa_values import bound_names, label_text, loop_arguments, result_names, without_strings
from kprof_inject.ttgir.types import PrintedType, printed_types, types_of

_ARGUMENT = re.compile(r"(%[\w$.-]+)\s*:\s*([^\s,(){}]+)")
# Triton's printer calls a value by its variable, and tells those of one name apart by a number. What has no variable
# it calls %3, %arg3 or, of a constant, %c3_i32.
_VARIABLE = re.compile(r"%(?!arg\d)([A-Za-z_]\w*?)(?:_\d+)?(?:#\d+)?")
_SCALAR = re.compile(r"[a-z]\w*")
_LONGEST_ALIAS = 64


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value that is visible at a place. ``name`` is what the module calls it (``%pid_3``), ``variable`` the name in
    the source that it, or a part of what makes it, was assigned to (empty if unknown), on the ``line`` of the function
    that everything was inlined into (0 if unknown). ``type`` is as it is printed, empty for what is no scalar.
    ``distance`` says how many blocks further out than the place it is made. One without a ``name`` says that in a loop
    or branch, which ends before the place, the variable was assigned, and nothing tells which value it has then."""

    name: str
    variable: str
    line: int
    type: str
    distance: int


def scalars_at(module: Module, user: Operation) -> Iterator[Scalar]:
    """All values that dominate ``user``, in its function and, in a partition, within that: the nearest first.

    Of a region with several blocks these are its first one's and those of ``user``'s own; others may dominate it, too.
    What is no scalar is among them, without a type, and what is lost in loops and branches, without a name."""
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
        for one, operations in blocks:
            for made in (*map(partial(_results, module), reversed(operations)), _arguments(module, region, one)):
                yield from (replace(scalar, distance=distance) for scalar in made)
            distance += 1
        if _is_isolated(region):
            return


def _is_isolated(region: Region) -> bool:
    """Whether what is around the region cannot be seen in it: of ``ttg.warp_specialize``, the default region can."""
    owner = region.operation
    return owner.name in (FUNCTION, PARTITIONS) or (owner.name == WARP_SPECIALIZE and region is not owner.regions[0])


def _results(module: Module, operation: Operation) -> Iterator[Scalar]:
    names = result_names(operation)
    if not names:
        return
    types = [*[""] * len(names), *_result_types(operation)][-len(names) :]
    variable, line = _origin(module, operation.location_text)
    if operation.regions and len(names) > 1:
        # Its location has the names of all that is handed on, and not in their order.
        variables = [*_variables_handed_on(module, operation), *[""] * len(names)][: len(names)]
    else:
        variables = [variable or ("" if operation.traits.is_constant else _variable_in(name)) for name in names]
    for name, assigned, kind in zip(names, variables, types, strict=True):
        yield Scalar(name, assigned, line, kind, 0)
    yield from _lost_in(module, operation, variables)


def _lost_in(module: Module, operation: Operation, kept: Sequence[str]) -> Iterator[Scalar]:
    """The variables that are assigned in an operation's loop or branch, but for those whose values it is known to
    give, each at its last line."""
    lines: dict[str, int] = {}
    for region in operation.regions if operation.traits.regions in ("body", "branch") else ():
        for inner in region.walk():
            for one in _results(module, inner) if not inner.regions else ():
                if one.variable and one.variable not in kept:
                    lines[one.variable] = max(lines.get(one.variable, 0), one.line)
    for variable, line in lines.items():
        yield Scalar("", variable, line, "", 0)


def _variables_handed_on(module: Module, loop: Operation) -> list[str]:
    """Of what a ``scf.for`` hands on, by the names of the arguments of its body. What the compiler hands on beside that
    is called as the loop's last result is: of several of that name none tells."""
    if loop.name != "scf.for":
        return []
    variables = [_variable_in(name) for name in loop_arguments(module, loop)[1:]]
    last = _name_of_results(loop)
    if last in variables and (variables.count(last) > 1 or "" in variables[: variables.index(last)]):
        return [variable if variable != last else "" for variable in variables]
    return variables


def _name_of_results(operation: Operation) -> str:
    return next(map(_variable_in, result_names(operation)), "")


def _result_types(operation: Operation) -> list[str]:
    """Of one that prints fewer types than it has, or other ones, what its name says."""
    if operation.regions:
        text = operation.closing if _ARROW in operation.closing else operation.tail
        return _scalars_in(_handed_on(without_strings(text)))
    types = types_of(operation)
    if not types and isinstance(constant_of(operation), bool):
        return ["i1"]
    if operation.name in ("arith.cmpi", "arith.cmpf"):
        return ["" if any(one.kind for one in types) else "i1"]
    if operation.name == "tt.addptr":
        return [_scalar(types[0])] if types else []
    if operation.name == "tt.load":
        return ["" if one.kind else one.pointee for one in types]
    last = without_strings(operation.tail).partition(" loc(")[0].rpartition(_COUNTED)[2]
    # Of a token and the like the printed types say nothing.
    return _scalars_in(last.rpartition(_ARROW)[2]) if _ARROW in last else [_scalar(one) for one in types]


_ARROW = "->"
# What scf.for counts comes last, behind all that it hands on.
_COUNTED = " : "


def _handed_on(text: str) -> str:
    """The types behind an arrow."""
    types = text.partition(_ARROW)[2]
    return types.rpartition(_COUNTED)[0] or types


def _scalars_in(types: str) -> list[str]:
    """Of each type of a list, which may be in brackets."""
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
    """Those of a block, by its label or by the operation that it is the first block of."""
    owner = region.operation
    is_entry = block is region.blocks[0]
    if owner.name == FUNCTION and is_entry:
        yield from _declared(module, owner.tail)  # the generic form has them in a label
    yield from _declared(module, label_text(module, region, block))
    if is_entry and region is owner.regions[0]:
        names = bound_names(owner)
        variables = [_variable_in(name) for name in names]
        if owner.name == "scf.for" and names:
            # The printer may call what is counted as the loop's last result is.
            counted = variables[0] if variables[0] != _name_of_results(owner) else ""
            variables = [counted, *_variables_handed_on(module, owner)]
        for name, variable, kind in zip(names, variables, _bound_types(owner), strict=False):
            yield Scalar(name, variable, 0, kind, 0)


def _bound_types(owner: Operation) -> list[str]:
    """Of an ``scf.for``, what it counts and what is handed on; of an ``scf.while``, what it begins with."""
    text = without_strings(owner.tail)
    if owner.name == "scf.for":
        _, colon, counted = text.rpartition(_COUNTED)
        return [*(_scalars_in(counted) if colon else ["index"]), *_scalars_in(_handed_on(text))]
    return _scalars_in(text.partition(_COUNTED)[2].partition(_ARROW)[0])


def _declared(module: Module, text: str) -> Iterator[Scalar]:
    """The arguments in a text that gives each with its type, and its location behind that."""
    found = list(_ARGUMENT.finditer(text))
    begins = [*(one.start() for one in found), len(text)]
    for one, end in zip(found, begins[1:], strict=True):
        name, kind = one.groups()
        variable, line = _origin(module, _location_in(text[one.end() : end]))
        yield Scalar(name, variable or _variable_in(name), line, kind if _SCALAR.fullmatch(kind) else "", 0)


def _location_in(text: str) -> str:
    place = text.find("loc(")
    if place < 0:
        return ""
    depth = 0
    for end, letter in enumerate(text[place:], place):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and depth == 0:
            return text[place : end + 1]
    return ""


def _variable_in(name: str) -> str:
    found = _VARIABLE.fullmatch(name)
    return found[1] if found else ""


def _origin(module: Module, location_text: str) -> tuple[str, int]:
    """The variable in a location, and the line: where a function was inlined, of the call. A variable of the function
    that was called counts if what the call gives is assigned to none."""
    location: Location = parse_location(location_text)
    variable = ""
    for _ in range(_LONGEST_ALIAS):
        match location:
            case Named(name, child):
                variable, location = name, child
            case CallSite(callee, caller):
                variable, location = _variable_of(module, callee) or variable, caller
            case Alias(name):
                location = parse_location(module.aliases.get(name, ""))
            case Fused((first, *_)):
                location = first
            case SourcePoint(_, line, _):
                return variable, line
            case _:
                break
    return variable, 0


def _variable_of(module: Module, callee: Location) -> str:
    for _ in range(_LONGEST_ALIAS):
        match callee:
            case Named(name, _):
                return name
            case Alias(name):
                callee = parse_location(module.aliases.get(name, ""))
            case CallSite(inner, _):
                callee = inner
            case _:
                break
    return ""

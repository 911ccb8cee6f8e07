"""Order in which CTAs take the tiles: each CTA does the work of another one.

``reversed`` begins with the last program. The other orders need tiles with two coordinates: a grid of two dimensions,
or one of one dimension if the program id is divided by the number of tiles in a row. ``grouped:N`` goes through them in
groups of N rows, so that CTAs that run at the same time share more of both operands in the L2. ``columns`` goes through
them column by column, and ``columns_reversed`` begins with the last column: if the work of a tile grows along a row, as
that of causal attention does, all tiles with the most work come first.

The mapping is a permutation of the programs, so each tile is computed once. That is legal only if CTAs do not depend on
each other's order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kprof_inject.capture.edits import COLUMNS, COLUMNS_REVERSED, REVERSED
from kprof_inject.rewrite import Replacement, spliced
from kprof_inject.runtime.worker.edit import EditKind, EditRefused, KernelToEdit, number_in
from kprof_inject.select.safety import relaunch
from kprof_inject.ttgir.dialect import INTEGER_DIVISIONS, PROGRAM_ID
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import names_in, operand_names, result_names

_AXIS = re.compile(r"\s*([xyz]) : i32\b")
_GROUPS = (8, 4, 16)
_MAX_GROUP = 1024
_GROUPED = "grouped"
_PREFIX = "%kprof_order"

# The result of the other kinds does not depend on the order.
_ORDERED_ATOMICS = re.compile(r"\s*(?:exch|\(.*atomic_rmw_op = 10)\b")
# Other operations that tell a CTA which one it is.
_CTA_ID_OPERATIONS = ("gpu.block_id", "ttng.clc_", "nvvm.read.ptx.sreg.ctaid")
_CTA_ID_REGISTERS = re.compile(r"%(?:n?ctaid|n?clusterid|cluster_n?cta|smid)")


_VALUES = f"{REVERSED}, {COLUMNS}, {COLUMNS_REVERSED}, or {_GROUPED}:N for groups of N rows"

# In these templates, each value gets a prefix. ``%id`` is the program, ``{row}`` the number of tiles in a row.
_REVERSE = """
%id = tt.get_program_id {axis} : i32
%count = tt.get_num_programs {axis} : i32
%one = arith.constant 1 : i32
%last = arith.subi %count, %one : i32
arith.subi %last, %id : i32"""

# In a grid of two dimensions, rows run along x.
_PROGRAM_IN_PLANE = """
%x = tt.get_program_id x : i32
%y = tt.get_program_id y : i32
%row = tt.get_num_programs x : i32
%rows = tt.get_num_programs y : i32
%above = arith.muli %y, %row : i32
%id = arith.addi %above, %x : i32"""

# In a grid of one dimension, programs stay as they are if the last row is incomplete.
_ROWS_IN_LINE = """
%programs = tt.get_num_programs x : i32
%rows = arith.divsi %programs, {row} : i32"""
_PROGRAM_IN_LINE = """
%above = arith.muli %y, {row} : i32
%new = arith.addi %above, %x : i32
%whole = arith.muli %rows, {row} : i32
%fits = arith.cmpi eq, %whole, %programs : i32
{result} = arith.select %fits, %new, %id : i32 {location}"""

# ``%rows`` is 0 without a complete row, by which nothing must be divided; else the maximum changes nothing.
_HEIGHT = """
%least = arith.constant 1 : i32
%height = arith.maxsi %rows, %least : i32"""

_TILES: Mapping[str, tuple[str, str, str]] = {
    _GROUPED: (
        """
%most = arith.constant {group} : i32
%one = arith.constant 1 : i32
%tiles = arith.muli {row}, %most : i32
%group = arith.divsi %id, %tiles : i32
%within = arith.remsi %id, %tiles : i32
%first = arith.muli %group, %most : i32
%left = arith.subi %rows, %first : i32
%fewer = arith.minsi %left, %most : i32
%size = arith.maxsi %fewer, %one : i32
%below = arith.remsi %within, %size : i32""",
        "arith.divsi %within, %size : i32",
        "arith.addi %first, %below : i32",
    ),
    COLUMNS: (_HEIGHT, "arith.divsi %id, %height : i32", "arith.remsi %id, %height : i32"),
    COLUMNS_REVERSED: (
        f"""
%count = arith.muli {{row}}, %rows : i32
%one = arith.constant 1 : i32
%last = arith.subi %count, %one : i32
%back = arith.subi %last, %id : i32{_HEIGHT}""",
        "arith.divsi %back, %height : i32",
        "arith.remsi %back, %height : i32",
    ),
}
"""Operations that find the tile of a program, and those that compute its x and y, without their results."""


def _possible(kernel: KernelToEdit) -> list[str]:
    module = kernel.parsed("ttgir")
    of_tiles = [*(f"{_GROUPED}:{rows}" for rows in _GROUPS), COLUMNS, COLUMNS_REVERSED]
    return [*(of_tiles if _reordered(module, COLUMNS) else []), REVERSED] if not _objection(module) else []


def _applied(kernel: KernelToEdit, value: str) -> KernelToEdit:
    module = kernel.parsed("ttgir")
    if objection := _objection(module):
        raise EditRefused(objection)
    kind, _, number = value.partition(":")
    group = number_in(number, 2, _MAX_GROUP) if kind == _GROUPED else 0
    if value == REVERSED:
        edits = [_replaced(module, one, _REVERSE, axis=_axis_of(one)) for one in _program_ids(module)]
    elif not group and value not in _TILES:
        raise EditRefused(f"{value} is none of {_VALUES}")
    else:
        edits = _reordered(module, kind, group)
        if not edits:
            raise EditRefused("its tiles have no second coordinate")
    return replace(kernel, ttgir=spliced(kernel.ttgir, edits))


PROGRAM_ORDER = EditKind("program_order", _VALUES, _applied, _possible, edits_ttgir=True)


def _program_ids(module: Module) -> list[Operation]:
    return [operation for operation in module.walk() if operation.name == PROGRAM_ID]


def _axis_of(operation: Operation) -> str:
    found = _AXIS.match(operation.tail)
    return found[1] if found else ""


def _objection(module: Module) -> str:
    """Return why another order of the CTAs may change what they compute; empty without any reason."""
    operations = list(module.walk())
    ids = _program_ids(module)
    if not ids:
        return "it does not use its program id"
    if not all(map(_axis_of, ids)) or _PREFIX in module.text:
        return "its program ids are printed in a form that cannot be edited"
    if relaunch(module).waits:
        return "its CTAs may wait for each other"
    for operation in operations:
        if operation.name.startswith(_CTA_ID_OPERATIONS) or (
            operation.traits.is_foreign and _CTA_ID_REGISTERS.search(operation.tail)
        ):
            return f"it numbers its CTAs in another way, too ({operation.name})"
        if operation.traits.is_atomic and _depends_on_order(operation, operations):
            return f"its CTAs communicate ({operation.name})"
    return ""


def _depends_on_order(operation: Operation, operations: Sequence[Operation]) -> bool:
    if operation.name != "tt.atomic_rmw" or _ORDERED_ATOMICS.match(operation.tail):
        return True
    results = set(result_names(operation))
    return any(not results.isdisjoint(names_in(f"{other.tail} {other.closing}")) for other in operations)


def _reordered(module: Module, order: str, group: int = 0) -> list[Replacement]:
    tile, x, y = _TILES[order]
    ids = _program_ids(module)
    axes = {_axis_of(operation) for operation in ids}
    if {"x", "y"} <= axes:
        return [
            _replaced(module, one, f"{_PROGRAM_IN_PLANE}{tile}\n{x if axis == 'x' else y}", group=group)
            for one in ids
            if (axis := _axis_of(one)) in ("x", "y")
        ]
    if axes != {"x"} or len(ids) != 1 or (division := _first_division(ids[0])) is None:
        return []
    # Programs are permuted before the first use of their id.
    user, row = division
    result, location = result_names(ids[0])[0], ids[0].location_text
    template = f"{_ROWS_IN_LINE}{tile}\n%y = {y}\n%x = {x}{_PROGRAM_IN_LINE}"
    lines = _operations(template, ids[0], row=row, group=group, result=result, location=location)
    before_user = "".join(f"{line}{module.newline}{module.indent_at(user.start)}" for line in lines)
    in_place = _over(module, ids[0], _operations("%id = tt.get_program_id x : i32", ids[0]))
    return [in_place, (user.start, user.start, before_user)]


def _operations(template: str, program_id: Operation, **names: object) -> list[str]:
    prefix = f"{_PREFIX}_{program_id.start}_"
    text = template.strip().replace("%", prefix).format(**{"row": f"{prefix}row", **names})
    return [line.rstrip() for line in text.splitlines()]


def _replaced(module: Module, program_id: Operation, template: str, **names: object) -> Replacement:
    *lines, last = _operations(template, program_id, **names)
    lines.append(f"{result_names(program_id)[0]} = {last} {program_id.location_text}".rstrip())
    return _over(module, program_id, lines)


def _over(module: Module, operation: Operation, lines: Sequence[str]) -> Replacement:
    end = operation.start + len(module.text[operation.start : operation.end].rstrip())
    return operation.start, end, f"{module.newline}{module.indent_at(operation.start)}".join(lines)


def _first_division(program_id: Operation) -> tuple[Operation, str] | None:
    """Return the first division of a program id, and the name of its divisor.

    Returns None if there is none in the same block, or if anything before it uses the program id.
    """
    (name,) = result_names(program_id)
    block = program_id.block
    if block is None:
        return None
    after = block.operations[block.operations.index(program_id) + 1 :]
    for operation in after:
        used = [used for inner in operation.walk() for used in names_in(f"{inner.tail} {inner.closing}")]
        if name not in used:
            continue
        operands = operand_names(operation)
        if operation.name in INTEGER_DIVISIONS and operands[:1] == [name] and operands[1:2] not in ([], [name]):
            return operation, operands[1]
        return None
    return None

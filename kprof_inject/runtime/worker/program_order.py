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
from collections.abc import Callable, Sequence

from msgspec import Struct
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


def _possible(kernel: KernelToEdit) -> list[str]:
    module = kernel.parsed("ttgir")
    of_tiles = [*(f"{_GROUPED}:{rows}" for rows in _GROUPS), COLUMNS, COLUMNS_REVERSED]
    return [*(of_tiles if _tiles_of(module) else []), REVERSED] if not _objection(module) else []


def _applied(kernel: KernelToEdit, value: str) -> KernelToEdit:
    """Permute the program ids."""
    module = kernel.parsed("ttgir")
    if objection := _objection(module):
        raise EditRefused(objection)
    if value == REVERSED:
        edits = [_replaced(module, one, _reverse) for one in _program_ids(module)]
    else:
        tile_at = _order(value)
        if tile_at is None:
            raise EditRefused(f"{value} is none of {_VALUES}")
        tiles = _tiles_of(module)
        if tiles is None:
            raise EditRefused("its tiles have no second coordinate")
        edits = tiles(tile_at)
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
    """Return whether the effect of an atomic operation depends on which CTA comes first."""
    if operation.name != "tt.atomic_rmw" or _ORDERED_ATOMICS.match(operation.tail):
        return True
    results = set(result_names(operation))
    return any(not results.isdisjoint(names_in(f"{other.tail} {other.closing}")) for other in operations)


def _replaced(module: Module, operation: Operation, computed: Callable[[str, str], list[str]]) -> Replacement:
    """Return the edit that replaces a program id by ``computed(axis, prefix)``, whose last line lacks its result."""
    axis, result = _axis_of(operation), result_names(operation)[0]
    prefix = f"{_PREFIX}_{operation.start}"
    *lines, last = computed(axis, prefix)
    lines.append(f"{result} = {last} {operation.location_text}".rstrip())
    return _over(module, operation, lines)


def _over(module: Module, operation: Operation, lines: Sequence[str]) -> Replacement:
    """Return the edit that writes lines in place of an operation."""
    end = operation.start + len(module.text[operation.start : operation.end].rstrip())
    return operation.start, end, f"{module.newline}{module.indent_at(operation.start)}".join(lines)


def _reverse(axis: str, prefix: str) -> list[str]:
    return [
        f"{prefix}_id = tt.get_program_id {axis} : i32",
        f"{prefix}_count = tt.get_num_programs {axis} : i32",
        f"{prefix}_one = arith.constant 1 : i32",
        f"{prefix}_last = arith.subi {prefix}_count, {prefix}_one : i32",
        f"arith.subi {prefix}_last, {prefix}_id : i32",
    ]


class _Tile(Struct, frozen=True):
    """Operations that find the tile of a program, and those that compute its coordinates, without their results."""

    lines: Sequence[str]
    x: str
    y: str


_TileAt = Callable[[str], _Tile]
"""Finds the tile of program ``PREFIX_id``, of ``PREFIX_rows`` with ``PREFIX_row`` tiles each, for a prefix."""


def _order(value: str) -> _TileAt | None:
    """Return an order of tiles; None if there is none with this name. Raises ``EditRefused`` for a wrong number."""
    kind, _, number = value.partition(":")
    if kind == _GROUPED:
        rows = number_in(number, 2, _MAX_GROUP)
        return lambda prefix: _grouped(prefix, rows)
    return {COLUMNS: _columns, COLUMNS_REVERSED: _columns_reversed}.get(value)


def _grouped(prefix: str, rows: int) -> _Tile:
    lines = (
        f"{prefix}_most = arith.constant {rows} : i32",
        f"{prefix}_one = arith.constant 1 : i32",
        f"{prefix}_tiles = arith.muli {prefix}_row, {prefix}_most : i32",
        f"{prefix}_group = arith.divsi {prefix}_id, {prefix}_tiles : i32",
        f"{prefix}_within = arith.remsi {prefix}_id, {prefix}_tiles : i32",
        f"{prefix}_first = arith.muli {prefix}_group, {prefix}_most : i32",
        f"{prefix}_left = arith.subi {prefix}_rows, {prefix}_first : i32",
        f"{prefix}_fewer = arith.minsi {prefix}_left, {prefix}_most : i32",
        # No program with a complete row gets less than 1. Others must not divide by it.
        f"{prefix}_size = arith.maxsi {prefix}_fewer, {prefix}_one : i32",
        f"{prefix}_below = arith.remsi {prefix}_within, {prefix}_size : i32",
    )
    return _Tile(
        lines,
        x=f"arith.divsi {prefix}_within, {prefix}_size : i32",
        y=f"arith.addi {prefix}_first, {prefix}_below : i32",
    )


def _columns(prefix: str, place: str = "id") -> _Tile:
    lines = (
        f"{prefix}_least = arith.constant 1 : i32",
        f"{prefix}_height = arith.maxsi {prefix}_rows, {prefix}_least : i32",  # 0 without a complete row
    )
    return _Tile(
        lines,
        x=f"arith.divsi {prefix}_{place}, {prefix}_height : i32",
        y=f"arith.remsi {prefix}_{place}, {prefix}_height : i32",
    )


def _columns_reversed(prefix: str) -> _Tile:
    lines = (
        f"{prefix}_count = arith.muli {prefix}_row, {prefix}_rows : i32",
        f"{prefix}_one = arith.constant 1 : i32",
        f"{prefix}_last = arith.subi {prefix}_count, {prefix}_one : i32",
        f"{prefix}_back = arith.subi {prefix}_last, {prefix}_id : i32",
    )
    columns = _columns(prefix, "back")
    return replace(columns, lines=(*lines, *columns.lines))


def _tiles_of(module: Module) -> Callable[[_TileAt], list[Replacement]] | None:
    """Return what changes the order of the tiles; None if they have no two coordinates."""
    ids = _program_ids(module)
    axes = {_axis_of(operation) for operation in ids}
    if {"x", "y"} <= axes:
        in_plane = [operation for operation in ids if _axis_of(operation) in ("x", "y")]
        return lambda tile_at: [
            _replaced(module, one, lambda axis, prefix: _in_plane(axis, prefix, tile_at(prefix))) for one in in_plane
        ]
    if axes != {"x"} or len(ids) != 1:
        return None
    division = _first_division(ids[0])
    return None if division is None else lambda tile_at: _in_line(module, ids[0], division, tile_at)


def _in_plane(axis: str, prefix: str, tile: _Tile) -> list[str]:
    """Return the operations that compute one coordinate of a grid of two dimensions, whose rows run along x."""
    return [
        f"{prefix}_x = tt.get_program_id x : i32",
        f"{prefix}_y = tt.get_program_id y : i32",
        f"{prefix}_row = tt.get_num_programs x : i32",
        f"{prefix}_rows = tt.get_num_programs y : i32",
        f"{prefix}_above = arith.muli {prefix}_y, {prefix}_row : i32",
        f"{prefix}_id = arith.addi {prefix}_above, {prefix}_x : i32",
        *tile.lines,
        tile.x if axis == "x" else tile.y,
    ]


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


def _in_line(
    module: Module, program_id: Operation, division: tuple[Operation, str], tile_at: _TileAt
) -> list[Replacement]:
    """Return the edits that permute the programs of a grid of one dimension before the first use of the program id.

    If the last row is incomplete, they stay as they are.
    """
    user, row = division
    (result,) = result_names(program_id)
    prefix = f"{_PREFIX}_{program_id.start}"
    tile = tile_at(prefix)
    kept = f"{prefix}_id = tt.get_program_id x : i32"
    lines = [
        f"{prefix}_programs = tt.get_num_programs x : i32",
        f"{prefix}_rows = arith.divsi {prefix}_programs, {row} : i32",
        *(line.replace(f"{prefix}_row,", f"{row},") for line in tile.lines),
        f"{prefix}_y = {tile.y}",
        f"{prefix}_x = {tile.x}",
        f"{prefix}_above = arith.muli {prefix}_y, {row} : i32",
        f"{prefix}_new = arith.addi {prefix}_above, {prefix}_x : i32",
        f"{prefix}_whole = arith.muli {prefix}_rows, {row} : i32",
        f"{prefix}_fits = arith.cmpi eq, {prefix}_whole, {prefix}_programs : i32",
        f"{result} = arith.select {prefix}_fits, {prefix}_new, {prefix}_id : i32 {program_id.location_text}".rstrip(),
    ]
    separator = f"{module.newline}{module.indent_at(user.start)}"
    before_user = "".join(f"{line}{separator}" for line in lines)
    return [_over(module, program_id, [kept]), (user.start, user.start, before_user)]

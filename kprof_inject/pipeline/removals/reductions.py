"""Removal of the exchange between threads in a reduction: each thread keeps the result of its own elements.

The elements of a thread are taken as a tensor that all threads have wholly, by a cast that costs nothing. They are
still combined, as they would be if they were accumulated element by element; each with those that it is combined with
in the kernel, since the compiler issues loads in the order in which their values are used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kprof_inject.analysis.structure.tensor_layouts import Blocked, blocked_of
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.pipeline.removals.replacing import RemovalRefused, own_name, replaced
from kprof_inject.rewrite import Replacement
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names
from kprof_inject.ttgir.types import types_of

REDUCTION = "tt.reduce"
_CAST = "builtin.unrealized_conversion_cast"
_AXIS = re.compile(r"\baxis = (\d+)")
_SIGNATURE = re.compile(r".*\}\) (?:\{[^{}]*\} )?: \((?P<operand>.*)\) -> (?P<result>.*?)(?: loc\(.*)?$", re.DOTALL)
_SLICE = re.compile(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>")
_LAYOUT = re.compile(r"#[\w$.-]+(?:<.*>)?$")
_COMMENT = "//"
_MMA = re.compile(r"#ttg\.nvidia_mma<\{versionMajor = (\d+)")
_WARPS = re.compile(r"warpsPerCTA = \[(\d+), (\d+)\]")
# PTX ISA, "mma.m16n8k16" and "wgmma": of 16 rows by 8 columns of the result, a thread has two rows and two columns.
_MMA_VERSIONS, _MMA_ELEMENTS, _MMA_LANES = (2, 3), (2, 2), (8, 4)


def without_exchange(module: Module, operation: Operation) -> list[Replacement]:
    """Return the edit that removes the exchange of a reduction of one tensor of floats."""
    signature, axis = _SIGNATURE.match(operation.closing), _AXIS.search(operation.tail)
    types, names, combining = types_of(operation), operand_names(operation), _region_of(module, operation)
    if signature is None or axis is None or len(types) != 2 or len(names) != 1 or _COMMENT in combining:
        raise RemovalRefused("it reduces several tensors, or is printed in a form that cannot be edited")
    tiles = _tiles_of(module, signature["operand"])
    registers = [
        own * -(-length // (own * lanes * warps))
        for length, own, lanes, warps in zip(types[0].shape, tiles.elements, tiles.lanes, tiles.warps, strict=True)
    ]
    element, result, along = types[0].element, signature["result"].strip(), int(axis[1])
    whole, part = own_name(operation, "whole"), own_name(operation, "part")

    def reduced(tensor: str) -> str:
        return f'"{REDUCTION}"({whole}) <{{axis = {along} : i32}}> ({{ {combining} }}) : ({tensor}) ->'

    def cast_to(tensor: str) -> str:
        return f"{whole} = {_CAST} {names[0]} : {signature['operand']} to {tensor}"

    if not types[1].shape:
        tensor = f"tensor<{registers[0]}x{element}, {_layout_of_a_thread(module, registers, [0])}>"
        return [replaced(module, operation, [cast_to(tensor), f"{reduced(tensor)} {result}"])]
    layout = _layout_of_a_thread(module, [*tiles.elements, 1], [*tiles.order, tiles.rank])
    tensor = f"tensor<{_shape_of([*registers, 1])}{element}, {layout}>"
    kept = [*registers[:along], *registers[along + 1 :], 1]
    sliced = f"tensor<{_shape_of(kept)}{element}, #ttg.slice<{{dim = {along}, parent = {layout}}}>>"
    back = f"{_CAST} {part} : {sliced} to {result}"
    return [replaced(module, operation, [cast_to(tensor), f"{part} = {reduced(tensor)} {sliced}", back])]


def _shape_of(sizes: Sequence[int]) -> str:
    return "".join(f"{size}x" for size in sizes)


def _region_of(module: Module, operation: Operation) -> str:
    """Return what combines two elements, on one line."""
    begin = operation.start + len(operation.results)
    return " ".join(module.text[begin : operation.end].partition("({")[2].rpartition("})")[0].split())


def _layout_of_a_thread(module: Module, elements: Sequence[int], order: Sequence[int]) -> str:
    """Return a layout with all threads along the last dimension; each has the whole of a tensor that is short there."""
    ones = [1] * (len(elements) - 1)
    warps = int(module.attribute("ttg.num-warps"))
    return (
        f"#ttg.blocked<{{sizePerThread = {list(elements)}, threadsPerWarp = {[*ones, THREADS_PER_WARP]}, "
        f"warpsPerCTA = {[*ones, warps]}, order = {list(order)}}}>"
    )


def _tiles_of(module: Module, tensor: str) -> Blocked:
    """Return the tiles of a tensor's layout. Raises ``RemovalRefused`` if it has none."""
    found = _LAYOUT.search(tensor.removesuffix(">"))
    tiles = _tiles_in(module, found[0]) if found else None
    if tiles is None or module.attribute("ttg.num-ctas") not in ("", "1"):
        raise RemovalRefused("its layout is not one of tiles")
    return tiles


def _tiles_in(module: Module, layout: str) -> Blocked | None:
    """Return a layout as one of tiles, whose registers are in the same order; None if it is none."""
    layout = module.aliases.get(layout, layout)
    if sliced := _SLICE.match(layout):
        parent = _tiles_in(module, sliced[2])
        return parent and _without(parent, int(sliced[1]))
    if (mma := _MMA.match(layout)) and (warps := _WARPS.search(layout)) and int(mma[1]) in _MMA_VERSIONS:
        return Blocked(_MMA_ELEMENTS, _MMA_LANES, (int(warps[1]), int(warps[2])), (1, 0))
    return blocked_of(layout)


def _without(tiles: Blocked, dim: int) -> Blocked:
    """Return the tiles of a slice."""
    elements, lanes, warps = ((*sizes[:dim], *sizes[dim + 1 :]) for sizes in (tiles.elements, tiles.lanes, tiles.warps))
    return Blocked(elements, lanes, warps, tuple(one - (one > dim) for one in tiles.order if one != dim))

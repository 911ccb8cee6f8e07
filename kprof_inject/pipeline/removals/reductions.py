"""Removal of the exchange between threads in a reduction: each thread keeps the result of its own elements.

The elements of a thread are taken as a tensor that all threads have wholly, by a cast that costs nothing. They are
still combined, as they would be if they were accumulated element by element.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from kprof_inject.analysis.structure.tensor_layouts import blocked_of
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.pipeline.removals.replacing import RemovalRefused, own_name, replaced
from kprof_inject.rewrite import Replacement
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names
from kprof_inject.ttgir.types import PrintedType, types_of

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
_MMA_VERSIONS, _MMA_OWN, _MMA_ROWS, _MMA_COLUMNS = (2, 3), 2, 8, 4


def without_exchange(module: Module, operation: Operation) -> list[Replacement]:
    """Return the edit that removes the exchange of a reduction of one tensor of floats."""
    signature, axis = _SIGNATURE.match(operation.closing), _AXIS.search(operation.tail)
    types, names, combining = types_of(operation), operand_names(operation), _region_of(module, operation)
    if signature is None or axis is None or len(types) != 2 or len(names) != 1 or _COMMENT in combining:
        raise RemovalRefused("it reduces several tensors, or is printed in a form that cannot be edited")
    registers = _registers_of(module, types[0], signature["operand"])
    own = registers.pop(int(axis[1]))
    element, result = types[0].element, signature["result"].strip()
    whole, part = own_name(operation, "whole"), own_name(operation, "part")

    def reduced(tensor: str, axis: int) -> str:
        return f'"{REDUCTION}"({whole}) <{{axis = {axis} : i32}}> ({{ {combining} }}) : ({tensor}) ->'

    def cast_to(tensor: str) -> str:
        return f"{whole} = {_CAST} {names[0]} : {signature['operand']} to {tensor}"

    if not types[1].shape:
        tensor = f"tensor<{own}x{element}, {_layout_of_a_thread(module, [own])}>"
        return [replaced(module, operation, [cast_to(tensor), f"{reduced(tensor, 0)} {result}"])]
    kept = prod(registers)
    layout = _layout_of_a_thread(module, [kept, own])
    tensor = f"tensor<{kept}x{own}x{element}, {layout}>"
    sliced = f"tensor<{kept}x{element}, #ttg.slice<{{dim = 1, parent = {layout}}}>>"
    back = f"{_CAST} {part} : {sliced} to {result}"
    return [replaced(module, operation, [cast_to(tensor), f"{part} = {reduced(tensor, 1)} {sliced}", back])]


def _region_of(module: Module, operation: Operation) -> str:
    """Return what combines two elements, on one line."""
    begin = operation.start + len(operation.results)
    return " ".join(module.text[begin : operation.end].partition("({")[2].rpartition("})")[0].split())


def _layout_of_a_thread(module: Module, sizes: Sequence[int]) -> str:
    """Return the layout of a tensor that each thread has wholly."""
    ones = ["1"] * (len(sizes) - 1)
    warps = module.attribute("ttg.num-warps")
    return (
        f"#ttg.blocked<{{sizePerThread = [{', '.join(map(str, sizes))}], "
        f"threadsPerWarp = [{', '.join([*ones, str(THREADS_PER_WARP)])}], warpsPerCTA = [{', '.join([*ones, warps])}], "
        f"order = [{', '.join(map(str, reversed(range(len(sizes)))))}]}}>"
    )


def _registers_of(module: Module, printed: PrintedType, text: str) -> list[int]:
    """Return how many elements of a tensor each thread has, along each of its dimensions."""
    found = _LAYOUT.search(text.removesuffix(">"))
    tiles = _tiles_of(module, found[0]) if found else None
    if tiles is None or module.attribute("ttg.num-ctas") not in ("", "1"):
        raise RemovalRefused("its layout is not one of tiles")
    return [own * -(-length // (own * others)) for length, (own, others) in zip(printed.shape, tiles, strict=True)]


def _tiles_of(module: Module, layout: str) -> list[tuple[int, int]] | None:
    """Return a thread's elements of a tile along each dimension, and the number of threads there; None if unknown."""
    layout = module.aliases.get(layout, layout)
    if sliced := _SLICE.match(layout):
        parent, dim = _tiles_of(module, sliced[2]), int(sliced[1])
        return parent and parent[:dim] + parent[dim + 1 :]
    if (mma := _MMA.match(layout)) and (warps := _WARPS.search(layout)) and int(mma[1]) in _MMA_VERSIONS:
        rows, columns = int(warps[1]), int(warps[2])
        return [(_MMA_OWN, rows * _MMA_ROWS), (_MMA_OWN, columns * _MMA_COLUMNS)]
    blocked = blocked_of(layout)
    if blocked is None:
        return None
    sizes = zip(blocked.elements, blocked.lanes, blocked.warps, strict=True)
    return [(own, lanes * warps) for own, lanes, warps in sizes]

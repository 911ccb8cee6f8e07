"""Triton's own conversion to linear layouts judges which element each register, lane and warp has."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from triton_oracle import ir

from kprof_inject.analysis.structure.layouts import LinearLayout, linear_layout
from kprof_inject.ttgir.types import printed_types

BLOCKED = "#ttg.blocked<{{sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = {}, order = {}}}>"
MMA = "#ttg.nvidia_mma<{{versionMajor = {}, versionMinor = 0, warpsPerCTA = {}, instrShape = {}}}>"
OPERAND = "#ttg.dot_op<{{opIdx = {}, parent = {}{}}}>"
SHAPES = ([1, 64], [8, 8], [32, 16], [64, 256], [128, 32], [256, 1])


def layouts(gluon: Any) -> Iterator[tuple[str, Any, list[int]]]:
    """Each as text and as Gluon's, with a shape."""
    threads = itertools.product(
        ([1, 1], [1, 4], [4, 2], [8, 1]),
        ([1, 32], [4, 8], [32, 1]),
        ([4, 1], [1, 4], [2, 2]),
        ([1, 0], [0, 1]),
    )
    found = [(BLOCKED.format(*one), gluon.BlockedLayout(*one)) for one in threads]
    for version, shape in ((2, [16, 8]), (3, [16, 16, 16]), (3, [16, 128, 16])):
        for warps in ([4, 1], [8, 1]) if version == 3 else ([4, 1], [2, 2], [1, 4]):
            matrices = gluon.NVMMADistributedLayout([version, 0], warps, shape)
            found.append((MMA.format(version, warps, shape), matrices))
    for (text, layout), shape in itertools.product(found, SHAPES):
        yield text, layout, shape
        if "Major = 3" not in text:
            for operand, width in itertools.product((0, 1), (1, 2, 4, 8) if "mma" in text else (0,)):
                of_dot = gluon.DotOperandLayout(operand, layout, width)
                yield OPERAND.format(operand, text, f", kWidth = {width}" if width else ""), of_dot, shape
        for dim in (0, 1):
            yield f"#ttg.slice<{{dim = {dim}, parent = {text}}}>", gluon.SliceLayout(dim, layout), [shape[1 - dim]]


def test_each_thread_has_the_elements_that_triton_gives_it() -> None:
    from triton._C.libtriton import gluon_ir
    from triton.experimental.gluon import language as gluon

    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)
    if not hasattr(builder, "to_linear_layout"):
        pytest.skip("this Triton does not show linear layouts")
    for text, layout, shape in random.Random(1).sample([*layouts(gluon)], 600):
        theirs = builder.to_linear_layout(layout._to_ir(builder), shape)
        bases = theirs.reg_bases, theirs.lane_bases, theirs.warp_bases
        (printed,) = printed_types(f"tensor<{'x'.join(map(str, shape))}xf32, #t>")
        registers, lanes, warps = (tuple(tuple(basis) for basis in part) for part in bases)
        expected = LinearLayout(tuple(basis for basis in registers if any(basis)), lanes, warps)
        assert linear_layout(printed, {"#t": text}) == expected, (text, shape)

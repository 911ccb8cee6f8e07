"""Triton judges which element each thread has, and how often banks take turns."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from bank_layouts import BLOCKED, OF_MATRICES, SWIZZLED, cycles
from triton_oracle import ir

from kprof_inject.analysis.structure.layouts import LinearLayout, linear_layout
from kprof_inject.ttgir.types import printed_types

SPREAD = "#ttg.blocked<{{sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = {}, order = {}}}>"
MMA = "#ttg.nvidia_mma<{{versionMajor = {}, versionMinor = 0, warpsPerCTA = {}, instrShape = {}}}>"
OPERAND = "#ttg.dot_op<{{opIdx = {}, parent = {}{}}}>"
SHAPES = ([1, 64], [8, 8], [32, 16], [64, 256], [128, 32], [256, 1])


def layouts(gluon: Any) -> Iterator[tuple[str, Any, list[int]]]:
    """Each as text and as Gluon's, with a shape."""
    threads = itertools.product(
        ([1, 1], [1, 4], [4, 2], [8, 1]), ([1, 32], [4, 8], [32, 1]), ([4, 1], [1, 4], [2, 2]), ([1, 0], [0, 1])
    )
    found = [(SPREAD.format(*one), gluon.BlockedLayout(*one)) for one in threads]
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


# Triton's own count judges how often banks take turns

ORDERS = ([1, 0], [0, 1])


def threads_and_memory(bits: int, gluon: Any) -> Iterator[tuple[str, Any, str, Any, tuple[int, int]]]:
    """Each as text and as Gluon's: of threads that have no element twice, and of memory."""
    shape = (128, 128)
    sizes = ([1, 1], [1, 4], [4, 1], [1, 16])
    lanes = ([1, 32], [4, 8], [8, 4], [32, 1])
    for elements, threads, order in itertools.product(sizes, lanes, ORDERS):
        spread = (BLOCKED.format(elements, threads, order), gluon.BlockedLayout(elements, threads, [4, 1], order))
        if any(count * size > 128 // warps for count, size, warps in zip(elements, threads, (4, 1), strict=True)):
            continue
        # Chunks that are exchanged are no narrower than a bank: of others, Triton's count is too low.
        for numbers, order_of_memory in itertools.product(((1, 1, 1), (8, 1, 8), (4, 2, 4)), ORDERS):
            kept = gluon.SwizzledSharedLayout(*numbers, order_of_memory)
            yield *spread, SWIZZLED.format(*numbers, order_of_memory), kept, shape
        for width, transposed in itertools.product((32, 64, 128) if bits < 64 else (), (False, True)):
            kept = gluon.NVMMASharedLayout(width, bits, 2, transposed=transposed)
            yield *spread, OF_MATRICES.format(width, str(transposed).lower(), bits), kept, shape


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_tritons_own_count_is_never_less(bits: int) -> None:
    """It counts how many turns more than one each access takes on average. Where no access is wider than a bank, the
    two are the same; of wider ones, it knows which threads come first, and this does not ask."""
    from triton._C.libtriton import gluon_ir
    from triton.experimental.gluon import language as gluon

    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)
    if not hasattr(builder, "get_shared_bank_conflicts"):
        pytest.skip("this Triton does not count bank conflicts")
    alike = 0
    for threads, spread, memory, kept, shape in random.Random(bits).sample([*threads_and_memory(bits, gluon)], 60):
        more, least = cycles(threads, memory, shape, bits)
        if "sizePerThread = [1, 1]" not in threads and not more:
            continue
        theirs = 1 + builder.get_shared_bank_conflicts(spread._to_ir(builder), kept._to_ir(builder), list(shape), bits)
        narrow = max(32 // bits, 1)  # how many accesses of a bank's width the least is of, at most
        assert more + least <= least * narrow * theirs
        alike += more + least == least * narrow * theirs
    assert alike > 10

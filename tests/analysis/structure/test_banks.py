"""How often banks take turns, against Triton's own count."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kprof_inject.analysis.structure.banks import conflict_cycles, least_cycles
from kprof_inject.ttgir.parser import parse

BLOCKED = "#ttg.blocked<{{sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = [4, 1], order = {}}}>"
SWIZZLED = "#ttg.swizzled_shared<{{vec = {}, perPhase = {}, maxPhase = {}, order = {}}}>"
OF_MATRICES = "#ttg.nvmma_shared<{{swizzlingByteWidth = {}, transposed = {}, elementBitWidth = {}}}>"
ORDERS = ([1, 0], [0, 1])


def cycles(threads: str, memory: str, shape: tuple[int, int], bits: int, of: str = "") -> tuple[int, int]:
    """Those of a store beyond the least, and the least; ``of`` is what the memory is a part of."""
    size, kind = "x".join(map(str, shape)), {8: "i8", 16: "f16", 32: "f32", 64: "f64"}[bits]
    line = f"ttg.local_store %x, %m : tensor<{size}x{kind}, #t> -> !ttg.memdesc<{size}x{kind}, #m, #smem, mutable{of}>"
    module = parse(
        f"#t = {threads}\n#m = {memory}\nmodule {{\n  tt.func @k() {{\n    {line}\n    tt.return\n  }}\n}}\n"
    )
    store = next(one for one in module.walk() if one.name == "ttg.local_store")
    return conflict_cycles(store, module.aliases), least_cycles(store)


def layouts(bits: int, gluon: Any) -> Iterator[tuple[str, Any, str, Any, tuple[int, int]]]:
    """Each as text and as Gluon's: of threads that have no element twice, and of memory."""
    shape = (128, 128)
    sizes = ([1, 1], [1, 4], [4, 1], [1, 16])
    lanes = ([1, 32], [4, 8], [8, 4], [32, 1])
    for elements, threads, order in itertools.product(sizes, lanes, ORDERS):
        spread = (
            BLOCKED.format(elements, threads, order),
            gluon.BlockedLayout(elements, threads, [4, 1], order),
        )
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
    from triton._C.libtriton import gluon_ir, ir
    from triton.experimental.gluon import language as gluon

    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)
    if not hasattr(builder, "get_shared_bank_conflicts"):
        pytest.skip("this Triton does not count bank conflicts")
    alike = 0
    for threads, spread, memory, kept, shape in random.Random(bits).sample([*layouts(bits, gluon)], 60):
        more, least = cycles(threads, memory, shape, bits)
        if "sizePerThread = [1, 1]" not in threads and not more:
            continue
        theirs = 1 + builder.get_shared_bank_conflicts(spread._to_ir(builder), kept._to_ir(builder), list(shape), bits)
        narrow = max(32 // bits, 1)  # how many accesses of a bank's width the least is of, at most
        assert more + least <= least * narrow * theirs
        alike += more + least == least * narrow * theirs
    assert alike > 10


def test_by_hand() -> None:
    rows = BLOCKED.format([1, 1], [1, 32], [1, 0])
    # 32 floats in a row are one word of each bank; in a column of 128 bytes, all of one bank, unless they are swizzled.
    assert cycles(rows, SWIZZLED.format(1, 1, 1, [1, 0]), (32, 32), 32) == (0, 32)
    assert cycles(rows, SWIZZLED.format(1, 1, 1, [0, 1]), (32, 32), 32) == (31 * 32, 32)
    assert cycles(rows, SWIZZLED.format(1, 1, 32, [0, 1]), (32, 32), 32) == (0, 32)
    # Chunks of 16 bytes go to one of 8 places, so of 32 in a column 4 want the same bank.
    assert cycles(rows, OF_MATRICES.format(128, "true", 32), (32, 32), 32) == (3 * 32, 32)
    # A byte each fills a quarter of a bank.
    assert cycles(rows, SWIZZLED.format(1, 1, 1, [1, 0]), (32, 32), 8) == (3 * 8, 8)


SPLIT = "CGALayout = [[1, 0]]"
ROWS = BLOCKED.format([1, 1], [1, 32], [1, 0])


@pytest.mark.parametrize(
    "threads",
    [
        "#ttg.nvidia_mma<{versionMajor = 3, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>",
        BLOCKED.format([1, 1], [1, 64], [1, 0]),
        ROWS.replace("}>", f", {SPLIT}}}>"),
    ],
)
def test_nothing_is_said_of_other_threads(threads: str) -> None:
    """Those of tensor cores, of AMD's warps, and of several CTAs."""
    memory = OF_MATRICES.format(128, "true", 32)
    assert cycles(ROWS, memory, (64, 64), 32)[0] > 0
    assert cycles(threads, memory, (64, 64), 32)[0] == 0


def test_rows_of_a_part_are_as_long_as_those_of_the_whole() -> None:
    """Several buffers of a tile are one behind the other; where they are beside each other, nothing is said."""
    memory = SWIZZLED.format(1, 1, 1, [0, 1])
    alone = cycles(ROWS, memory, (32, 32), 32)
    assert alone[0] > 0
    assert cycles(ROWS, memory, (32, 32), 32, ", 3x32x32") == alone
    assert cycles(ROWS, memory, (32, 32), 32, ", 64x32")[0] == 0
    assert cycles(ROWS, memory, (32, 32), 32, ", 132x32")[0] == 0


EVIL = (0, -1, 3, 1 << 31, 1 << 62)


@pytest.mark.parametrize("number", EVIL)
def test_a_layout_whose_numbers_are_of_no_tiles_has_no_conflict_or_some(number: int) -> None:
    """What a damaged module says of layouts is no reason to end."""
    sound = BLOCKED.format([1, 4], [4, 8], [1, 0]), SWIZZLED.format(8, 1, 8, [1, 0])
    lists = [[number, 1], [1, number], [number], [1, 1, number], []]
    threads = [BLOCKED.format(one, [4, 8], [1, 0]) for one in lists]
    threads += [BLOCKED.format([1, 4], one, [1, 0]) for one in lists]
    threads += [BLOCKED.format([1, 4], [4, 8], one) for one in lists]
    memories = [SWIZZLED.format(*(number if at == place else 4 for at in range(3)), [1, 0]) for place in range(3)]
    memories += [SWIZZLED.format(8, 1, 8, one) for one in lists]
    memories += [OF_MATRICES.format(number, "false", 16), OF_MATRICES.format(64, "false", number)]
    for one, memory in [*((one, sound[1]) for one in threads), *((sound[0], one) for one in memories)]:
        more, _ = cycles(one, memory, (128, 128), 16)
        assert more >= 0
    for shape in ((0, 128), (128, 0), (1, 3)):
        assert cycles(*sound, shape, 16)[0] >= 0

"""Bank conflicts of accesses to shared memory."""

from __future__ import annotations

import pytest
from bank_layouts import BLOCKED, OF_MATRICES, SWIZZLED, cycles

from kprof_inject.analysis.structure.layouts import SharedCycles, shared_cycles
from kprof_inject.ttgir.parser import parse


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


MMA = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
FMA = BLOCKED.format([4, 4], [2, 16], [1, 0])


def load_cycles(operand: int, parent: str, memory: str, shape: tuple[int, int], element: str) -> SharedCycles | None:
    """Return the cycles of the load of a dot's operand."""
    size = "x".join(map(str, shape))
    width = ", kWidth = 2" if "mma" in parent else ""
    layout = f"#ttg.dot_op<{{opIdx = {operand}, parent = #p{width}}}>"
    line = f"%x = ttg.local_load %m : !ttg.memdesc<{size}x{element}, #m, #smem> -> tensor<{size}x{element}, {layout}>"
    text = f"#p = {parent}\n#m = {memory}\nmodule {{\n  tt.func @k() {{\n    {line}\n    tt.return\n  }}\n}}\n"
    module = parse(text)
    (load,) = (one for one in module.walk() if one.name == "ttg.local_load")
    return shared_cycles(load, module.aliases)


def test_operands_of_a_dot_without_tensor_cores() -> None:
    """A warp has two rows of 16 threads, which hold the same elements of A, and each row all of B's columns.

    On an H100, Nsight Compute counted 2,260 cycles for the two loads of an iteration.
    """
    memory = SWIZZLED.format(1, 1, 1, [1, 0])
    assert load_cycles(0, FMA, memory, (64, 16), "f32") == SharedCycles(256, 256)
    # 16 threads want four words each of a row that is stored by columns: all of a half-warp are of one bank.
    assert load_cycles(1, FMA, SWIZZLED.format(1, 1, 1, [0, 1]), (16, 64), "f32") == SharedCycles(2048, 256)


def test_matrices_for_tensor_cores() -> None:
    """Eight rows of 16 bytes at a time: two pairs of warps load the same rows of A, and the others those of B."""
    swizzled, plain = SWIZZLED.format(8, 1, 8, [1, 0]), SWIZZLED.format(8, 1, 1, [1, 0])
    matrices = 64 * 64 // 64
    assert load_cycles(0, MMA, swizzled, (64, 64), "f16") == SharedCycles(2 * matrices, 2 * matrices)
    # Rows of 128 bytes begin in the same bank.
    assert load_cycles(0, MMA, plain, (64, 64), "f16") == SharedCycles(8 * 2 * matrices, 2 * matrices)
    assert load_cycles(1, MMA, swizzled, (64, 64), "f16") == SharedCycles(2 * matrices, 2 * matrices)


def test_elements_that_cannot_be_transposed_move_by_themselves() -> None:
    """Only elements of 16 bits can: each thread loads its floats, of which four are in the same bank."""
    by_columns = SWIZZLED.format(1, 1, 1, [0, 1])
    found = load_cycles(0, MMA, by_columns, (64, 32), "f32")
    assert found is not None
    assert found.cycles > found.least


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

"""How often blocks of machine code are executed at least: of compiled fixtures, read by hand, and of made functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from golden import FIXTURES

from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated
from kprof_inject.analysis.limits.executed_instructions import block_executions
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction
from kprof_inject.runtime.compiling.disassembly import machine_code_of
from kprof_inject.ttgir.parser import parse

triton = pytest.importorskip("triton")
VERSION = "3.6.0"
# What another version compiles has other blocks.
compiled = pytest.mark.skipif(triton.__version__ != VERSION, reason=f"the blocks are those of Triton {VERSION}")
ADDRESS = 1 << 20


def text_of(name: str) -> str:
    return (FIXTURES / VERSION / "cuda-90" / f"{name}.ttgir").read_text()


@cache
def code_of(name: str) -> MachineFunction:
    (function,) = machine_code_of(parse(text_of(name), name), {})
    return function


def executions(name: str, grid: tuple[int, int, int], arguments: Sequence[int | None], warps: int) -> list[int | None]:
    ran = evaluated(text_of(name), name, grid, tuple(arguments), ScopeTable())
    return block_executions(code_of(name), ran, warps).known


@compiled
@pytest.mark.triton
@pytest.mark.parametrize("iterations", [1, 2, 63])
def test_a_pipelined_loop(iterations: int) -> None:
    """``matmul``: 0 and 1 are before the loop, 2 is the loop. 3 ends with a conditional exit before the last of the 16
    stores, which is in 4: a mask decides whether a warp gets there. 5 and 6 are padding."""
    sizes = (2048, 1024, 64 * iterations)
    found = executions("matmul", (128, 1, 1), (*[ADDRESS] * 3, *sizes, 64 * iterations, 1024, 1024), 4)
    warps = 128 * 4
    assert found == [warps, warps, iterations * warps, warps, None, 0, 0]


@compiled
@pytest.mark.triton
@pytest.mark.parametrize(("columns", "four"), [(900, 0), (2048, 0), (4096, 1), (5000, 1), (11264, 2)])
def test_an_unrolled_loop(columns: int, four: int) -> None:
    """``layer_norm``: two loops of four iterations at once (3, 14), and a third one, 23, that is not unrolled. 2 and 13
    are executed if the loops are. What does the rest of the iterations is unknown."""
    warps = 24 * 8
    found = executions("layer_norm", (24, 1, 1), (*[ADDRESS] * 6, columns, columns, None), 8)
    assert [found[number] for number in (3, 14)] == [four * warps or None] * 2
    assert [found[number] for number in (2, 13)] == [warps if four else None] * 2
    assert found[23] == -(-columns // 1024) * warps
    assert [found[number] for number in (0, 11, 22, 24)] == [warps] * 4
    assert [found[number] for number in (5, 7, 8, 16, 18, 19)] == [None] * 6


@compiled
@pytest.mark.triton
def test_loops_with_other_iterations_in_each_cta() -> None:
    """``attention``: CTA x masks nothing in its first 2 * x blocks of keys (2), and then in two (5). The first CTA of
    each head jumps over 1 and 2."""
    found = executions("attention", (16, 3, 1), (*[ADDRESS] * 4, 64, 2048, None), 4)
    heads_warps = 3 * 4
    warps = 16 * heads_warps
    first = sum(2 * x for x in range(16)) * heads_warps
    assert found == [warps, 15 * heads_warps, first, warps, warps, 2 * warps, warps, 0, 0]


def made(*parts: str) -> MachineFunction:
    """A function of labels (``a:``) and of instructions after their line, ``5 @!P0 BRA a``."""
    labels: dict[str, int] = {}
    lines: list[str] = []
    for part in parts:
        if part.endswith(":"):
            labels[part[:-1]] = len(lines) * INSTRUCTION_BYTES
        else:
            lines.append(part)
    return MachineFunction("k", tuple(instruction(number, line, labels) for number, line in enumerate(lines)))


def instruction(number: int, text: str, labels: dict[str, int]) -> Instruction:
    line, *words = text.split()
    predicate = words.pop(0) if words[0].startswith("@") else ""
    opcode, *operands = words
    targets = (labels[operands[0]],) if opcode == "BRA" else ()
    return Instruction(number * INSTRUCTION_BYTES, opcode, " ".join(operands), predicate, int(line), targets=targets)


BODY = """\
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [2], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 2 : i32} {
  tt.func public @k(%p: !tt.ptr<f32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %x = tt.get_program_id x : i32
    %v = tt.load %p : !tt.ptr<f32>
    ttg.local_barrier
    scf.for %i = %c0 to %n step %c1  : i32 {
      %q = tt.addptr %p, %i : !tt.ptr<f32>, i32
      %w = tt.load %q : !tt.ptr<f32>
      ttg.local_barrier
      tt.store %q, %w : !tt.ptr<f32>
    }
    %many = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>, #blocked>
    %z = tt.load %many : tensor<128x!tt.ptr<f32>, #blocked>
    ttg.local_barrier
    %first = arith.cmpi slt, %x, %c1 : i32
    scf.if %first {
      tt.store %p, %v : !tt.ptr<f32>
    }
    tt.return
  }
}
"""
LOOP, LOAD, BARRIER, STORE, IF, IN_IF, RETURN = 9, 11, 12, 13, 19, 20, 22
CTAS, WARPS = 4, 2
ALL = CTAS * WARPS


def ran(iterations: int | None, text: str = BODY) -> ExecutedKernel:
    assert text.splitlines()[LOAD - 1].lstrip().startswith("%w = tt.load")
    assert text.splitlines()[IF - 1].lstrip().startswith("scf.if")
    return evaluated(text, "k", (CTAS, 1, 1), (ADDRESS, iterations), ScopeTable())


def found_in(function: MachineFunction, iterations: int | None = 10, text: str = BODY) -> list[int | None]:
    found = block_executions(function, ran(iterations, text), WARPS).known
    assert len(found) == len(blocks_of(function))
    return found


def loop_of(*body: str) -> MachineFunction:
    return made(f"{LOOP} @!P0 EXIT", f"{LOOP} NOP", "a:", *body, f"{LOOP} @P0 BRA a", f"{RETURN} EXIT")


def remainder(*copies: int) -> MachineFunction:
    """A loop of the first number of copies, and blocks that a branch jumps over."""
    blocks = [
        part
        for number, count in enumerate(copies[1:])
        for part in (f"{LOOP} @P0 BRA r{number}", *[f"{LOAD} LDG.E"] * count, f"r{number}:")
    ]
    return made("a:", *[f"{LOAD} LDG.E"] * copies[0], f"{LOOP} @P0 BRA a", *blocks, f"{RETURN} EXIT")


MASKED = (f"{STORE} @P0 BRA b", f"{STORE} STG.E", "b:", f"{BARRIER} BAR.SYNC")
PADDING = ("p:", f"{RETURN} BRA p", f"{RETURN} NOP")
CALLED = made("7 CALL f", f"{RETURN} EXIT", "7 FADD", "7 RET", *PADDING)
MOVED_OUT = made(f"{LOOP} @!P0 EXIT", f"{LOAD} LDG.E", "a:", f"{LOOP} @P0 BRA a", f"{RETURN} EXIT")
DIVERGING = made("16 @P0 BRA a", "16 LDG.E", "a:", "17 BAR.SYNC", "17 @P0 EXIT", f"{RETURN} EXIT")
ENDLESS = made("a:", f"{BARRIER} BAR.SYNC", f"{LOOP} NOP", f"{LOOP} BRA a", f"{RETURN} EXIT")


@pytest.mark.parametrize(
    ("code", "iterations", "expected"),
    [
        # One copy of an operation counts iterations: how often the loop is entered, and the code after it.
        *(
            (loop_of(body), count, [ALL, ALL, count * ALL, ALL])
            for body in (f"{BARRIER} BAR.SYNC", f"{LOAD} LDG.E", f"{STORE} @!P1 STG.E")
            for count in (10, 1)
        ),
        # No CTA enters the loop, or how often is not known.
        (loop_of(f"{BARRIER} BAR.SYNC"), 0, [ALL, None, None, None]),
        (loop_of(f"{LOAD} LDG.E"), 0, [ALL, None, None, None]),
        (loop_of(f"{BARRIER} BAR.SYNC"), None, [ALL, None, None, None]),
        # Two barriers may be of one operation or of two copies: the lower bound.
        (loop_of(*[f"{BARRIER} BAR.SYNC"] * 2), 10, [ALL, ALL, 5 * ALL, ALL]),
        # Other instructions show nothing, nor does what moved out of the loop.
        *((loop_of(body), 10, [ALL, None, None, None]) for body in ("10 IADD3", f"{LOOP} HGMMA", f"{LOAD} STG.E")),
        (MOVED_OUT, 10, [ALL, None, None, None]),
        # Loads of known size show how far a loop is unrolled: each thread loads four bytes.
        (loop_of(*[f"{LOAD} LDG.E"] * 2), 10, [ALL, ALL, 5 * ALL, ALL]),
        (loop_of(f"{LOAD} LDG.E.64"), 10, [ALL, ALL, 5 * ALL, ALL]),
        (made(*[f"{LOAD} LDG.E"] * 10, f"{RETURN} EXIT"), 10, [ALL]),
        # The rest of the iterations is not counted.
        (remainder(4, 2, 1), 11, [2 * ALL, ALL, None, ALL, None, ALL]),
        (remainder(4, 2, 1), 6, [ALL, ALL, None, ALL, None, ALL]),
        # Branches that may diverge hide what is between them, but not what follows where they meet.
        (DIVERGING, 10, [ALL, None, ALL, None]),
        # A mask may leave something out.
        (loop_of(*MASKED), 10, [ALL, ALL, 10 * ALL, None, 10 * ALL, ALL]),
        (loop_of(*MASKED[:-1]), 10, [ALL, None, None, None, None, None]),
        # Padding is not executed, and called functions are unknown.
        (made("7 NOP", f"{RETURN} EXIT", *PADDING), 10, [ALL, 0, 0]),
        (CALLED, 10, [ALL, None, None, None]),
        (ENDLESS, 10, [None, None]),
    ],
)
def test_how_often_blocks_execute(code: MachineFunction, iterations: int | None, expected: list[int | None]) -> None:
    assert found_in(code, iterations) == expected


@pytest.mark.parametrize("copies", [(2, 1, 1), (4, 3, 1, 2), (2, 2)])
def test_remainders_of_as_many_iterations_as_the_loop_are_unknown(copies: tuple[int, ...]) -> None:
    """They may be executed in its place."""
    found = found_in(remainder(*copies), 7)
    assert None in found[:3]


def again(*, before: bool) -> MachineFunction:
    """A loop of four copies, a block of two, and a loop of one; perhaps with an iteration before them."""
    first = (f"{LOAD} LDG.E", f"{LOOP} @P3 BRA r") if before else ()
    four = ("a:", *[f"{LOAD} LDG.E"] * 4, f"{LOOP} @P0 BRA a", "r:")
    two = (f"{LOOP} @P1 BRA s", *[f"{LOAD} LDG.E"] * 2, "s:")
    one = (f"{LOOP} @P2 BRA e", "b:", f"{LOAD} LDG.E", f"{LOOP} @P2 BRA b", "e:")
    return made(*first, *four, *two, *one, f"{RETURN} EXIT")


@pytest.mark.parametrize(
    ("before", "iterations", "four"),
    [(False, 11, 2), (False, 12, 3), (False, 7, 1), (True, 12, 2), (True, 13, 3), (True, 8, 1)],
)
def test_the_rest_may_be_in_a_loop_of_its_own(before: bool, iterations: int, four: int) -> None:
    """An iteration before all others is executed in any case, as its block is the first."""
    found = found_in(again(before=before), iterations)
    assert found == [ALL] * before + [four * ALL, ALL, None, ALL, None, ALL]


# Instructions of a loop of arithmetic, which mark no operation.
ARITHMETIC = BODY.replace("%w = tt.load %q : !tt.ptr<f32>", "%w = arith.addf %v, %v : f32").replace(
    "tt.store %q, %w : !tt.ptr<f32>", "%u = arith.mulf %w, %w : f32"
)
ADD = LOAD


def counting(step: str, copies: int, *, compare: str = "R2") -> list[str]:
    adds = [f"{ADD} FADD"] * copies
    return [*adds, f"{LOOP} {step}", f"{LOOP} ISETP.NE.AND P0, PT, {compare}, RZ, PT"]


@pytest.mark.parametrize(
    ("step", "copies"),
    [
        ("IADD3 R2, R2, 0x1, RZ", 1),
        ("VIADD R2, R2, 0xffffffff", 1),
        ("IADD3 R2, P1, R2, -0x2, RZ", 2),
        ("VIADD R2, R2, 0x5", 5),
    ],
)
def test_a_counter_shows_how_many_iterations_a_machine_loop_executes(step: str, copies: int) -> None:
    code = made("a:", *counting(step, copies), f"{LOOP} @P0 BRA a", f"{RETURN} EXIT")
    found = block_executions(code, arithmetic(10), WARPS).known
    assert found == [10 // copies * ALL, ALL]


def arithmetic(iterations: int) -> ExecutedKernel:
    return evaluated(ARITHMETIC, "k", (CTAS, 1, 1), (ADDRESS, iterations), ScopeTable())


def test_another_loop_that_counts_fewer_iterations_does_the_rest() -> None:
    four = ("a:", *counting("VIADD R2, R2, 0xfffffffc", 4), f"{LOOP} @P0 BRA a")
    one = (f"{LOOP} @P1 BRA e", "b:", *counting("VIADD R2, R2, -0x1", 1), f"{LOOP} @P1 BRA b", "e:")
    code = made(*four, *one, f"{RETURN} EXIT")
    assert block_executions(code, arithmetic(11), WARPS).known == [2 * ALL, ALL, None, ALL]


@pytest.mark.parametrize(
    "body",
    [
        ["10 FADD"],
        counting("IADD3 R3, R2, 0x1, RZ", 1),
        counting("IADD3 R2, R2, 0x1, RZ", 1, compare="R22"),
        [*counting("IADD3 R2, R2, 0x1, RZ", 1), f"{LOOP} VIADD R2, R2, 0x2"],
    ],
)
def test_without_a_clear_counter_a_loop_is_executed_once(body: list[str]) -> None:
    """An address is no counter, nor is a register that another one's name begins with; and of two, none is."""
    code = made("a:", *body, f"{LOOP} @P0 BRA a", f"{RETURN} EXIT")
    assert block_executions(code, arithmetic(10), WARPS).known == [ALL, ALL]


def test_a_barrier_shows_how_many_ctas_take_a_branch() -> None:
    with_barrier = BODY.replace("      tt.store %p, %v", "      ttg.local_barrier\n      tt.store %p, %v")
    code = made(f"{IF} @P0 BRA a", f"{IN_IF} BAR.SYNC", "a:", f"{RETURN + 1} EXIT")
    assert found_in(code, text=with_barrier) == [ALL, WARPS, ALL]
    assert found_in(made(f"{IF} @P0 BRA a", f"{IN_IF} STG.E", "a:", f"{RETURN} EXIT")) == [ALL, None, ALL]


def test_ctas_of_a_cluster_all_count() -> None:
    clusters = BODY.replace('"ttg.num-ctas" = 1', '"ttg.num-ctas" = 2')
    assert found_in(loop_of(f"{BARRIER} BAR.SYNC"), text=clusters) == [2 * ALL, 2 * ALL, 20 * ALL, 2 * ALL]


def test_nothing_is_known_with_partitions() -> None:
    specialised = BODY.replace(
        "    tt.return\n",
        "    ttg.warp_specialize()\n    default {\n      ttg.warp_yield\n    }\n"
        "    partition0() num_warps(4) {\n      ttg.warp_return\n    } : () -> ()\n    tt.return\n",
    )
    assert found_in(loop_of(f"{BARRIER} BAR.SYNC"), text=specialised) == [None] * 4

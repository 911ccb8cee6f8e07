"""Executed instructions by pipeline, of a launch and of its scopes, and the utilization that follows."""

from __future__ import annotations

import pytest
from golden import FIXTURES

from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.analysis.limits.executed_instructions import block_executions
from kprof_inject.analysis.limits.rates import ALU, FP32, FP64, ISSUE, SHARED, SPECIAL, rates_of
from kprof_inject.analysis.limits.unit_evidence import InstructionWork, launch_work, scope_work
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.capture.scopes import Scope, ScopeTable
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline
from kprof_inject.runtime.compiling.disassembly import machine_code_of
from kprof_inject.ttgir.parser import parse

VERSION = "3.6.0"
MATMUL = FIXTURES / VERSION / "cuda-90" / "matmul.ttgir"
BODY, LOOP = (17, 184), (124, 160)


def scope(name: str, kind: str, lines: tuple[int, int] | None) -> Scope:
    return Scope(record=name, name=name, kind=kind, lines=lines)


def code(*instructions: tuple[int, str, str]) -> MachineFunction:
    return MachineFunction(
        "k",
        tuple(
            Instruction(number * INSTRUCTION_BYTES, opcode, "", predicate, line)
            for number, (line, predicate, opcode) in enumerate(instructions)
        ),
    )


# Blocks end at each exit.
MADE = code(
    (3, "", "FADD"), (4, "", "MUFU.EX2"), (0, "", "IADD3"), (4, NEVER, "LDS"), (5, "@P0", "EXIT"),
    (4, "@P1", "STG.E"), (6, "@P0", "EXIT"),
    (6, "", "FFMA"), (6, "@P0", "EXIT"),
    (6, "", "NOP"),
)  # fmt: skip
EXECUTIONS = [8, 2, None, 0]


def test_executions_of_a_launch_by_pipeline() -> None:
    """What is unknown or never executed does not count; an instruction that is always disabled is only issued."""
    pipelines = {Pipeline.FMA: 8, Pipeline.XU: 8, Pipeline.ALU: 8, Pipeline.LSU: 2, Pipeline.CONTROL: 8 + 2}
    found = launch_work(MADE, EXECUTIONS)
    assert found == InstructionWork(5 * 8 + 2 * 2, pipelines, wavefronts=2)


def test_executions_of_scopes_by_their_lines() -> None:
    """Instructions without a line are of no scope, and a scope without instructions has no work."""
    body, loop, unused = scope("func", "func", (2, 7)), scope("loop", "loop", (4, 5)), scope("x", "op", (9, 9))
    table = ScopeTable(scopes=(body, loop, unused, scope("y", "op", None)))
    found = scope_work(MADE, EXECUTIONS, ScopeMap(parse(MATMUL.read_text()), table))
    assert sorted(found) == [0, 1]
    pipelines = {Pipeline.FMA: 8, Pipeline.XU: 8, Pipeline.LSU: 2, Pipeline.CONTROL: 8 + 2}
    assert found[0] == InstructionWork(4 * 8 + 2 * 2, pipelines, wavefronts=2)
    assert found[1] == InstructionWork(3 * 8 + 2, {Pipeline.XU: 8, Pipeline.LSU: 2, Pipeline.CONTROL: 8}, 2)


def test_utilization_is_by_the_rate_of_each_pipeline() -> None:
    """Older GPUs execute fp16 in a pipeline of its own, newer ones in the fp32 units."""
    work = InstructionWork(400, {Pipeline.FMA: 80, Pipeline.FP16: 40, Pipeline.XU: 30, Pipeline.TENSOR: 7}, 50)
    hopper, ampere = rates_of("cuda:90"), rates_of("cuda:80")
    assert hopper is not None and ampere is not None
    assert work.parts(200, hopper) == {
        ALU: 0,
        FP32: 80 / 4 / 200 + 40 / 4 / 200,
        FP64: 0,
        SPECIAL: 30 / 0.5 / 200,
        ISSUE: 400 / 4 / 200,
        SHARED: 50 / 200,
    }
    assert work.parts(200, ampere)[FP32] == 80 / 2 / 200


@pytest.mark.parametrize(
    ("target", "fma", "alu", "fp16", "fp64"),
    [
        ("cuda:80", 2, 2, 4, 1),
        ("cuda:86", 4, 2, 4, 1 / 16),
        ("cuda:89", 4, 2, 2, 1 / 16),
        ("cuda:90", 4, 2, 4, 2),
        ("cuda:100", 4, 4, 4, 2),
        ("cuda:120", 4, 4, 4, 1 / 16),
    ],
)
def test_rates_of_architectures(target: str, fma: float, alu: float, fp16: float, fp64: float) -> None:
    rates = rates_of(target)
    assert rates is not None
    assert rates.warp_issue == 4
    assert rates.pipelines == {
        Pipeline.FMA: fma,
        Pipeline.ALU: alu,
        Pipeline.FP16: fp16,
        Pipeline.FP64: fp64,
        Pipeline.XU: 0.5,
        Pipeline.LSU: 1,
    }


@pytest.mark.parametrize("target", ["cuda:70", "hip:gfx942", "an unknown device"])
def test_other_targets_have_no_rates(target: str) -> None:
    rates = rates_of(target)
    assert rates is None or rates.pipelines == {}


@pytest.mark.triton
def test_the_loop_of_a_compiled_matmul() -> None:
    """128 * 128 * 64 elements in each of 16 iterations, by four warps: an HGMMA has 64 * 128 * 16."""
    triton = pytest.importorskip("triton")
    if triton.__version__ != VERSION:
        pytest.skip(f"the instructions are those of Triton {VERSION}")
    table = ScopeTable(scopes=(scope("func", "func", BODY), scope("loop[0]", "loop", LOOP)))
    sizes = (2048, 1024, 16 * 64)
    ran = evaluated(MATMUL.read_text(), str(MATMUL), (128, 1, 1), (*[1 << 20] * 3, *sizes, 1024, 1024, 1024), table)
    (function,) = machine_code_of(ran.module, {})
    executions = block_executions(function, ran, 4).known
    whole, scopes = launch_work(function, executions), scope_work(function, executions, ran.scope_map)
    iterations = 16 * 128 * 4
    tensor = 2 * 4 * iterations
    assert [one.pipelines[Pipeline.TENSOR] for one in (whole, scopes[0], scopes[1])] == [tensor] * 3
    # Each thread copies 16 bytes at once: 8 copies of each matrix, 128 * 64 and 64 * 128 values of two bytes.
    assert scopes[1].pipelines[Pipeline.LSU] == 2 * 8 * iterations
    assert whole.pipelines[Pipeline.LSU] > scopes[1].pipelines[Pipeline.LSU] + 2 * 2 * 8 * 128 * 4
    assert scopes[1].issued < scopes[0].issued == whole.issued

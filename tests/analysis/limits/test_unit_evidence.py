"""Evidence on units: the work of instructions, its conflicts of banks, and what contradicts the counters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import strided_loads
from bank_layouts import BLOCKED, SWIZZLED
from golden import FIXTURES
from replacing import replace

from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.coalescing import requests_of
from kprof_inject.analysis.limits.executed_instructions import block_executions
from kprof_inject.analysis.limits.limit import CodeBounds, Measured
from kprof_inject.analysis.limits.rates import ALU, FP32, FP64, ISSUE, SHARED, SPECIAL, TENSOR, rates_of
from kprof_inject.analysis.limits.unit_evidence import (
    InstructionWork,
    code_evidence,
    disagreements,
    launch_work,
    scope_work,
    uncounted_wavefronts,
    unit_evidence,
)
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.resources import GridTimesRecord
from kprof_inject.capture.scopes import Scope, ScopeTable
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline
from kprof_inject.runtime.compiling.disassembly import machine_code_of
from kprof_inject.timeline.timeline import decode_launch
from kprof_inject.ttgir.parser import parse

VERSION = "3.6.0"
MATMUL = FIXTURES / VERSION / "cuda-90" / "matmul.ttgir"
CAPTURES = Path(__file__).parents[2] / "captures"
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
    assert rates.issue == 4 * 32
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


CTAS, WARPS = 3, 4
EXIT = (0, "", "EXIT")
TEXT = f"""\
#t = {BLOCKED.format([1, 1], [1, 32], [1, 0])}
#m = {SWIZZLED.format(1, 1, 1, [0, 1])}
module {{
  tt.func public @k(%p: !tt.ptr<f32>, %m: !ttg.memdesc<32x32xf32, #m, #smem>) {{
    %x = ttg.local_load %m : !ttg.memdesc<32x32xf32, #m, #smem> -> tensor<32x32xf32, #t>
    %y = ttg.convert_layout %x : tensor<32x32xf32, #t> -> tensor<32x32xf32, #t>
    %z = "tt.reduce"(%y) <{{axis = 0 : i32}}> ({{
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }}) : (tensor<32x32xf32, #t>) -> tensor<32xf32, #ttg.slice<{{dim = 0, parent = #t}}>>
    tt.return
  }}
}}
"""
LOAD, CONVERSION, REDUCTION = 5, 6, 7


def loading() -> ExecutedKernel:
    return evaluated(TEXT, "k.ttgir", (CTAS, 1, 1), (None, None), ScopeTable())


def test_a_load_takes_what_its_banks_need() -> None:
    """The rows are stored by columns: a warp's 32 floats are all of one bank."""
    found = uncounted_wavefronts(code(*[(LOAD, "", "LDS")] * 8, EXIT), [CTAS * WARPS], loading(), ())
    counted = CTAS * WARPS * 8
    assert found == {LOAD: CTAS * 32 * 32 - counted}


def test_what_predicates_may_disable_is_no_lower_bound() -> None:
    """Of a known request, its mask says how much is."""
    made = code((LOAD, "", "LDS"), (9, "", "LDG.E.64"), (9, "", "STG.E"), (10, "", "RED.E"), EXIT)
    function = replace(made, instructions=tuple(replace(one, predicate="@P0") for one in made.instructions))
    executions = [CTAS * WARPS] * len(blocks_of(function))
    found = uncounted_wavefronts(function, executions, loading(), [SimpleNamespace(line=9, kind="load")])
    assert found == {LOAD: CTAS * (32 * 32 - WARPS), 9: -CTAS * WARPS, 10: -CTAS * WARPS, 0: 0}


def test_accesses_without_instructions_or_predicates_add_nothing() -> None:
    assert uncounted_wavefronts(code((9, "", "STG.E"), EXIT), [CTAS * WARPS], loading(), ()) == {LOAD: 0}


SM_CYCLES = 1000


def evidence(step: int) -> CodeBounds:
    """Make the evidence for a load and a store of 32 elements."""
    (launch,) = read_capture(CAPTURES / "matmul-three-stages").launches
    ran = strided_loads.strided(strided_loads.THIN, step=step, size=32)
    lines = {one.operation.name: one.line for one in ran.operations}
    made = code((lines["tt.load"], "", "LDG.E"), (lines["tt.store"], "", "STG.E"), EXIT)
    found = code_evidence(launch.kernel, made, ran, requests_of(ran, made), SM_CYCLES, {})
    assert found is not None
    return found


def test_addresses_that_are_apart_take_cycles_of_the_l1() -> None:
    """The four warps load the same elements, one of them stores them, which takes a cycle if they are adjacent."""
    assert evidence(1).parts[SHARED] == pytest.approx(strided_loads.CTAS * (WARPS + 1) / SM_CYCLES)
    assert evidence(8).parts[SHARED] == pytest.approx(strided_loads.CTAS * (WARPS + 1) * 8 / SM_CYCLES)


def counted(**metrics: float) -> CountersRecord:
    return CountersRecord(metrics={getattr(counters, name): value for name, value in metrics.items()}, passes=1)


def test_the_busier_part_of_a_unit_counts() -> None:
    (launch,) = read_capture(CAPTURES / "matmul-one-stage").launches
    measured = Measured(launch.kernel, counted(FMA=20.0, FMA_HEAVY=35.0, ALU=10.0), None, None)
    assert measured.shares == {ALU: 0.1, FP32: 0.35}


def test_lower_bounds_refer_to_the_cycles_of_the_measurement() -> None:
    (alu,) = unit_evidence({ALU: 0.5}, {ALU: 0.8}, {ALU: 0.42}, 0.5)
    assert (alu.computed, alu.code, alu.measured) == (0.25, 0.4, 0.42)
    assert alu.best == 0.42
    (issue,) = unit_evidence({ISSUE: 0.5, TENSOR: 0.0}, {ISSUE: 0.8}, {}, 1.0)
    assert issue.best == issue.lower_bound == 0.8


def test_a_lower_bound_above_the_measurement_is_our_mistake() -> None:
    agreeing = unit_evidence({SHARED: 0.4}, {}, {SHARED: 0.39}, 1.0)
    assert disagreements(agreeing) == []
    (sentence,) = disagreements(unit_evidence({SHARED: 0.6}, {}, {SHARED: 0.3}, 1.0))
    assert sentence.startswith(
        "kprof-inject contradicts itself: shared memory and L1 would be busy for at least 60.0 %"
    )


@pytest.mark.parametrize("name", ["matmul-one-stage", "matmul-three-stages"])
def test_all_evidence_on_the_demo_agrees(name: str) -> None:
    """Its machine code has a known number of executions, so that it must give what the hardware counted."""
    (launch,) = read_capture(CAPTURES / name).launches
    report = LaunchAnalysis.of(decode_launch(launch))
    assert report.limit.evidence == "measured"
    units = {one.unit: one for one in report.units}
    for unit, error in ((ISSUE, 0.01), (ALU, 0.005)):
        assert units[unit].code == pytest.approx(units[unit].measured, abs=error)
    assert units[TENSOR].computed == pytest.approx(units[TENSOR].measured, abs=0.01)
    assert report.disagreements == []
    wrong = replace(report, units=unit_evidence({SHARED: 0.6}, {}, {SHARED: 0.3}, 1.0))
    assert len(wrong.disagreements) == 1
    grids = tuple(GridTimesRecord(grid=(size, 1, 1), launches=1) for size in (1, 2))
    timeline = replace(report.timeline, launch=replace(launch, kernel=replace(launch.kernel, grids=grids)))
    assert replace(wrong, timeline=timeline).disagreements == [], "counters may be those of another grid"
    assert report.stalls is not None
    assert report.stalls.samples > 10_000
    assert report.stalls.unknown < 0.05 * report.stalls.samples

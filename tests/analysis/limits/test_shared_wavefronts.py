"""Cycles of shared memory that conflicts of banks add to those of the instructions."""

from __future__ import annotations

from types import SimpleNamespace

from bank_layouts import BLOCKED, SWIZZLED
from replacing import replace

from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated
from kprof_inject.analysis.limits.unit_evidence import uncounted_wavefronts
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction

CTAS, WARPS = 3, 4
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


def ran() -> ExecutedKernel:
    return evaluated(TEXT, "k.ttgir", (CTAS, 1, 1), (None, None), ScopeTable())


def code(*parts: tuple[int, str]) -> MachineFunction:
    """Return instructions of some lines."""
    whole = [*parts, (0, "EXIT")]
    return MachineFunction(
        "k",
        tuple(
            Instruction(number * INSTRUCTION_BYTES, name, "", line=line) for number, (line, name) in enumerate(whole)
        ),
    )


def test_a_load_takes_what_its_banks_need() -> None:
    """The rows are stored by columns: a warp's 32 floats are all of one bank."""
    found = uncounted_wavefronts(code(*[(LOAD, "LDS")] * 8), [CTAS * WARPS], ran(), ())
    counted = CTAS * WARPS * 8
    assert found == {LOAD: CTAS * 32 * 32 - counted}


def test_what_predicates_may_disable_is_no_lower_bound() -> None:
    """Of a known request, its mask says how much is."""
    made = code((LOAD, "LDS"), (9, "LDG.E.64"), (9, "STG.E"), (10, "RED.E"))
    function = replace(made, instructions=tuple(replace(one, predicate="@P0") for one in made.instructions))
    executions = [CTAS * WARPS] * len(blocks_of(function))
    found = uncounted_wavefronts(function, executions, ran(), [SimpleNamespace(line=9, kind="load")])
    assert found == {LOAD: CTAS * (32 * 32 - WARPS), 9: -CTAS * WARPS, 10: -CTAS * WARPS, 0: 0}


def test_accesses_without_instructions_or_predicates_add_nothing() -> None:
    assert uncounted_wavefronts(code((9, "STG.E")), [CTAS * WARPS], ran(), ()) == {LOAD: 0}

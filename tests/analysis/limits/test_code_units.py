"""Utilization by the machine code of loads whose addresses are apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from strided_loads import CTAS, THIN, strided

from kprof_inject.analysis.limits.coalescing import requests_of
from kprof_inject.analysis.limits.limit import CodeBounds
from kprof_inject.analysis.limits.rates import SHARED
from kprof_inject.analysis.limits.unit_evidence import code_evidence
from kprof_inject.capture.reader import read_capture
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction

CAPTURE = Path(__file__).parents[3] / "tests/captures/matmul-three-stages"
SM_CYCLES = 1000
WARPS = 4


def evidence(step: int) -> CodeBounds:
    """Make the evidence for a load and a store of 32 elements."""
    (launch,) = read_capture(CAPTURE).launches
    ran = strided(THIN, step=step, size=32)
    lines = {one.operation.name: one.line for one in ran.operations}
    opcodes = [("LDG.E", lines["tt.load"]), ("STG.E", lines["tt.store"]), ("EXIT", 0)]
    code = MachineFunction(
        "k",
        tuple(
            Instruction(number * INSTRUCTION_BYTES, opcode, "", line=line)
            for number, (opcode, line) in enumerate(opcodes)
        ),
    )
    found = code_evidence(launch.kernel, code, ran, requests_of(ran, code), SM_CYCLES, {})
    assert found is not None
    return found


def test_addresses_that_are_apart_take_cycles_of_the_l1() -> None:
    """The four warps load the same elements, one of them stores them, which takes a cycle if they are adjacent."""
    assert evidence(1).parts[SHARED] == pytest.approx(CTAS * (WARPS + 1) / SM_CYCLES)
    assert evidence(8).parts[SHARED] == pytest.approx(CTAS * (WARPS + 1) * 8 / SM_CYCLES)

"""Utilization by the machine code of loads whose addresses are apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from strided_loads import CTAS, THIN, strided

from kprof_inject.analysis.evidence.units import CodeEvidence, code_evidence
from kprof_inject.analysis.limits.coalescing import requests_of
from kprof_inject.analysis.limits.rates import SHARED
from kprof_inject.capture.reader import read_capture
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction

CAPTURE = Path(__file__).parents[3] / "tests/captures/matmul-three-stages"
SM_CYCLES = 1000
WARPS = 4


def evidence(step: int, *others: str) -> CodeEvidence:
    """Make the evidence for a load and a store of 32 elements. ``others`` are more instructions."""
    (launch,) = read_capture(CAPTURE).launches
    ran = strided(THIN, step=step, size=32)
    lines = {one.operation.name: one.line for one in ran.operations}
    opcodes = [("LDG.E", lines["tt.load"]), ("STG.E", lines["tt.store"]), *((one, 0) for one in others), ("EXIT", 0)]
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
    assert evidence(1).launch.parts[SHARED] == pytest.approx(CTAS * (WARPS + 1) / SM_CYCLES)
    assert evidence(8).launch.parts[SHARED] == pytest.approx(CTAS * (WARPS + 1) * 8 / SM_CYCLES)


@pytest.mark.parametrize(
    ("others", "unclear"),
    [((), 0), (("SHFL.BFLY", "LDL", "STL.64"), 0), (("LDS",), 31), (("LDSM.16.M88.4",), 28), (("LDS.128",), 28)],
)
def test_accesses_to_shared_memory_may_conflict(others: tuple[str, ...], unclear: int) -> None:
    """Each lane may access another row of the same bank; those of a matrix have eight rows."""
    launch = evidence(1, *others).launch
    assert launch.most is not None
    assert launch.most[SHARED] == pytest.approx(launch.parts[SHARED] + CTAS * WARPS * unclear / SM_CYCLES)

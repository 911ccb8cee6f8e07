"""Branches of machine code that may split a warp, and those that cannot."""

from __future__ import annotations

import pytest

from kprof_inject.analysis.evidence.block_flow import BlockFlow
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction

LOOP, ELSEWHERE = 5, 9
"""Lines of ``scf.for``, and of another operation."""


def flow_of(guard: str, inside: str) -> BlockFlow:
    """Return the flow of a loop of one block, and of the branch before it, which has another operation's line."""
    opcodes = [
        (guard, "P1", ELSEWHERE, (4,) if guard == "BRA" else ()),
        ("FADD", "", ELSEWHERE, ()),
        (inside, "", LOOP, ()),
        ("BRA", "P1", LOOP, (2,)),
        ("EXIT", "", ELSEWHERE, ()),
    ]
    code = MachineFunction(
        "k",
        tuple(
            Instruction(
                number * INSTRUCTION_BYTES,
                opcode,
                "",
                predicate,
                line,
                targets=tuple(target * INSTRUCTION_BYTES for target in targets),
            )
            for number, (opcode, predicate, line, targets) in enumerate(opcodes)
        ),
    )
    return BlockFlow(code, blocks_of(code), {LOOP})


@pytest.mark.parametrize(
    ("guard", "inside", "is_clear"),
    [("BRA", "BAR", True), ("BRA", "FMUL", False), ("EXIT", "BAR", False)],
)
def test_a_branch_around_a_barrier_is_taken_by_all_warps_or_none(guard: str, inside: str, is_clear: bool) -> None:
    """Warps that exit are not waited for."""
    assert (not flow_of(guard, inside).unclear) == is_clear

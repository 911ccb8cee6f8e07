"""Branches that all threads of a warp take the same way."""

from __future__ import annotations

import pytest

from kprof_inject.machine_code.control_flow import has_uniform_branch
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction


def block(*lines: str) -> list[Instruction]:
    """Return instructions, each as *@P0 OPCODE operands*."""
    found = []
    for number, line in enumerate(lines):
        predicate, rest = line.split(" ", 1) if line.startswith("@") else ("", line)
        opcode, _, operands = rest.partition(" ")
        found.append(Instruction(number * INSTRUCTION_BYTES, opcode, operands, predicate))
    return found


@pytest.mark.parametrize(
    ("lines", "is_uniform"),
    [
        (("ULDC UR5, c[0x0][0x220]", "IMAD.U32 R0, RZ, RZ, UR5", "ISETP.GT.U32.AND P1, PT, R0, RZ, PT"), True),
        (("S2R R3, SR_CTAID.X", "ISETP.GE.AND P1, PT, R3, 0x7, PT"), True),
        (("LDC.64 R2, c[0x0][0x210]", "ISETP.NE.U32.AND P1, PT, R3, RZ, PT"), True),
        (("UISETP.GE.AND UP0, UPT, UR4, 0x1, UPT", "PLOP3.LUT P1, PT, PT, PT, UP0, 0x80, 0x0"), True),
        (("S2R R3, SR_TID.X", "ISETP.GE.AND P1, PT, R3, 0x7, PT"), False),
        # ``PLOP3`` has two results, though more predicates follow.
        (("S2R R3, SR_TID.X", "ISETP.GE.AND P2, PT, R3, 0x7, PT", "PLOP3.LUT P1, PT, P2, PT, PT, 0x80, 0x0"), False),
        (("LDG.E R3, desc[UR6][R4.64]", "ISETP.GE.AND P1, PT, R3, 0x7, PT"), False),
        # One of the two ways into ``R3`` is unknown, and so is what comes from before the block.
        (("MOV R3, UR4", "@P2 MOV R3, UR5", "ISETP.GE.AND P1, PT, R3, 0x7, PT"), False),
        (("ISETP.GE.AND P1, PT, R3, 0x7, PT",), False),
        (("NOP",), False),
        # The last of several writes counts; a wide one has the registers after the first, too.
        (("S2R R3, SR_TID.X", "MOV R3, UR4", "ISETP.GE.AND P1, PT, R3, 0x7, PT"), True),
        (("MOV R3, UR4", "LDG.E.64 R2, desc[UR6][R4.64]", "ISETP.GE.AND P1, PT, R3, 0x7, PT"), False),
        (("MOV R3, UR4", "LDG.E.128 R0, desc[UR6][R4.64]", "ISETP.GE.AND P1, PT, R3, 0x7, PT"), False),
        # The carry is a result, too.
        (("S2R R8, SR_TID.X", "IADD3 R2, P1, R8, 0x4, RZ"), False),
        (("IADD3 R2, P1, RZ, UR4, RZ",), True),
    ],
)
def test_a_branch_is_uniform_if_its_block_shows_that(lines: tuple[str, ...], is_uniform: bool) -> None:
    assert has_uniform_branch(block(*lines, "@P1 BRA `(.L_x_1)")) == is_uniform


def test_other_ends_have_no_condition() -> None:
    assert not has_uniform_branch(block("BRA `(.L_x_1)"))
    assert has_uniform_branch(block("@UP0 BRA `(.L_x_1)"))


def test_long_chains_are_given_up() -> None:
    steps = [f"IADD3 R{number + 1}, R{number}, 0x1, RZ" for number in range(30)]
    assert not has_uniform_branch(block("MOV R0, UR4", *steps, "ISETP.GE.AND P1, PT, R30, 0x7, PT", "@P1 BRA x"))

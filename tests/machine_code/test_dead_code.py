"""Instructions that compute predicates of accesses and nothing else."""

from __future__ import annotations

import pytest

from kprof_inject.machine_code.dead_code import dead_without_predicates
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, InstructionSet, MachineFunction

MASKED = 7
ACCESSES = ("LDG", "STG", "LDGSTS", "EXIT", "BRA")


def function(*lines: str, line: int = MASKED) -> MachineFunction:
    """Return instructions, each as *@P0 OPCODE operands*; accesses, exits and branches belong to ``line``.

    A branch has the index of its target.
    """
    found = []
    for number, text in enumerate(lines):
        predicate, rest = text.split(" ", 1) if text.startswith("@") else ("", text)
        opcode, _, operands = rest.partition(" ")
        targets = (int(operands) * INSTRUCTION_BYTES,) if opcode == "BRA" else ()
        is_access = opcode.partition(".")[0] in ACCESSES
        address = number * INSTRUCTION_BYTES
        found.append(Instruction(address, opcode, operands, predicate, line if is_access else 1, targets=targets))
    return MachineFunction("k", tuple(found))


INDEX = ("S2R R0, SR_TID.X", "LDC.64 R2, c[0x0][0x210]")
SUM = ("FADD R8, R4, R4", "STG.E desc[UR4][R2.64], R8", "EXIT")


@pytest.mark.parametrize(
    ("lines", "dead"),
    [
        # The comparison, its index, and the value for disabled lanes.
        (
            ("VIADD R1, R0, 0x1", "ISETP.GE.AND P0, PT, R1, UR6, PT", "MOV R4, RZ", "@!P0 LDG.E R4, desc[UR4][R2.64]"),
            {2, 3, 4},
        ),
        # The index is an address, too.
        (
            ("IMAD.WIDE R2, R0, 0x4, R2", "ISETP.GE.AND P0, PT, R0, UR6, PT", "@!P0 LDG.E R4, desc[UR4][R2.64]"),
            {3},
        ),
        # A select needs the comparison.
        (
            (
                "ISETP.GE.AND P0, PT, R0, UR6, PT",
                "@!P0 LDG.E R4, desc[UR4][R2.64]",
                "SEL R5, R4, RZ, P0",
                "STS [R0], R5",
            ),
            set(),
        ),
        # Predicates that were kept in a register.
        (
            (
                "ISETP.GE.AND P3, PT, R0, UR6, PT",
                "P2R R9, PR, RZ, 0x8",
                "ISETP.NE.AND P1, PT, R9, RZ, PT",
                "@P1 LDG.E R4, desc[UR4][R2.64]",
            ),
            {2, 3, 4},
        ),
        # A copy takes its predicate as an operand.
        (
            (
                "ISETP.GE.AND P0, PT, R0, UR6, PT",
                "SEL R9, RZ, 0x10, P0",
                "ISETP.NE.U32.AND P1, PT, R9, RZ, PT",
                "LDGSTS.E.BYPASS.128 [R0], desc[UR4][R2.64], P1",
            ),
            {2, 3, 4},
        ),
        # Half of a wide constant is needed: the load overwrites the other one.
        (
            ("ISETP.GE.AND P0, PT, R0, UR6, PT", "CS2R R4, SRZ", "@P0 LDG.E R5, desc[UR4][R2.64]"),
            {2},
        ),
        # A load that is never executed overwrites nothing.
        (("MOV R4, RZ", "@!PT LDG.E R4, desc[UR4][R2.64]"), set()),
        # A store may be skipped by an exit or a branch.
        (("ISETP.GE.AND P0, PT, R0, UR6, PT", "LDG.E R4, desc[UR4][R2.64]", "@P0 EXIT"), {2, 4}),
        (("ISETP.GE.AND P0, PT, R0, UR6, PT", "LDG.E R4, desc[UR4][R2.64]", "@P0 BRA 5"), {2, 4}),
        # The tensor cores may read any register.
        (
            (
                "VIADD R1, R0, 0x1",
                "HGMMA.64x64x16.F32 R24, gdesc[UR8], R24",
                "ISETP.GE.AND P0, PT, R1, UR6, PT",
                "@P0 LDG.E R4, desc[UR4][R2.64]",
            ),
            {4},
        ),
    ],
)
def test_what_only_predicates_need(lines: tuple[str, ...], dead: set[int]) -> None:
    assert dead_without_predicates(function(*INDEX, *lines, *SUM), {MASKED}) == dead
    assert dead_without_predicates(function(*INDEX, *lines, *SUM), {MASKED + 1}) == set()


def test_a_loop_whose_next_iteration_needs_a_value() -> None:
    """The counter is compared for the mask, and increased; the branch back is no skip."""
    loop = (
        "VIADD R1, R1, 0x1",
        "ISETP.GE.AND P0, PT, R1, UR6, PT",
        "@P0 LDG.E R4, desc[UR4][R2.64]",
        "ISETP.GE.AND P1, PT, R1, UR7, PT",
        "@!P1 BRA 2",
    )
    assert dead_without_predicates(function(*INDEX, *loop, *SUM), {MASKED}) == {3}


def test_the_code_of_amd() -> None:
    code = (Instruction(0, "v_mov_b32", "v0, 0"), Instruction(1, "s_endpgm", ""))
    assert not dead_without_predicates(MachineFunction("k", code, InstructionSet.GFX9), {1})

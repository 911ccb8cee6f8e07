"""Lines of one compilation for the instructions of another, and the widths of accesses."""

from __future__ import annotations

from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction, with_lines_of
from kprof_inject.machine_code.units import global_access, min_wavefronts


def function(*instructions: tuple[str, int]) -> MachineFunction:
    made = (
        Instruction(index * INSTRUCTION_BYTES, opcode, "", line=line)
        for index, (opcode, line) in enumerate(instructions)
    )
    return MachineFunction("kernel", tuple(made))


def lines(one: MachineFunction) -> list[int]:
    return [instruction.line for instruction in one.instructions]


def test_the_same_instructions_have_the_same_lines() -> None:
    other = function(("LDG.E", 3), ("FADD", 4), ("STG.E", 5))
    assert lines(with_lines_of(function(("LDG.E", 0), ("FADD", 0), ("STG.E", 0)), other)) == [3, 4, 5]


def test_an_instruction_that_the_other_lacks_has_no_line() -> None:
    other = function(("LDG.E", 3), ("FADD", 4), ("STG.E", 5))
    own = function(("LDG.E", 9), ("MOV", 9), ("FADD", 9), ("STG.E", 9))
    assert lines(with_lines_of(own, other)) == [3, 0, 4, 5]


def test_widths_of_accesses() -> None:
    widths = {
        "LDG.E": ("load", 4),
        "LDG.E.128.CONSTANT": ("load", 16),
        "LDG.E.U16": ("load", 2),
        "LDGSTS.E.BYPASS.LTC128B.64": ("load", 8),
        "STG.E.U8": ("store", 1),
        "LDS.128": None,
        "ATOMG.E.ADD": None,
    }
    assert {opcode: global_access(Instruction(0, opcode, "")) for opcode in widths} == widths


def test_cycles_of_the_l1() -> None:
    wavefronts = {
        "SHFL.BFLY": 1,
        "STS.U16": 1,
        "STS.128": 4,
        "LDG.E.64": 2,
        "LDSM.16.M88": 1,
        "LDSM.16.M88.4": 4,
        "STSM.16.MT88.2": 2,
        "FADD": 0,
    }
    assert {opcode: min_wavefronts(Instruction(0, opcode, "")) for opcode in wavefronts} == wavefronts


def test_a_load_that_is_never_executed_accesses_nothing() -> None:
    assert global_access(Instruction(0, "LDG.E", "", predicate="@!PT")) is None

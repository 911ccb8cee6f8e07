"""Work that vanished together with what was removed."""

from __future__ import annotations

from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, Instruction, MachineFunction
from kprof_inject.machine_code.vanished import vanished


def function(**lines: str) -> MachineFunction:
    """A function with these opcodes in each line: ``l12="FADD FADD"``."""
    code = [(int(name[1:]), opcode) for name, opcodes in lines.items() for opcode in opcodes.split()]
    return MachineFunction(
        "k",
        tuple(
            Instruction(number * INSTRUCTION_BYTES, opcode, "", line=line) for number, (line, opcode) in enumerate(code)
        ),
    )


BEFORE = function(l1="LDG.E", l2="MUFU.EX2 FMUL FMUL", l3="FADD FADD IMAD MOV", l4="STG.E BAR.SYNC")


def test_removed_lines_may_lose_all() -> None:
    assert vanished(BEFORE, function(l1="LDG.E", l3="FADD FADD IMAD MOV", l4="STG.E BAR.SYNC"), {2}) is None


def test_other_lines_may_not() -> None:
    lost = vanished(BEFORE, function(l1="LDG.E", l2="MUFU.EX2 FMUL FMUL", l4="STG.E"), {1})
    assert lost is not None
    assert str(lost) == "2 FADD of TTGIR line 3"


def test_addresses_moves_and_barriers_do_not_count() -> None:
    assert vanished(BEFORE, function(l1="LDG.E", l2="MUFU.EX2 FMUL FMUL", l3="FADD FADD", l4="STG.E"), {1}) is None


def test_what_belongs_to_another_line_now_has_not_vanished() -> None:
    assert vanished(BEFORE, function(l1="LDG.E FADD FADD", l2="MUFU.EX2 FMUL FMUL", l4="STG.E"), {1}) is None
    assert vanished(BEFORE, function(l2="MUFU.EX2 FMUL FMUL", l4="FADD FADD STG.E"), {1}) is None


def test_a_part_of_the_others_may_vanish() -> None:
    many = function(l1="LDG.E", l3="FADD " * 100)
    assert vanished(many, function(l3="FADD " * 98), {1}) is None
    lost = vanished(many, function(l3="FADD " * 97), {1})
    assert lost is not None
    assert lost.count == 3

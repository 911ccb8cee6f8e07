"""Instructions of nvdisasm's listings: their lines, pipelines, and the widths of accesses."""

from __future__ import annotations

import pytest
from listing import FILE, encoded, function, instruction, listing

from kprof_inject.errors import KprofError
from kprof_inject.machine_code.instructions import Instruction, MachineFunction, read_nvdisasm, with_lines_of
from kprof_inject.machine_code.units import Pipeline, global_access, min_wavefronts, pipeline_of


def test_an_instruction_has_its_opcode_its_line_and_its_control_bits() -> None:
    found = function(
        "#17",
        ("@!P0 LDG.E.128 R4, desc[UR8][R2.64+0x10]", encoded(stall=4, result=2, operand=5, awaited=(0, 3))),
        "#33",
        "IADD3 R1, R1, 0x8, RZ",
        "EXIT",
    )
    assert found.name == "kernel"
    assert found.instructions == (
        Instruction(0, "LDG.E.128", "R4, desc[UR8][R2.64+0x10]", "@!P0", 17, 4, 2, 5, (0, 3)),
        Instruction(16, "IADD3", "R1, R1, 0x8, RZ", "", 33, 1),
        Instruction(32, "EXIT", "", "", 33, 1),
    )
    assert [one.operation for one in found.instructions] == ["LDG", "IADD3", "EXIT"]


def test_branches_have_targets_and_other_labels_are_none() -> None:
    found = function(
        "BSSY B0, `(.L_x_1)",
        ".L_x_0:",
        "@P0 BRA `(.L_x_0)",
        "BRA.U !UP0, `(.L_x_1)",
        ".L_x_1:",
        'BRX R2 -0x1f0   (*"BRANCH_TARGETS .L_x_0,.L_x_1"*)',
        "BRA `(.L_x_9)",
        ".L_x_9:",
    )
    assert [one.targets for one in found.instructions] == [(), (16,), (48,), (16, 48), ()]
    assert [one.is_branch for one in found.instructions] == [False, True, True, True, True]


def test_lines_of_other_files_are_unknown() -> None:
    text = listing("#17", "EXIT", "#18", "NOP").replace(f'{FILE}", line 18', 'math.h", line 18')
    (found,) = read_nvdisasm(text, FILE)
    assert [one.line for one in found.instructions] == [17, 0]


def test_each_section_is_a_function_and_data_is_none() -> None:
    data = '\t.section\t.nv.info,"",@"SHT_CUDA_INFO"\n\t.byte 0x04\n'
    text = data + listing("#1", "NOP", "EXIT") + listing("RET.REL.NODEC R2 `(kernel)", name="helper")
    found = read_nvdisasm(text, FILE)
    assert [(one.name, len(one.instructions), one.instructions[0].line) for one in found] == [
        ("kernel", 2, 1),
        ("helper", 1, 0),
    ]
    assert read_nvdisasm(data, FILE) == []
    assert read_nvdisasm("", FILE) == []


DAMAGED = (
    instruction(16, "NOP", encoded()),
    instruction(0, "NOP", encoded()).replace(" ;", ""),
    instruction(0, "NOP", encoded()).splitlines()[0],
    instruction(0, "nop", encoded()),
    "        /*0000*/\n",
)


@pytest.mark.parametrize("damaged", DAMAGED)
def test_what_is_no_instruction_is_an_error_with_its_line(damaged: str) -> None:
    with pytest.raises(KprofError, match="line 4 of the disassembly is no instruction"):
        read_nvdisasm(listing() + damaged, FILE)


@pytest.mark.parametrize(
    ("opcode", "pipeline"),
    [
        ("HGMMA.64x128x16.F32", Pipeline.TENSOR),
        ("IMAD.WIDE.U32", Pipeline.FMA),
        ("HFMA2", Pipeline.FP16),
        ("HADD2.F32", Pipeline.FP16),
        ("HFMA2.MMA", Pipeline.FP16_MMA),
        ("HFMA2.MMA.BF16_V2", Pipeline.FP16_MMA),
        ("DFMA", Pipeline.FP64),
        ("LOP3.LUT", Pipeline.ALU),
        ("MUFU.EX2", Pipeline.XU),
        ("LDGSTS.E.BYPASS.128", Pipeline.LSU),
        ("UTMALDG.2D", Pipeline.TMA),
        ("UIADD3", Pipeline.UNIFORM),
        ("BAR.SYNC.DEFER_BLOCKING", Pipeline.CONTROL),
        ("CS2R", Pipeline.ALU),
        ("VIADD", Pipeline.FMA),
        ("NEVERSEEN.X", Pipeline.OTHER),
    ],
)
def test_an_instruction_is_executed_by_a_pipeline(opcode: str, pipeline: Pipeline) -> None:
    assert pipeline_of(Instruction(0, opcode, "")) is pipeline


OTHER = function("#3", "LDG.E", "#4", "FADD", "#5", "STG.E")


def lines(one: MachineFunction) -> list[int]:
    return [instruction.line for instruction in one.instructions]


def test_the_same_instructions_have_the_same_lines() -> None:
    assert lines(with_lines_of(function("LDG.E", "FADD", "STG.E"), OTHER)) == [3, 4, 5]


def test_an_instruction_that_the_other_lacks_has_no_line() -> None:
    assert lines(with_lines_of(function("#9", "LDG.E", "MOV", "FADD", "STG.E"), OTHER)) == [3, 0, 4, 5]


@pytest.mark.parametrize(
    "damaged",
    [
        Instruction(16, "FADD", ""),
        Instruction(0, "BRA", "", targets=(16,)),
        Instruction(0, "BRA", "", targets=(8,)),
        Instruction(0, "FADD", "", line=-1),
        Instruction(0, "FADD", "", awaited=(6,)),
        Instruction(0, "FADD", "", result_scoreboard=7),
    ],
)
def test_a_function_that_no_compiler_makes_is_refused(damaged: Instruction) -> None:
    with pytest.raises(ValueError, match="instruction"):
        MachineFunction("kernel", (damaged,))


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

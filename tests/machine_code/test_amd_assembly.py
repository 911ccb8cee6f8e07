"""AMD's assembly is read as instructions."""

from __future__ import annotations

import msgspec
import pytest
from listing import FILE, amd_function, assembly, function

from kprof_inject.errors import KprofError
from kprof_inject.machine_code.control_flow import blocks_of, loops_of
from kprof_inject.machine_code.instructions import Instruction, InstructionSet, MachineFunction, read_assembly
from kprof_inject.machine_code.lines import summary_of
from kprof_inject.machine_code.units import Pipeline, pipeline_of


def test_an_instruction_has_its_opcode_its_operands_and_its_line() -> None:
    found = amd_function(
        "s_nop 0",
        "#17",
        "v_exp_f32_e32 v1, v2                    ; a comment",
        "buffer_load_dwordx4 v[2:5], v1, s[4:7], 0 offen offset:16",
        "#0",
        "v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf",
        ";;#ASMSTART",
        "s_endpgm // written by hand",
    )
    assert (found.name, found.instruction_set) == ("kernel", InstructionSet.GFX9)
    assert found.instructions == (
        Instruction(0, "s_nop", "0"),
        Instruction(1, "v_exp_f32", "v1, v2", line=17),
        Instruction(2, "buffer_load_dwordx4", "v[2:5], v1, s[4:7], 0 offen offset:16", line=17),
        Instruction(3, "v_mov_b32_dpp", "v1, v2 quad_perm:[1,0,3,2] row_mask:0xf"),
        Instruction(4, "s_endpgm", ""),
    )


def test_lines_of_other_files_are_unknown() -> None:
    text = assembly("#17", "s_nop 0", "#18", "s_nop 1").replace("\t.loc\t1 18", '\t.file\t2 "math.h"\n\t.loc\t2 18')
    (found,) = read_assembly(text, f"elsewhere/{FILE}")
    assert [one.line for one in found.instructions] == [17, 0]


def test_each_function_has_its_own_lines_and_what_is_between_them_is_none() -> None:
    text = assembly("#3", "s_endpgm", name='"a helper(2,)"') + assembly("s_setpc_b64 s[30:31]")
    found = read_assembly(text, FILE)
    assert [(one.name, len(one.instructions), one.instructions[0].line) for one in found] == [
        ("a helper(2,)", 1, 3),
        ("kernel", 1, 0),
    ]


BRANCHES = (
    "s_cbranch_scc1 .LBB0_2",
    ".LBB0_1:",
    "s_nop 0",
    "s_cbranch_execnz .LBB0_1",
    "s_branch .LBB0_3",
    ".LBB0_2:",
    "s_setpc_b64 s[30:31]",
    "s_swappc_b64 s[30:31], s[12:13]",
    ".LBB0_3:",
    "s_endpgm",
)


def test_branches_have_targets_and_only_conditional_ones_fall_through() -> None:
    found = amd_function(*BRANCHES)
    assert [one.targets for one in found.instructions] == [(4,), (), (1,), (6,), (), (), ()]
    blocks = blocks_of(found)
    assert [(block.first, block.successors) for block in blocks] == [
        (0, (3, 1)),
        (1, (1, 2)),
        (3, (5,)),
        (4, ()),
        (5, (5,)),
        (6, ()),
    ]
    (loop,) = loops_of(blocks)
    assert loop.header == 1
    assert [one.lines for one in summary_of(found).loops] == [(0,)]


@pytest.mark.parametrize("label", ["1b", ".LBB0_9"])
def test_a_branch_to_a_place_that_is_not_known_has_no_target(label: str) -> None:
    branch, _ = amd_function(f"s_cbranch_scc1 {label}", "1:", "s_endpgm", ".LBB0_9:").instructions
    assert (branch.is_branch, branch.targets) == (True, ())


@pytest.mark.parametrize("damaged", ["V_ADD_F32 v1, v1, v2", "{ v_nop }"])
def test_what_is_no_instruction_is_an_error_with_its_line(damaged: str) -> None:
    with pytest.raises(KprofError, match="line 6 of the assembly is no instruction"):
        amd_function(damaged)


@pytest.mark.parametrize(
    ("processor", "instruction_set"),
    [
        ("gfx90a", InstructionSet.GFX9),
        ("gfx950:sramecc+:xnack-", InstructionSet.GFX9),
        ("gfx1030", InstructionSet.GFX10),
        ("gfx1100", InstructionSet.GFX10),
        ("gfx1201", InstructionSet.GFX12),
        ("gfx1250", InstructionSet.GFX12),
    ],
)
def test_a_processor_has_an_instruction_set(processor: str, instruction_set: InstructionSet) -> None:
    assert amd_function("s_endpgm", processor=processor).instruction_set is instruction_set


def test_an_unknown_processor_is_an_error() -> None:
    with pytest.raises(KprofError, match="the assembly is of gfx1310, whose waits are not known"):
        amd_function("s_endpgm", processor="gfx1310")
    with pytest.raises(KprofError, match="the assembly is of no processor"):
        read_assembly("", FILE)


def test_a_function_is_saved_with_its_instruction_set_unless_it_is_nvidias() -> None:
    found = amd_function(*BRANCHES)
    assert msgspec.json.decode(msgspec.json.encode(found), type=MachineFunction) == found
    assert list(msgspec.to_builtins(function("EXIT"))) == ["name", "instructions"]


@pytest.mark.parametrize(
    ("opcode", "pipeline"),
    [
        ("v_mfma_f32_32x32x8_f16", Pipeline.TENSOR),
        ("v_wmma_f32_16x16x16_f16", Pipeline.TENSOR),
        ("v_rcp_iflag_f32", Pipeline.XU),
        ("v_s_exp_f32", Pipeline.XU),
        ("v_fma_f64", Pipeline.ALU),
        ("v_dual_mul_f32", Pipeline.ALU),
        ("v_accvgpr_read_b32", Pipeline.ALU),
        ("ds_bpermute_b32", Pipeline.LSU),
        ("global_store_short_d16_hi", Pipeline.LSU),
        ("flat_load_ubyte", Pipeline.LSU),
        ("tensor_load_to_lds", Pipeline.TMA),
        ("s_load_dwordx2", Pipeline.UNIFORM),
        ("s_memtime", Pipeline.UNIFORM),
        ("s_waitcnt_vscnt", Pipeline.CONTROL),
        ("s_barrier", Pipeline.CONTROL),
        ("s_cbranch_vccz", Pipeline.CONTROL),
        ("buffer_wbinvl1_vol", Pipeline.CONTROL),
        ("buffer_gl0_inv", Pipeline.CONTROL),
        ("exp", Pipeline.OTHER),
    ],
)
def test_an_instruction_is_executed_by_a_pipeline(opcode: str, pipeline: Pipeline) -> None:
    assert pipeline_of(Instruction(0, opcode, "")) is pipeline

"""What the page shows of the machine code of each line of the TTGIR."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from altered import altered, report_of
from programs.child import REPO
from unpacked import unpacked

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.reader import read_capture
from kprof_inject.machine_code.instructions import Instruction, InstructionSet, MachineFunction
from kprof_inject.machine_code.units import Pipeline
from kprof_inject.report.html.code import MachineCode, launch_machine_code, ttgir_text
from kprof_inject.report.html.data import page_values
from kprof_inject.report.html.document import write_html
from kprof_inject.timeline.timeline import decode_launch

MATMUL = REPO / "tests/captures/matmul-three-stages"
WITHOUT_CODE = REPO / "tests/captures/matmul"


def analysis_of(capture: Path) -> LaunchAnalysis:
    return LaunchAnalysis.of(decode_launch(read_capture(capture).launches[0]))


@pytest.fixture(scope="module")
def matmul() -> LaunchAnalysis:
    """A capture of 256 CTAs of 4 warps, with 16 iterations of the loop."""
    return analysis_of(MATMUL)


def made_of(report: LaunchAnalysis, **options: int) -> MachineCode:
    made = launch_machine_code(report, **options)
    assert made is not None
    json.dumps(page_values(made), allow_nan=False)
    return made


def coded(report: LaunchAnalysis, *instructions: Instruction, **options: Any) -> LaunchAnalysis:
    return altered(report, machine_code=MachineFunction("k", instructions, **options))


def test_a_line_has_its_instructions_by_pipeline_and_how_often_they_are_executed(matmul: LaunchAnalysis) -> None:
    made, text = made_of(matmul), ttgir_text(matmul.timeline)
    assert text is not None
    [dot] = (line for line in made.lines if "warp_group_dot %" in text.lines[line.line - 1])
    assert dot.pipelines[Pipeline.TENSOR] > 0
    assert (made.warps, made.executed[dot.line]) == (256 * 4, 16 * 256 * 4 * dot.instructions)
    assert dot.line not in made.unknown
    assert sum(line.instructions for line in made.lines) == made.instructions
    numbers = {line.line for line in made.lines}
    assert any(line.awaited for line in made.lines)
    assert all(one.line in numbers for line in made.lines for one in line.awaited)


def test_a_store_that_some_warps_skip_has_a_lower_bound(matmul: LaunchAnalysis) -> None:
    made, text = made_of(matmul), ttgir_text(matmul.timeline)
    assert text is not None
    [store] = (line for line in made.lines if "tt.store" in text.lines[line.line - 1])
    assert made.executed[store.line] > 0
    assert 0 < made.unknown[store.line] < store.instructions


def test_the_page_lists_the_instructions_of_a_kernel_that_is_not_too_large(
    matmul: LaunchAnalysis, tmp_path: Path
) -> None:
    write_html(tmp_path / "page.html", report_of(matmul))
    [launch] = unpacked(tmp_path / "page.html")
    code = launch["sections"]["ttgir"]["machine_code"]
    assert code["instructions"] == len(code["listing"]["texts"]) == 896
    assert code["listing"]["texts"][0].startswith("LDC ")
    assert (code["listing"]["address_step"], code["listing"]["blocks"][0]) == (16, [0, 1024])
    assert made_of(matmul, max_listed=896).listing is not None
    large = made_of(matmul, max_listed=895)
    assert (large.instructions, large.listing, large.lines) == (896, None, made_of(matmul).lines)


def test_without_the_executed_operations_only_numbers_of_instructions_are_known(matmul: LaunchAnalysis) -> None:
    made = made_of(altered(matmul, executed=None))
    assert made.warps is None
    assert made.executed == {}
    assert sum(made.unknown.values()) == made.instructions
    assert made.listing is not None and {count for _, count in made.listing.blocks} == {None}


def test_an_instruction_has_its_predicate_and_operands(matmul: LaunchAnalysis) -> None:
    made = made_of(coded(matmul, Instruction(0, "LDG.E", "R4, [R2]", "@!P0", 30), Instruction(16, "EXIT", "")))
    assert made.listing is not None
    assert made.listing.texts == ["@!P0 LDG.E R4, [R2]", "EXIT"]
    assert [(line.line, line.pipelines) for line in made.lines] == [(0, {Pipeline.CONTROL: 1}), (30, {Pipeline.LSU: 1})]


def test_the_number_of_warps_is_unknown_if_the_first_block_is_a_loop(matmul: LaunchAnalysis) -> None:
    loop = (Instruction(0, "BRA", "`(.L_x_0)", "@P0", targets=(0,)), Instruction(16, "EXIT", ""))
    assert made_of(coded(matmul, *loop)).warps is None


def test_addresses_of_amd_count_instructions(matmul: LaunchAnalysis) -> None:
    code = (Instruction(0, "v_add_f32", "v0, v1, v2", line=20), Instruction(1, "s_endpgm", "", line=21))
    made = made_of(coded(matmul, *code, instruction_set=InstructionSet.GFX9))
    assert made.listing is not None
    assert (made.listing.address_step, made.lines[0].pipelines) == (1, {Pipeline.ALU: 1})


def test_captures_without_machine_code_have_none(matmul: LaunchAnalysis) -> None:
    assert launch_machine_code(analysis_of(WITHOUT_CODE)) is None
    assert launch_machine_code(coded(matmul)) is None


def test_texts_of_a_damaged_capture_do_no_harm(matmul: LaunchAnalysis) -> None:
    made = made_of(coded(matmul, Instruction(0, "EXIT\x1b]0;\u202e", "\x00")))
    assert page_values(made)["listing"]["texts"] == ["EXIT ]0;   "]

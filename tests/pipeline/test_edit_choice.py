"""The choice of edits: by findings, by the limit, next to the present options, around what won, and grids."""

from __future__ import annotations

import pytest
from loops_in_ttir import LINE_10, LINE_20, SUM, dots
from msgspec.structs import replace

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.limits.limit import Limit
from kprof_inject.capture.edits import Edit
from kprof_inject.capture.resources import Resources
from kprof_inject.capture.schema import DumpedKernelRecord, Target
from kprof_inject.errors import KprofError
from kprof_inject.pipeline import edit_choice
from kprof_inject.pipeline.edit_choice import MAX_BUILDS, edits_after, edits_for, named_grid
from kprof_inject.runtime.worker.edit import KernelToEdit

TTGIR = """module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%in: !tt.ptr<f32>, %out: !tt.ptr<f32>) {
    %column = tt.get_program_id x : i32
    %row = tt.get_program_id y : i32
    %x = tt.load %in : !tt.ptr<f32>
    tt.store %out, %x : !tt.ptr<f32>
    tt.return
  }
}
"""
KERNEL = KernelToEdit(
    DumpedKernelRecord(
        name="k",
        override_key="K",
        file_name="k",
        target=Target("cuda", 90),
        options={"num_warps": 4, "num_stages": 3, "maxnreg": None},
        triton_version="3.6.0",
    ),
    TTGIR,
    "scf.for",
    Resources(registers=168, shared_bytes=0),
)


def finding(rule: str, share: float) -> Finding:
    return Finding(rule, None, share, "", "", {})


def texts(proposals: list[edit_choice.Proposal]) -> list[str]:
    return [", ".join(map(str, one.edits)) for one in proposals]


def test_without_findings_the_options_next_to_the_present_ones() -> None:
    found = edits_for((), None, KERNEL)
    assert texts(found) == [
        *("num_stages=4", "num_warps=8", "num_warps=2", "num_stages=2", "maxnreg=128"),
        "env=DISABLE_LLVM_OPT=disable-lsr",
    ]
    assert {(one.reason, one.predicted) for one in found} == {("neighbour", None)}


def test_if_registers_spill_fewer_of_them_are_tried_last() -> None:
    kernel = replace(KERNEL, clean=replace(KERNEL.clean, spills=100))
    assert texts(edits_for((), None, kernel))[-2:] == ["num_warps=2", "maxnreg=128"]
    found = texts(edits_for([finding("exposed-loads", 0.4)], None, kernel))
    assert found.index("num_warps=8") < found.index("env=DISABLE_LLVM_OPT=disable-lsr") < found.index("num_warps=2")


def test_findings_come_first_with_their_bound() -> None:
    found = edits_for([finding("l2-reuse", 0.4), finding("few-warps", 0.2)], None, KERNEL)
    assert texts(found)[:4] == [
        *("program_order=grouped:8", "program_order=grouped:4", "program_order=grouped:16", "program_order=reversed")
    ]
    assert (found[0].reason, found[0].predicted) == ("l2-reuse", 0.4)
    assert next(one for one in found if one.edits == (Edit("num_warps", "8"),)).predicted == 0.2
    assert len(found) <= MAX_BUILDS
    assert len({one.edits for one in found}) == len(found)


def test_only_what_a_finding_advises_has_its_bound() -> None:
    found = edits_for([finding("low-fill", 0.9), finding("uneven-ctas", 0.3)], None, KERNEL)
    predicted = {text: (one.reason, one.predicted) for text, one in zip(texts(found), found, strict=True)}
    assert predicted["num_warps=8"] == ("low-fill", None)
    assert predicted["program_order=reversed"] == ("uneven-ctas", 0.3)
    orders = replace(finding("uneven-ctas", 0.3), figures={"reversed": 0.1, "columns": -0.2})
    found = edits_for([orders], None, KERNEL)
    gains = {text: one.predicted for text, one in zip(texts(found), found, strict=True)}
    assert (gains["program_order=reversed"], gains["program_order=columns"]) == (0.1, 0.0)


def test_the_limit_proposes_another_order() -> None:
    limit = Limit("DRAM", ("DRAM",), "DRAM", {"DRAM": 0.9})
    assert texts(edits_for((), limit, KERNEL))[0] == "program_order=grouped:8"


def of_ttir(ttir: str) -> KernelToEdit:
    """The kernel with this TTIR."""
    return replace(KERNEL, ttir=ttir)


@pytest.mark.parametrize(
    ("rule", "kernel", "edit"),
    [
        ("exposed-loads", of_ttir(SUM), "loop_stages=2"),
        ("first-iterations", of_ttir(dots(LINE_10, LINE_20)), "loop_stages=10:2"),
    ],
)
def test_a_finding_proposes_what_suits_the_kernel(rule: str, kernel: KernelToEdit, edit: str) -> None:
    found = edits_for([finding(rule, 0.3)], None, kernel)
    assert (edit, rule) in [(text, one.reason) for text, one in zip(texts(found), found, strict=True)]
    assert len(found) <= MAX_BUILDS


def test_after_an_order_that_wins_the_others_are_tried() -> None:
    winner = Edit("program_order", "grouped:8")
    assert "program_order=grouped:4" in texts(edits_after([(winner,)], KERNEL, [(winner,)]))


def test_what_the_user_asks_for_is_tried_alone_and_together() -> None:
    asked = ((Edit("num_warps", "8"),), (Edit("num_stages", "4"),))
    assert texts(edits_for([finding("l2-reuse", 0.4)], None, KERNEL, asked)) == [
        *("num_warps=8", "num_stages=4", "num_warps=8, num_stages=4")
    ]
    two_values = ((Edit("num_warps", "8"), Edit("num_stages", "4")), (Edit("num_warps", "2"),))
    assert texts(edits_for((), None, KERNEL, two_values)) == ["num_warps=8, num_stages=4", "num_warps=2"]


def test_the_best_is_combined_and_moved_further() -> None:
    won = [(Edit("num_stages", "4"),), (Edit("num_warps", "8"),), (Edit("num_stages", "5"),)]
    found = texts(edits_after(won, KERNEL, [*won, (Edit("num_stages", "2"),)]))
    assert found[0] == "num_stages=4, num_warps=8"
    assert "num_stages=4, num_warps=2" in found
    assert "num_stages=5" not in found, "it was tried"
    assert len(found) <= MAX_BUILDS


def test_all_findings_come_before_what_else_one_proposes() -> None:
    found = texts(edits_for([finding("too-few-stages", 0.4), finding("l2-reuse", 0.2)], None, of_ttir(SUM)))
    assert found.index("program_order=grouped:8") < found.index("loop_stages=2")


# Grids that users name

NUMBERS = {"M": 1000, "BLOCK_M": 64, "GROUP": 8}


@pytest.mark.parametrize(
    ("expression", "grid"),
    [
        ("cdiv(M, BLOCK_M)", (16, 1, 1)),
        ("triton.cdiv(M, BLOCK_M) * 2, GROUP", (32, 8, 1)),
        ("(M // BLOCK_M - 1, M % 7, max(GROUP, 2))", (14, 6, 8)),
    ],
)
def test_an_expression(expression: str, grid: tuple[int, int, int]) -> None:
    assert named_grid(expression, NUMBERS) == grid


@pytest.mark.parametrize(
    ("expression", "message", "column"),
    [
        ("cdiv(M, BLOCK_N)", "BLOCK_N is no number of the launch", 9),
        ("M // 0", "cannot compute", 1),
        ("M - 1000", "is none of one to three sizes", 1),
        ("__import__('os').system('x')", "a grid cannot have this", 1),
        ("M ** 9", "a grid cannot have this", 1),
        ("M +", "cannot compute", 1),
    ],
)
def test_what_is_no_grid(expression: str, message: str, column: int) -> None:
    with pytest.raises(KprofError, match=message) as error:
        named_grid(expression, NUMBERS)
    assert error.value.where is not None
    assert error.value.where.column == column

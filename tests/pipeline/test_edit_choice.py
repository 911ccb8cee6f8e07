"""The choice of edits: by findings, by the limit, next to the present options, and around what won."""

from __future__ import annotations

import pytest

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import RULES
from kprof_inject.analysis.roofs.limits import Limit
from kprof_inject.capture.edits import Edit
from kprof_inject.capture.schema import DumpedKernelRecord, Resources, Target
from kprof_inject.pipeline import edit_choice
from kprof_inject.pipeline.edit_choice import MAX_BUILDS, edits_after, edits_for
from kprof_inject.runtime.experiments.edits.edit import KernelToEdit
from kprof_inject.runtime.experiments.edits.kinds import KINDS

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
        options={"num_warps": 4, "num_stages": 3, "maxnreg": None, "enable_fp_fusion": True},
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


def test_findings_come_first_with_their_bound() -> None:
    found = edits_for([finding("l2-reuse", 0.4), finding("few-warps", 0.2)], None, KERNEL)
    assert texts(found)[:4] == [
        *("program_order=grouped:8", "program_order=grouped:4", "program_order=grouped:16", "program_order=reversed")
    ]
    assert (found[0].reason, found[0].predicted) == ("l2-reuse", 0.4)
    assert next(one for one in found if one.edits == (Edit("num_warps", "8"),)).predicted == 0.2
    assert len(found) <= MAX_BUILDS
    assert len({one.edits for one in found}) == len(found)


def test_a_rule_without_edits_proposes_none() -> None:
    assert texts(edits_for([finding("news", 0.9)], None, KERNEL)) == texts(edits_for((), None, KERNEL))


def test_the_limit_proposes_hints_for_caches() -> None:
    limit = Limit("DRAM", ("DRAM",), "DRAM", {"DRAM": 0.9})
    assert texts(edits_for((), limit, KERNEL))[0] == "cache=stores:evict_first"


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


def test_after_no_win_nothing_is_combined() -> None:
    assert edits_after([], KERNEL, [(Edit("num_stages", "4"),)]) == []


@pytest.mark.parametrize("rule", edit_choice._BY_RULE)
def test_each_row_of_the_table_names_kinds(rule: str) -> None:
    for name, _ in edit_choice._BY_RULE[rule]:
        assert name in KINDS


def test_most_rules_have_edits() -> None:
    assert len(RULES.keys() & edit_choice._BY_RULE.keys()) > len(RULES) / 2

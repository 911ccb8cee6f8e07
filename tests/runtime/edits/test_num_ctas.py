"""Clusters: machine code for each number of CTAs, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from edited_kernels import built, edited, kernel_to_edit
from loops_in_ttir import DOTS, SUM

from kprof_inject.runtime.experiments.edits.edit import EditRefused
from kprof_inject.runtime.experiments.edits.kinds import KINDS

pytestmark = pytest.mark.triton


def with_line(line: str) -> str:
    return DOTS.replace("    tt.return", f"    {line}\n    tt.return")


ATOMIC = (
    "%one = arith.constant 1.0 : f32\n    %true = arith.constant true\n"
    "    %old = tt.atomic_rmw fadd, acq_rel, gpu, %c, %one, %true : (!tt.ptr<f32>, f32, i1) -> f32"
)
ASM = (
    '%id = tt.elementwise_inline_asm "mov.u32 $0, %ctaid.x;" '
    '{constraints = "=r,r", packed_element = 1 : i32, pure = true} %n : i32 -> i32'
)
DESCRIPTOR = DOTS.replace("%n: i32", "%descriptor: !tt.tensordesc<tensor<64x64xf16>>, %n: i32")


@pytest.mark.parametrize("arch", [90, 100])
@pytest.mark.parametrize("count", ["2", "4"])
def test_a_program_becomes_a_cluster(arch: int, count: str, tmp_path: Path) -> None:
    plain = kernel_to_edit("", DOTS, arch=arch)
    assert list(KINDS["num_ctas"].more(plain)) == ["2", "4"]
    texts = built(edited(plain, "num_ctas", count), tmp_path)
    assert f'"ttg.num-ctas" = {count} : i32' in texts["ttgir"]
    # Each CTA reads its place in the cluster: Triton 3.5 for its coordinates, others for its rank.
    assert re.search(r"%cluster_cta(rank|id\.x)", texts["ptx"])
    (metadata,) = tmp_path.glob("*/*.json")
    # Triton's launchers read the size of the cluster from here.
    assert json.loads(metadata.read_text())["num_ctas"] == int(count)


@pytest.mark.parametrize(
    ("ttir", "arch", "reason"),
    [
        (DOTS, 80, "sm_90"),
        (with_line(ATOMIC), 90, "atomic"),
        (with_line(ASM), 90, "numbers its CTAs itself"),
        (DESCRIPTOR, 90, "descriptors"),
        ("this is no module", 90, "expected"),
        ("", 90, "Gluon"),
    ],
)
def test_refused(ttir: str, arch: int, reason: str) -> None:
    kernel = kernel_to_edit("", ttir, arch=arch)
    assert list(KINDS["num_ctas"].more(kernel)) == []
    with pytest.raises(EditRefused, match=reason):
        edited(kernel, "num_ctas", "2")


def test_cooperative_launches_and_other_numbers_are_refused() -> None:
    with pytest.raises(EditRefused, match="cooperative"):
        edited(kernel_to_edit("", DOTS, launch_cooperative_grid=True), "num_ctas", "2")
    with pytest.raises(EditRefused, match="none of"):
        edited(kernel_to_edit("", DOTS), "num_ctas", "3")


def test_only_dots_are_worth_a_cluster_and_clusters_may_become_smaller() -> None:
    assert list(KINDS["num_ctas"].more(kernel_to_edit("", SUM))) == []
    assert list(KINDS["num_ctas"].fewer(kernel_to_edit("", DOTS, num_ctas=4))) == ["2", "1"]
    assert list(KINDS["num_ctas"].more(kernel_to_edit("", DOTS, num_ctas=2))) == ["4"]

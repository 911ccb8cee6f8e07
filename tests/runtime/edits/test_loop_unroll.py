"""Unrolled loops: which loops, and that Triton's own pass unrolls them."""

from __future__ import annotations

from pathlib import Path

import pytest
from edited_kernels import built, edited, kernel_to_edit
from loops_in_ttir import DOTS, NESTED, SUM

from kprof_inject.runtime.experiments.edits.edit import EditRefused
from kprof_inject.runtime.experiments.edits.kinds import KINDS

pytestmark = pytest.mark.triton

CHOSEN = SUM.replace("\n    }\n    tt.store", "\n    } {tt.loop_unroll_factor = 1 : i32}\n    tt.store")


@pytest.mark.parametrize("arch", [80, 90, 100])
@pytest.mark.parametrize("ttir", [SUM, NESTED])
def test_the_loop_has_several_loads(ttir: str, arch: int, tmp_path: Path) -> None:
    plain = kernel_to_edit("", ttir, arch=arch)
    unrolled = edited(plain, "loop_unroll", "4")
    assert unrolled.ttir.count("tt.loop_unroll_factor = 4 : i32") == 1
    before, after = (built(one, tmp_path, "ttir")["ttgir"] for one in (plain, unrolled))
    # Those of four iterations, and one of the loop for the rest.
    assert (before.count("tt.load"), after.count("tt.load")) == (1, 5)


def test_unrolled_loops_load_ahead_together(tmp_path: Path) -> None:
    plain = kernel_to_edit("", SUM)
    both = edited(edited(plain, "loop_unroll", "2"), "loop_stages", "3")
    texts = built(both, tmp_path)
    assert texts["ttgir"].count("ttg.async_commit_group") > built(edited(plain, "loop_stages", "3"), tmp_path)[
        "ttgir"
    ].count("ttg.async_commit_group")


@pytest.mark.parametrize("ttir", [CHOSEN, DOTS, "module {\n}\n", "this is no module"])
def test_other_loops_are_left_alone(ttir: str) -> None:
    kernel = kernel_to_edit("", ttir)
    assert list(KINDS["loop_unroll"].more(kernel)) == []
    with pytest.raises(EditRefused):
        edited(kernel, "loop_unroll", "2")


def test_other_factors_and_kernels_without_ttir_are_refused() -> None:
    with pytest.raises(EditRefused, match="none of 2 or 4"):
        edited(kernel_to_edit("", SUM), "loop_unroll", "3")
    with pytest.raises(EditRefused, match="Gluon"):
        edited(kernel_to_edit(SUM), "loop_unroll", "2")

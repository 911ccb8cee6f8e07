"""Flags of loops: flattened, warp-specialized, with one accumulator. Which loops, and what Triton makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
from edited_kernels import built, edited, kernel_to_edit
from loops_in_ttir import DOTS, LINE_10, NESTED, SUM, dots

from kprof_inject.capture.edits import Edit
from kprof_inject.runtime.experiments.edits.edit import EditRefused
from kprof_inject.runtime.experiments.edits.kinds import KINDS, in_source

pytestmark = pytest.mark.triton

_ELEMENTS = "64x64xf16" if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 8) else "tensor<64x64xf16>"
DESCRIPTOR = f"!tt.tensordesc<{_ELEMENTS}>"


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_two_loops_become_one(arch: int, tmp_path: Path) -> None:
    plain = kernel_to_edit("", NESTED, arch=arch)
    assert list(KINDS["flatten"].more(plain)) == ["on"]
    before, after = (built(one, tmp_path, "ttir") for one in (plain, edited(plain, "flatten", "on")))
    assert (before["ttgir"].count("scf.for"), after["ttgir"].count("scf.for")) == (2, 1)


# Triton 3.8 and later specialize only loops that load by TMA.
BY_TMA = (
    DOTS.replace("%a: !tt.ptr<f16> {tt.divisibility = 16 : i32}", f"%a: !tt.ptr<f16>, %t: {DESCRIPTOR}")
    .replace(
        "%x = tt.load %at : tensor<64x64x!tt.ptr<f16>>",
        f"%x = tt.descriptor_load %t[%c0, %i] : {DESCRIPTOR} -> tensor<64x64xf16>",
    )
    .replace(
        "%y = tt.load %bt : tensor<64x64x!tt.ptr<f16>>",
        f"%y = tt.descriptor_load %t[%i, %c0] : {DESCRIPTOR} -> tensor<64x64xf16>",
    )
)


def test_partitions_have_warps_of_their_own(tmp_path: Path) -> None:
    plain = kernel_to_edit("", BY_TMA, arch=100)
    assert list(KINDS["warp_specialize"].more(plain)) == ["on"]
    specialized = edited(plain, "warp_specialize", "on")
    before, after = (built(one, tmp_path, "ttir")["ttgir"] for one in (plain, specialized))
    assert "ttg.warp_specialize" not in before
    assert "ttg.warp_specialize" in after
    with pytest.raises(EditRefused, match="warp specialization"):
        edited(specialized, "num_warps", "8")


def test_an_accumulator_has_one_buffer(tmp_path: Path) -> None:
    plain = kernel_to_edit("", DOTS, arch=100)
    single = edited(plain, "acc_multi_buffer", "off")
    assert single.ttir.count("{tt.disallow_acc_multi_buffer}") == 1
    assert "tt.disallow_acc_multi_buffer" in built(single, tmp_path)["ttgir"]


@pytest.mark.parametrize(
    ("kind", "value", "ttir", "arch", "reason"),
    [
        ("flatten", "on", SUM, 90, "no loop with exactly one loop inside"),
        ("warp_specialize", "on", SUM, 100, "no innermost loop with dots"),
        ("warp_specialize", "on", DOTS, 90, "sm_100"),
        ("warp_specialize", "on", dots(LINE_10, attributes=" {tt.warp_specialize}"), 100, "the source has set it"),
        ("acc_multi_buffer", "off", DOTS, 90, "sm_100"),
        ("acc_multi_buffer", "off", SUM, 100, "no innermost loop with dots"),
    ],
)
def test_refused(kind: str, value: str, ttir: str, arch: int, reason: str) -> None:
    kernel = kernel_to_edit("", ttir, arch=arch)
    assert list(KINDS[kind].more(kernel)) == []
    with pytest.raises(EditRefused, match=reason):
        edited(kernel, kind, value)


def test_other_values_and_texts_are_refused() -> None:
    with pytest.raises(EditRefused, match="off is not on"):
        edited(kernel_to_edit("", NESTED), "flatten", "off")
    with pytest.raises(EditRefused, match="expected"):
        edited(kernel_to_edit("", "this is no module"), "flatten", "on")


def test_the_source_asks_for_it_with_a_range() -> None:
    assert in_source([Edit("flatten", "on")]) == "tl.range(..., flatten=True)"
    assert in_source([Edit("acc_multi_buffer", "off")]) == "tl.range(..., disallow_acc_multi_buffer=True)"

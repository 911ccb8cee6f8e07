"""Swizzled layouts: what changes in the text, and machine code for each value."""

from __future__ import annotations

from pathlib import Path

import pytest
from edited_kernels import built, edited, kernel_to_edit
from loops_in_ttir import DOTS

from kprof_inject.runtime.experiments.edits.edit import EditRefused
from kprof_inject.runtime.experiments.edits.kinds import KINDS

pytestmark = pytest.mark.triton

BARRIERS = "#shared = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>\n"
HARDWARE = "#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>\n"
SWIZZLED = "#shared1 = #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>\n"
ALL = BARRIERS + SWIZZLED + HARDWARE


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("off", "vec = 8, perPhase = 1, maxPhase = 1,"),
        ("phases:4", "vec = 8, perPhase = 1, maxPhase = 4,"),
        ("vec:4", "vec = 4, perPhase = 1, maxPhase = 8,"),
    ],
)
def test_only_swizzled_layouts_of_several_dimensions_change(value: str, wanted: str) -> None:
    text = edited(kernel_to_edit(ALL), "swizzle", value).ttgir
    assert text == ALL.replace("vec = 8, perPhase = 1, maxPhase = 8,", wanted)


@pytest.mark.parametrize("arch", [80, 120])
def test_each_value_becomes_other_machine_code(arch: int, tmp_path: Path) -> None:
    plain = kernel_to_edit("", DOTS, arch=arch)
    before = built(plain, tmp_path, "ttir")
    kernel = kernel_to_edit(before["ttgir"], arch=arch)
    values = KINDS["swizzle"].more(kernel)
    assert list(values) == ["phases:4", "vec:4", "off"]
    codes = {built(edited(kernel, "swizzle", value), tmp_path)["ptx"] for value in values}
    assert len(codes | {before["ptx"]}) == 4


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        (BARRIERS + HARDWARE, "off", "hardware's"),
        (SWIZZLED, "phases:8", "no layout that this changes"),
        (SWIZZLED, "vec:3", "none of"),
        (SWIZZLED, "phases:off", "none of"),
        (SWIZZLED, "order:8", "none of"),
        (SWIZZLED + "%b = ttg.memdesc_reinterpret %a : ", "off", "two layouts"),
    ],
)
def test_refused(text: str, value: str, reason: str) -> None:
    with pytest.raises(EditRefused, match=reason):
        edited(kernel_to_edit(text), "swizzle", value)


def test_without_such_a_layout_none_is_proposed() -> None:
    assert list(KINDS["swizzle"].more(kernel_to_edit(BARRIERS + HARDWARE))) == []
    assert list(KINDS["swizzle"].more(kernel_to_edit(SWIZZLED + "ttg.memdesc_reshape"))) == []

"""What layouts tell, of attributes as Triton prints them."""

from __future__ import annotations

import pytest

from kprof_inject.analysis.structure.tensor_layouts import access_bits, dot_instruction, lanes_dimension, layout_of
from kprof_inject.ttgir.types import PrintedType

BLOCKED = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>"
COLUMNS = "#ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [8, 4], warpsPerCTA = [1, 4], order = [0, 1]}>"
LINEAR = (
    "#ttg.linear<{register = [[1, 0], [0, 1], [0, 2], [0, 4]], lane = [[0, 8], [0, 16], [0, 32], [2, 0], [4, 0]], "
    "warp = [[16, 0], [32, 0]], block = []}>"
)
ALIASES = {"#blocked": BLOCKED, "#columns": COLUMNS, "#linear": LINEAR, "#mma": "#ttg.nvidia_mma<{versionMajor = 2}>"}


@pytest.mark.parametrize(
    ("element", "layout", "bits"),
    [
        ("f16", "#blocked", 128),
        ("f32", "#blocked", 128),  # two accesses of 128 bits
        ("f8E5M2", "#blocked", 64),
        ("!tt.ptr<f16>", "#blocked", 128),
        ("f16", "#columns", 64),
        ("f16", "#linear", 128),
        ("f16", "#ttg.slice<{dim = 0, parent = #blocked}>", 128),
        ("f16", "#ttg.slice<{dim = 1, parent = #blocked}>", 16),
        ("f16", "#mma", None),
        ("f16", "", None),
    ],
)
def test_a_thread_accesses_what_stands_in_a_row(element: str, layout: str, bits: int | None) -> None:
    rest = f", {layout}" if layout else ""
    assert access_bits(PrintedType("tensor", (128, 64), element, rest), ALIASES) == bits


@pytest.mark.parametrize(
    ("shape", "layout", "dimension"),
    [
        ((128, 64), BLOCKED, 1),
        ((128, 64), COLUMNS, 0),
        ((128, 64), LINEAR, 1),
        ((128, 64), COLUMNS.replace("[8, 4]", "[1, 32]"), 1),
        ((128, 1), COLUMNS, None),
        ((128, 64), "#mma", None),
    ],
)
def test_a_warps_threads_lie_along_one_dimension(shape: tuple[int, ...], layout: str, dimension: int | None) -> None:
    assert lanes_dimension(PrintedType("tensor", shape, "f16", f", {layout}"), ALIASES) == dimension


WGMMA = "#ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 128, 16]}>"
MMA = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
MFMA = "#ttg.amd_mfma<{version = 3, warpsPerCTA = [4, 1], instrShape = [32, 32, 8], isTransposed = true}>"
WMMA = "#ttg.amd_wmma<{version = 2, isTranspose = false, ctaLayout = {warp = []}}>"


@pytest.mark.parametrize(
    ("layout", "instruction"),
    [
        (WGMMA, "wgmma m64n128k16"),
        (MMA, "mma m16n8"),
        (MFMA, "mfma 32x32x8"),
        (WMMA, "wmma"),
        (BLOCKED, "fma"),
        ("", ""),
    ],
)
def test_the_instruction_of_a_dot_is_in_its_results_layout(layout: str, instruction: str) -> None:
    assert dot_instruction(layout) == instruction


def test_a_layout_is_found_by_its_alias_or_in_place() -> None:
    assert layout_of(PrintedType("tensor", (8,), "f32", ", #blocked"), ALIASES) == BLOCKED
    inline = "#ttg.slice<{dim = 1, parent = #blocked}>"
    assert layout_of(PrintedType("tensor", (8,), "f32", f", {inline}"), ALIASES) == inline

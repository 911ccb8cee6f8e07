"""Layouts as Triton prints them: accesses, lanes and warps, and the instruction of a dot."""

from __future__ import annotations

import pytest

from kprof_inject.analysis.structure.layouts import (
    access_bits,
    dot_instruction,
    lanes_and_warps_along,
    lanes_dimension,
    layout_of,
    linear_layout,
)
from kprof_inject.ttgir.types import PrintedType, printed_types

BLOCKED = "#ttg.blocked<{{sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = {}, order = {}}}>"
ROWS = BLOCKED.format([1, 4], [2, 16], [4, 1], [1, 0])
COLUMNS = BLOCKED.format([2, 4], [16, 2], [1, 4], [0, 1])
ONE_LANE_A_ROW = BLOCKED.format([1, 4], [32, 1], [4, 1], [1, 0])
LINEAR = "#ttg.linear<{{register = {}, lane = {}, warp = [[8, 0], [16, 0]], block = []}}>"
LANES = "[[1, 0], [2, 0], [4, 0], [0, 8], [0, 16]]"
MMA = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
WIDE_MMA = MMA.replace("[16, 8]", "[16, 32]")
MFMA = "#ttg.amd_mfma<{version = 3, warpsPerCTA = [2, 2], instrShape = [32, 32, 8], isTransposed = true}>"
UNKNOWN = ROWS.replace("blocked", "of_tomorrow")
ALIASES = {
    "#rows": ROWS,
    "#columns": COLUMNS,
    "#lines": BLOCKED.format([4], [32], [4], [0]),
    "#slice": f"#ttg.slice<{{dim = 0, parent = {ROWS}}}>",
    "#column": "#ttg.slice<{dim = 1, parent = #rows}>",
    "#short_column": "#ttg.slice<{dim = 1, parent = #columns}>",
    "#nothing": "#ttg.slice<{dim = 0, parent = #lines}>",
    "#two_lanes": BLOCKED.format([1, 4], [2, 16], [4, 1], [0, 1]),
    "#plane": f"#ttg.slice<{{dim = 0, parent = {BLOCKED.format([1, 2, 4], [2, 2, 8], [4, 1, 1], [2, 1, 0])}}}>",
    "#one_lane": ONE_LANE_A_ROW,
    "#linear": LINEAR.format("[[0, 1], [0, 2], [1, 4], [16, 0]]", LANES),
    "#downward": LINEAR.format("[[0, 1], [1, 0], [2, 0], [4, 0]]", LANES),
    "#diagonal": LINEAR.format("[[0, 1], [1, 4], [2, 8], [4, 16]]", LANES),
    "#cube": LINEAR.format("[[0, 0, 1], [1, 0, 4], [2, 0, 8]]", "[[4, 0, 0]]").replace("[[8, 0], [16, 0]]", "[]"),
    "#along": LINEAR.format("[]", "[[0, 1], [0, 2], [0, 4], [0, 8], [0, 16]]"),
    "#same": LINEAR.format("[[0, 0]]", "[[0, 0], [0, 2], [0, 4], [0, 8], [0, 16]]"),
    "#mma": MMA,
    "#wide_mma": WIDE_MMA,
    "#mfma": MFMA,
    "#unknown": UNKNOWN,
}


def tensor(inside: str) -> PrintedType:
    (printed,) = printed_types(f"tensor<{inside}>")
    return printed


@pytest.mark.parametrize(
    ("inside", "layout"),
    [
        ("32x64xf32, #rows", ROWS),
        ("32x64xf32", ""),
        ("32x64xf32, #other", "#other"),
        ("32x64xf32, #other, #smem", "#other"),
        (f"32x64xf32, {ALIASES['#slice']}", ALIASES["#slice"]),
        (f"32x64xf32, {ALIASES['#slice']}, #smem", ALIASES["#slice"]),
    ],
)
def test_a_layout_is_an_alias_or_written_out(inside: str, layout: str) -> None:
    assert layout_of(tensor(inside), ALIASES) == layout


@pytest.mark.parametrize(
    ("inside", "bits"),
    [
        ("32x64xf32, #rows", 128),
        ("32x64xf16, #rows", 64),
        ("32x64x!tt.ptr<f16>, #rows", 64),
        ("32x64xf64, #rows", 128),  # one access, of all that a thread has in a row, is no wider
        ("32x64xf32, #columns", 64),
        ("64xf16, #slice", 64),
        ("32xf32, #column", 32),
        ("32xf32, #short_column", 64),
        ("32x64xf16, #linear", 64),
        ("32x64xf16, #downward", 128),
        ("32x64xf16, #diagonal", 32),
        ("8x8x16xf16, #cube", 32),
        ("32x64xf16, #along", 16),
        ("32x64xf16, #same", 16),
        ("64xf32, #nothing", None),
        ("32x64xf32, #mma", None),
        ("32x64xf32, #unknown", None),
        ("32x64xindex, #rows", None),
        ("32x64xf32", None),
    ],
)
def test_the_bits_that_a_thread_accesses_at_once(inside: str, bits: int | None) -> None:
    assert access_bits(tensor(inside), ALIASES) == bits


@pytest.mark.parametrize(
    ("inside", "dimension"),
    [
        ("32x64xf32, #rows", 1),
        ("32x64xf32, #columns", 0),
        ("32x64xf32, #one_lane", 0),
        ("32x64xf32, #two_lanes", 0),
        ("32x64xf32, #linear", 0),
        ("32x64xf32, #along", 1),
        ("32x2xf32, #rows", 1),
        ("32x64xf32, #same", None),
        ("32x1xf32, #rows", None),
        ("32x64xf32, #mma", None),
        ("32x64xf32, #unknown", None),
    ],
)
def test_the_dimension_along_which_neighbouring_lanes_are(inside: str, dimension: int | None) -> None:
    assert lanes_dimension(tensor(inside), ALIASES) == dimension


@pytest.mark.parametrize(
    ("inside", "dim", "lanes_and_warps"),
    [
        ("32x64xf32, #rows", 1, (16, 1)),
        ("32x64xf32, #rows", 0, (2, 4)),
        ("4x64xf32, #rows", 0, (2, 2)),
        ("2x64xf32, #rows", 0, (2, 1)),
        ("1x64xf32, #rows", 0, (1, 1)),
        ("32x8xf32, #rows", 1, (2, 1)),
        ("32x2xf32, #rows", 1, (1, 1)),
        ("64xf32, #slice", 0, (16, 1)),
        ("32xf32, #column", 0, (2, 4)),
        ("8x64xf32, #plane", 0, (2, 1)),
        ("8x64xf32, #plane", 1, (8, 1)),
        # A warp of tensor cores has 16 rows, each in 4 lanes.
        ("64x64xf32, #mma", 0, (8, 2)),
        ("64x64xf32, #mma", 1, (4, 2)),
        ("16x64xf32, #mma", 0, (8, 1)),
        ("64x8xf32, #mma", 1, (4, 1)),
        ("64x64xf32, #wide_mma", 1, (4, 2)),
        ("64x16xf32, #wide_mma", 1, (4, 1)),
        ("64x64xf32, #mfma", 0, (32, 2)),
        ("64x64xf32, #mfma", 1, (2, 2)),
        ("64x64xf32, #linear", 1, (4, 1)),
        ("64x64xf32, #unknown", 1, None),
        ("64x64xf32", 1, None),
    ],
)
def test_lanes_and_warps_with_elements_along_a_dimension(
    inside: str, dim: int, lanes_and_warps: tuple[int, int] | None
) -> None:
    assert lanes_and_warps_along(tensor(inside), dim, ALIASES) == lanes_and_warps


@pytest.mark.parametrize(
    ("layout", "instruction"),
    [
        ("#ttg.nvidia_mma<{versionMajor = 3, warpsPerCTA = [4, 1], instrShape = [16, 128, 16]}>", "wgmma m64n128k16"),
        ("#ttg.nvidia_mma<{versionMajor = 3, warpsPerCTA = [4, 1]}>", "wgmma"),
        (MMA, "mma m16n8"),
        ("#ttg.nvidia_mma<{warpsPerCTA = [4, 1], instrShape = [16, 8]}>", "mma m16n8"),
        (MFMA, "mfma 32x32x8"),
        ("#ttg.amd_wmma<{version = 1, warpsPerCTA = [2, 2]}>", "wmma"),
        (ROWS, "fma"),
        (ALIASES["#linear"], "fma"),
        (UNKNOWN, ""),
        ("", ""),
    ],
)
def test_the_instruction_of_a_dot(layout: str, instruction: str) -> None:
    assert dot_instruction(layout) == instruction


def test_a_blocked_layout_has_no_more_elements_than_a_tensor() -> None:
    for warps, is_known in ((32, True), (64, False)):
        layout = BLOCKED.format([1024, 1], [32, 1], [warps, 1], [1, 0])
        assert (linear_layout(tensor("32x64xf32, #l"), {"#l": layout}) is not None) == is_known


@pytest.mark.parametrize(
    "layout",
    [
        UNKNOWN,
        ROWS.replace("order", "sequence"),
        ROWS.replace("}>", ", CGALayout = [[1, 0]]}>"),
        ROWS.replace("}>", ", CTAsPerCGA = [2, 1]}>"),
        BLOCKED.format([1, 4, 1], [2, 16], [4, 1], [1, 0]),
        BLOCKED.format([1, 4], [2, 16, 1], [4, 1], [1, 0]),
        BLOCKED.format([1, 4], [2, 16], [4], [1, 0]),
        BLOCKED.format([1, 4], [2, 16], [4, 1], [0]),
        BLOCKED.format([1, 4], [2, 16], [4, 1], [1, 2]),
        BLOCKED.format([1, 4], [0, 16], [4, 1], [1, 0]),
        BLOCKED.format([1, 4], [2, 16], [4, -1], [1, 0]),
    ],
)
def test_other_layouts_are_unknown(layout: str) -> None:
    assert linear_layout(tensor("32x64xf32, #l"), {"#l": layout}) is None

"""Accesses to shared memory that take its banks longer than their bytes would."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import sentences_of
from known_loops import found, launched
from snapshots import check

from kprof_inject.analysis.launch import LaunchAnalysis

# Of lines as Triton makes for an int8 matmul of operands in rows on sm_90: the second has to lie along K.
TURNED = """\
#rows = #ttg.blocked<{sizePerThread = [1, 16], threadsPerWarp = [2, 16], warpsPerCTA = [1, 1], order = [1, 0]}>
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = true, elementBitWidth = 8}>
module {
  tt.func public @k(%p: !tt.ptr<i8>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %a = tt.splat %p : !tt.ptr<i8> -> tensor<128x64x!tt.ptr<i8>, #rows>
    scf.for %i = %c0 to %c2 step %c1  : i32 {
      %x = tt.load %a : tensor<128x64x!tt.ptr<i8>, #rows>
      %s = ttg.local_alloc %x : (tensor<128x64xi8, #rows>) -> !ttg.memdesc<128x64xi8, #shared, #smem>
      %d = ttng.warp_group_dot %y, %s, %z : <64x128xi8, #s, #smem> * <128x64xi8, #shared, #smem> -> tensor<64x64xi32>
    }
    tt.return
  }
}
"""


def test_stores_that_turn_a_tile_around_are_named(tmp_path: Path) -> None:
    """By hand: of 64 columns, a warp stores every 16th in 2 rows at once, 8 bytes, for 1,024 times. Columns lie along a
    row of 128 bytes each, so all four want the same bank."""
    finding = found(launched(tmp_path, TURNED, 10))["bank-conflicts"]
    check("analysis/findings", sentences_of(finding), "bank conflicts")
    located = TURNED.replace("#shared, #smem>\n", '#shared, #smem> loc("/a/matmul.py":58:4)\n', 1)
    assert "loop[0] (matmul.py:58)" in found(launched(tmp_path / "located", located, 10))["bank-conflicts"].text
    assert (finding.figures["cycles"], finding.figures["least_cycles"]) == (4 * 1024, 64)
    assert finding.share == pytest.approx(2 * (4 * 1024 - 64) / 10_000)
    assert finding.scope == "loop[0]"


def test_the_roof_has_them(tmp_path: Path) -> None:
    func = LaunchAnalysis.of(launched(tmp_path, TURNED, 10)).speed_of_light.roofs[0]
    assert func.work.conflict_cycles == 2 * (4 * 1024 - 64)
    assert func.parts["shared memory and L1"] == pytest.approx(
        (func.work.shared_bytes / 128 + func.work.conflict_cycles) / 10_000
    )


def test_rows_that_stay_rows_do_not_conflict(tmp_path: Path) -> None:
    assert "bank-conflicts" not in found(
        launched(tmp_path, TURNED.replace("transposed = true", "transposed = false"), 10)
    )

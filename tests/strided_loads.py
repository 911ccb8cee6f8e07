"""A kernel that loads and stores a row of floats, with steps between its elements."""

from __future__ import annotations

from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated
from kprof_inject.capture.scopes import ScopeTable

ROW = "#ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
THIN = ROW.replace("[4], threads", "[1], threads")
KERNEL = """
#l = LAYOUT
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%p: !tt.ptr<f32>, %n: i32) {
    %x = tt.get_program_id x : i32
    %at = arith.muli %x, %n : i32
    %i = tt.make_range {end = SIZE : i32, start = 0 : i32} : tensor<SIZExi32, #l>
    %c = arith.constant dense<STEP> : tensor<SIZExi32, #l>
    %o = arith.muli %i, %c : tensor<SIZExi32, #l>
    %q = tt.splat %p : !tt.ptr<f32> -> tensor<SIZEx!tt.ptr<f32>, #l>
    %s = tt.splat %at : i32 -> tensor<SIZExi32, #l>
    %b = tt.addptr %q, %s : tensor<SIZEx!tt.ptr<f32>, #l>, tensor<SIZExi32, #l>
    %r = tt.addptr %b, %o : tensor<SIZEx!tt.ptr<f32>, #l>, tensor<SIZExi32, #l>
    %few = arith.constant dense<FEW> : tensor<SIZExi32, #l>
    %m = arith.cmpi slt, %i, %few : tensor<SIZExi32, #l>
    %value = tt.load %r, %m : tensor<SIZEx!tt.ptr<f32>, #l> loc(#place)
    tt.store %r, %value, %m : tensor<SIZEx!tt.ptr<f32>, #l>
    tt.return
  }
}
#place = loc("kernel.py":7:3)
"""
BASE = 1 << 40
CTAS = 8


def strided(
    layout: str, *, step: int = 1, base: int = BASE, row: int = 1024, few: int = 1024, size: int = 1024
) -> ExecutedKernel:
    """Return what eight CTAs execute whose rows are ``row`` elements apart. The mask has the first ``few`` elements."""
    text = KERNEL.replace("LAYOUT", layout).replace("SIZE", str(size)).replace("STEP", str(step))
    return evaluated(text.replace("FEW", str(few)), "k.ttgir", (CTAS, 1, 1), (base, row), ScopeTable())

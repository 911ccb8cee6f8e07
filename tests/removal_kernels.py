"""Kernels from which operations are removed: a loop that loads, computes, reduces and stores."""

from __future__ import annotations

from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse

_KERNEL = """#blocked = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%x: !tt.ptr<f32>, %gain: !tt.ptr<f32>, %table: !tt.ptr<i32>, %out: !tt.ptr<f32>, %n: i32) {
    %c0 = arith.constant 0 : i32
    %c512 = arith.constant 512 : i32
    %zero = arith.constant dense<0.000000e+00> : tensor<512xf32, #blocked>
    %none = arith.constant 0.000000e+00 : f32
    %range = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32, #blocked>
    %gains = tt.splat %gain : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>, #blocked>
    %gain_at = tt.addptr %gains, %range : tensor<512x!tt.ptr<f32>, #blocked>, tensor<512xi32, #blocked>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>, #blocked>
    %outs = tt.splat %out : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>, #blocked>
    %sum = scf.for %start = %c0 to %n step %c512 iter_args(%acc = %none) -> (f32)  : i32 {
      %starts = tt.splat %start : i32 -> tensor<512xi32, #blocked>
      %places = arith.addi %starts, %range : tensor<512xi32, #blocked>
      %x_at = tt.addptr %xs, %places : tensor<512x!tt.ptr<f32>, #blocked>, tensor<512xi32, #blocked>
      %out_at = tt.addptr %outs, %places : tensor<512x!tt.ptr<f32>, #blocked>, tensor<512xi32, #blocked>
      %value = tt.load %x_at : tensor<512x!tt.ptr<f32>, #blocked>
      %g = tt.load %gain_at : tensor<512x!tt.ptr<f32>, #blocked>
      BODY
      tt.store %out_at, %y : tensor<512x!tt.ptr<f32>, #blocked>
      %part = "tt.reduce"(%y) <{axis = 0 : i32}> ({
      ^bb0(%a: f32, %b: f32):
        %c = arith.addf %a, %b : f32
        tt.reduce.return %c : f32
      }) : (tensor<512xf32, #blocked>) -> f32
      %next = arith.addf %acc, %part : f32
      scf.yield %next : f32
    }
    END
    tt.return
  }
}
"""

_TILE = "sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]"
_COLUMNS = """#blocked = #ttg.blocked<{TILE}>
#columns = #ttg.slice<{dim = 0, parent = #blocked}>
#rows = #ttg.slice<{dim = 1, parent = #blocked}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %out: !tt.ptr<f32>) {
    %column = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #columns>
    %row = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #rows>
    %width = arith.constant dense<32> : tensor<64x1xi32, #blocked>
    %row_1 = tt.expand_dims %row {axis = 1 : i32} : tensor<64xi32, #rows> -> tensor<64x1xi32, #blocked>
    %row_2 = arith.muli %row_1, %width : tensor<64x1xi32, #blocked>
    %row_3 = tt.broadcast %row_2 : tensor<64x1xi32, #blocked> -> tensor<64x32xi32, #blocked>
    %column_1 = tt.expand_dims %column {axis = 0 : i32} : tensor<32xi32, #columns> -> tensor<1x32xi32, #blocked>
    %column_2 = tt.broadcast %column_1 : tensor<1x32xi32, #blocked> -> tensor<64x32xi32, #blocked>
    %place = arith.addi %row_3, %column_2 : tensor<64x32xi32, #blocked>
    %xs = tt.splat %x : !tt.ptr<f32> -> tensor<64x32x!tt.ptr<f32>, #blocked>
    %x_at = tt.addptr %xs, %place : tensor<64x32x!tt.ptr<f32>, #blocked>, tensor<64x32xi32, #blocked>
    %value = tt.load %x_at : tensor<64x32x!tt.ptr<f32>, #blocked>
    %sum = "tt.reduce"(%value) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %a, %b : f32
      tt.reduce.return %c : f32
    }) : (tensor<64x32xf32, #blocked>) -> tensor<32xf32, #columns>
    %outs = tt.splat %out : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #columns>
    %out_at = tt.addptr %outs, %column : tensor<32x!tt.ptr<f32>, #columns>, tensor<32xi32, #columns>
    tt.store %out_at, %sum : tensor<32x!tt.ptr<f32>, #columns>
    tt.return
  }
}
"""

DIVIDED = "%y = arith.divf %value, %g : tensor<512xf32, #blocked>"
STORED = "tt.store %out, %sum : !tt.ptr<f32>"


def kernel(body: str = DIVIDED, end: str = STORED) -> Module:
    """The module of the kernel with a body that computes ``%y`` of ``%value`` and ``%g``."""
    return parse(_KERNEL.replace("BODY", body).replace("END", end), "k.ttgir")


def named(module: Module, result: str) -> Operation:
    """The operation whose first result has a name."""
    return next(one for one in module.walk() if one.results.startswith(f"%{result} ="))


def last_store(module: Module) -> Operation:
    """The last store of the text."""
    return [one for one in module.walk() if one.name == "tt.store"][-1]


def sum_of_columns() -> Module:
    """The module of a kernel that sums the columns of a tile; a thread loads four columns of each of four rows."""
    return parse(_COLUMNS.replace("TILE", _TILE), "k.ttgir")

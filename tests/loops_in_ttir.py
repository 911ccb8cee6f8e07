"""Kernels with loops, as TTIR: sums, and dots in any number of loops."""

from __future__ import annotations

SUM = """\
module {
  tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}) {
    %c0 = arith.constant 0 : i32
    %c1024 = arith.constant 1024 : i32
    %zero = arith.constant dense<0.000000e+00> : tensor<1024xf32>
    %r = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>>
    %at = tt.addptr %base, %r : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
    %sum = scf.for %i = %c0 to %n step %c1024 iter_args(%acc = %zero) -> (tensor<1024xf32>)  : i32 {
      %s = tt.splat %i : i32 -> tensor<1024xi32>
      %there = tt.addptr %at, %s : tensor<1024x!tt.ptr<f32>>, tensor<1024xi32>
      %v = tt.load %there : tensor<1024x!tt.ptr<f32>>
      %next = arith.addf %acc, %v : tensor<1024xf32>
      scf.yield %next : tensor<1024xf32>
    }
    tt.store %at, %sum : tensor<1024x!tt.ptr<f32>>
    tt.return
  }
}
"""
"""A loop that loads without dots."""

_HEAD = """\
#loc = loc("kernel.py":1:0)
module {
  tt.func public @kernel(%a: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %b: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %c: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}) {
    %c0 = arith.constant 0 : i32
    %c64 = arith.constant 64 : i32
    %width = arith.constant dense<64> : tensor<64x1xi32>
    %acc0 = arith.constant dense<0.000000e+00> : tensor<64x64xf32>
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
    %row = tt.expand_dims %r {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
    %start = arith.muli %row, %width : tensor<64x1xi32>
    %rows = tt.broadcast %start : tensor<64x1xi32> -> tensor<64x64xi32>
    %column = tt.expand_dims %r {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
    %columns = tt.broadcast %column : tensor<1x64xi32> -> tensor<64x64xi32>
    %offsets = arith.addi %rows, %columns : tensor<64x64xi32>
    %as = tt.splat %a : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %bs = tt.splat %b : !tt.ptr<f16> -> tensor<64x64x!tt.ptr<f16>>
    %cs = tt.splat %c : !tt.ptr<f32> -> tensor<64x64x!tt.ptr<f32>>
    %a0 = tt.addptr %as, %offsets : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %b0 = tt.addptr %bs, %offsets : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
    %c1 = tt.addptr %cs, %offsets : tensor<64x64x!tt.ptr<f32>>, tensor<64x64xi32>
"""  # noqa: E501 (Triton prints so)
_LOOP = """\
    %acc{after} = scf.for %i = %c0 to %n step %c64 iter_args(%acc = %acc{before}) -> (tensor<64x64xf32>)  : i32 {{
      %s = tt.splat %i : i32 -> tensor<64x64xi32>
      %at = tt.addptr %a0, %s : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      %bt = tt.addptr %b0, %s : tensor<64x64x!tt.ptr<f16>>, tensor<64x64xi32>
      %x = tt.load %at : tensor<64x64x!tt.ptr<f16>>
      %y = tt.load %bt : tensor<64x64x!tt.ptr<f16>>
      %d = tt.dot %x, %y, %acc : tensor<64x64xf16> * tensor<64x64xf16> -> tensor<64x64xf32>
      scf.yield %d : tensor<64x64xf32>
    }}{attributes} loc({location})
"""
_TAIL = """\
    tt.store %c1, %acc{last} : tensor<64x64x!tt.ptr<f32>>
    tt.return
  }}
}}
"""


def dots(*locations: str, attributes: str = "") -> str:
    """A kernel with a loop of dots for each of these locations."""
    loops = [
        _LOOP.format(before=number, after=number + 1, attributes=attributes, location=location)
        for number, location in enumerate(locations)
    ]
    return "".join([_HEAD, *loops, _TAIL.format(last=len(locations))])


LINE_10, LINE_20 = '"kernel.py":10:0', '"kernel.py":20:0'

"""What a kernel computes for all CTAs at once is what plain loops over them give."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from brute_force import Kernel, Overflow, Ran, assert_bytes_right, assert_right, run
from generated_kernels import kernels
from golden import fixtures, read
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from replacing import replace

from kprof_inject.analysis.interpreter import axis_arrays
from kprof_inject.analysis.interpreter.accesses import access_of
from kprof_inject.analysis.interpreter.axis_arrays import IntegerExpr
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import argument_names, result_names

INTEGERS = "\n".join(
    [
        *(f"    %c{number} = arith.constant {number} : i32" for number in (0, 1, 2, 3, 4, 5, 7, 8)),
        "    %true = arith.constant true",
        "    %r4 = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32, #l>",
        "    %r8 = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32, #l>",
        "    %x = tt.get_program_id x : i32",
        "",
    ]
)


def load(at: str, name: str, more: str = "") -> str:
    """Four elements from an offset on."""
    return f"""
      %{name}_s = tt.splat %{at} : i32 -> tensor<4xi32, #l>
      %{name}_o = arith.addi %{name}_s, %r4 : tensor<4xi32, #l>
      %{name}_b = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>, #l>
      %{name}_a = tt.addptr %{name}_b, %{name}_o : tensor<4x!tt.ptr<i32>, #l>, tensor<4xi32, #l>
      %{name} = tt.load %{name}_a{more} : tensor<4x!tt.ptr<i32>, #l>
"""


def tile(rows: str, columns: str, more: str = "") -> str:
    """Four rows of 8 elements, by the names of the tensors of their numbers."""
    return f"""
    %t_r = tt.expand_dims %{rows} {{axis = 1 : i32}} : tensor<4xi32, #l> -> tensor<4x1xi32, #l>
    %t_c = tt.expand_dims %{columns} {{axis = 0 : i32}} : tensor<8xi32, #l> -> tensor<1x8xi32, #l>
    %t_k = arith.constant dense<10> : tensor<4x1xi32, #l>
    %t_m = arith.muli %t_r, %t_k : tensor<4x1xi32, #l>
    %t_x = tt.broadcast %t_m : tensor<4x1xi32, #l> -> tensor<4x8xi32, #l>
    %t_y = tt.broadcast %t_c : tensor<1x8xi32, #l> -> tensor<4x8xi32, #l>
    %t_o = arith.addi %t_x, %t_y : tensor<4x8xi32, #l>
    %t_b = tt.splat %p : !tt.ptr<i32> -> tensor<4x8x!tt.ptr<i32>, #l>
    %t_a = tt.addptr %t_b, %t_o : tensor<4x8x!tt.ptr<i32>, #l>, tensor<4x8xi32, #l>
{more}
"""


SWIZZLED = """
    %w = arith.muli %c2, %c3 : i32
    %g = arith.divsi %x, %w : i32
    %first = arith.muli %g, %c2 : i32
    %left = arith.subi %c5, %first : i32
    %size = arith.minsi %left, %c2 : i32
    %in = arith.remsi %x, %w : i32
    %m = arith.remsi %in, %size : i32
    %row = arith.addi %first, %m : i32
    %column = arith.divsi %in, %size : i32
    %wide = arith.muli %row, %c8 : i32
    %at = arith.addi %wide, %column : i32
"""
ROWS = """
    %f = arith.muli %x, %c3 : i32
    %f_s = tt.splat %f : i32 -> tensor<4xi32, #l>
    %rows = arith.addi %f_s, %r4 : tensor<4xi32, #l>
"""
EDGE = """
    %f7 = tt.splat %c7 : i32 -> tensor<4xi32, #l>
    %low = arith.cmpi slt, %rows, %f7 : tensor<4xi32, #l>
    %low_e = tt.expand_dims %low {axis = 1 : i32} : tensor<4xi1, #l> -> tensor<4x1xi1, #l>
    %low_b = tt.broadcast %low_e : tensor<4x1xi1, #l> -> tensor<4x8xi1, #l>
    %f5 = tt.splat %c5 : i32 -> tensor<8xi32, #l>
    %near = arith.cmpi sle, %r8, %f5 : tensor<8xi32, #l>
    %near_e = tt.expand_dims %near {axis = 0 : i32} : tensor<8xi1, #l> -> tensor<1x8xi1, #l>
    %near_b = tt.broadcast %near_e : tensor<1x8xi1, #l> -> tensor<4x8xi1, #l>
    %inside = arith.andi %low_b, %near_b : tensor<4x8xi1, #l>
"""
DIAGONAL = """
    %d = arith.cmpi sge, %t_x, %t_y : tensor<4x8xi32, #l>
    %e = arith.cmpi ne, %t_x, %t_y : tensor<4x8xi32, #l>
    %either = arith.ori %d, %e : tensor<4x8xi1, #l>
    %one = arith.xori %d, %e : tensor<4x8xi1, #l>
    %v = tt.load %t_a, %one : tensor<4x8x!tt.ptr<i32>, #l>
    %z = arith.constant dense<0> : tensor<4x8xi32, #l>
    tt.store %t_a, %z, %either : tensor<4x8x!tt.ptr<i32>, #l>
"""
TURNED = """
    %t_t = tt.trans %t_a {order = array<i32: 1, 0>} : tensor<4x8x!tt.ptr<i32>, #l> -> tensor<8x4x!tt.ptr<i32>, #l>
    %t_f = tt.trans %t_o {order = array<i32: 1, 0>} : tensor<4x8xi32, #l> -> tensor<8x4xi32, #l>
    %t_l = arith.constant dense<17> : tensor<8x4xi32, #l>
    %t_i = arith.cmpi slt, %t_f, %t_l : tensor<8x4xi32, #l>
    %t_v = tt.load %t_t, %t_i : tensor<8x4x!tt.ptr<i32>, #l>
"""
RESHAPED = """
    %s_m = arith.cmpi sge, %t_x, %t_y : tensor<4x8xi32, #l>
    %s_f = tt.reshape %t_a : tensor<4x8x!tt.ptr<i32>, #l> -> tensor<32x!tt.ptr<i32>, #l>
    %s_n = tt.reshape %s_m : tensor<4x8xi1, #l> -> tensor<32xi1, #l>
    %s_v = tt.load %s_f, %s_n : tensor<32x!tt.ptr<i32>, #l>
    %s_g = tt.reshape %s_f : tensor<32x!tt.ptr<i32>, #l> -> tensor<2x16x1x!tt.ptr<i32>, #l>
    %s_c = tt.reshape %r8 : tensor<8xi32, #l> -> tensor<2x4x1xi32, #l>
    %s_t = tt.trans %s_c {order = array<i32: 0, 2, 1>} : tensor<2x4x1xi32, #l> -> tensor<2x1x4xi32, #l>
    %s_r = tt.reshape %r4 : tensor<4xi32, #l> -> tensor<1x4x1xi32, #l>
    %s_u = tt.broadcast %s_t : tensor<2x1x4xi32, #l> -> tensor<2x4x4xi32, #l>
    %s_w = tt.broadcast %s_r : tensor<1x4x1xi32, #l> -> tensor<2x4x4xi32, #l>
    %s_k = arith.muli %s_u, %s_w : tensor<2x4x4xi32, #l>
    %s_l = tt.reshape %s_k : tensor<2x4x4xi32, #l> -> tensor<2x16x1xi32, #l>
    %s_h = tt.addptr %s_g, %s_l : tensor<2x16x1x!tt.ptr<i32>, #l>, tensor<2x16x1xi32, #l>
    %s_x = tt.load %s_h : tensor<2x16x1x!tt.ptr<i32>, #l>
"""
POINTERS = """
    %b = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>, #l>
    %q = tt.addptr %b, %rows : tensor<4x!tt.ptr<i32>, #l>, tensor<4xi32, #l>
    %by = tt.splat %c5 : i32 -> tensor<4xi32, #l>
    %end:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%n = %x, %a = %q) -> (i32, tensor<4x!tt.ptr<i32>, #l>)  : i32 {
      %v = tt.load %a : tensor<4x!tt.ptr<i32>, #l>
      %a2 = tt.addptr %a, %by : tensor<4x!tt.ptr<i32>, #l>, tensor<4xi32, #l>
      %n2 = arith.addi %n, %i : i32
      scf.yield %n2, %a2 : i32, tensor<4x!tt.ptr<i32>, #l>
    }
    %w = tt.load %end#1 : tensor<4x!tt.ptr<i32>, #l>
""" + load("end#0", "behind").replace("%end#0_", "%end_")
CAUSAL = (
    """
    %last = arith.addi %x, %c1 : i32
    scf.for %i = %c0 to %last step %c1  : i32 {
      %at = arith.muli %i, %c8 : i32
"""
    + load("at", "v")
    + "    }\n"
)
PERSISTENT = (
    """
    %n = tt.get_num_programs x : i32
    scf.for %i = %x to %c7 step %n  : i32 {
      %at = arith.muli %i, %c3 : i32
"""
    + load("at", "v")
    + "    }\n"
)
LAST = (
    """
    %end:2 = scf.for %i = %x to %c3 step %c2 iter_args(%far = %c7, %tile = %rows) -> (i32, tensor<4xi32, #l>)  : i32 {
      %next = arith.muli %i, %i : i32
      %by = tt.splat %next : i32 -> tensor<4xi32, #l>
      %on = arith.addi %tile, %by : tensor<4xi32, #l>
      scf.yield %next, %on : i32, tensor<4xi32, #l>
    }
"""
    + load("end#0", "v").replace("%end#0_", "%end_")
    + """
    %b = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>, #l>
    %a = tt.addptr %b, %end#1 : tensor<4x!tt.ptr<i32>, #l>, tensor<4xi32, #l>
    %w = tt.load %a : tensor<4x!tt.ptr<i32>, #l>
"""
)
# Two loops as one, as where the source says ``flatten=True``: of tiles, and of the parts of each.
FLATTENED = """
    %none = ub.poison : tensor<4xi32, #l>
    %tiles = arith.subi %c7, %x : i32
    %mine = arith.ceildivsi %tiles, %c4 : i32
    %last = arith.muli %mine, %c3 : i32
    %before = arith.subi %x, %c4 : i32
    scf.for %i = %c0 to %last step %c1 iter_args(%k = %c0, %tile = %before, %t = %none) -> (i32, i32, tensor<4xi32>) {
      %begins = arith.cmpi eq, %k, %c0 : i32
      %new:2 = scf.if %begins -> (i32, tensor<4xi32, #l>) {
        %next = arith.addi %tile, %c4 : i32
        %far = arith.muli %next, %c8 : i32
        %far_s = tt.splat %far : i32 -> tensor<4xi32, #l>
        %rows_n = arith.addi %far_s, %r4 : tensor<4xi32, #l>
        scf.yield %next, %rows_n : i32, tensor<4xi32, #l>
      } else {
        scf.yield %tile, %t : i32, tensor<4xi32, #l>
      }
      %k_s = tt.splat %k : i32 -> tensor<4xi32, #l>
      %o = arith.addi %new#1, %k_s : tensor<4xi32, #l>
      %b = tt.splat %p : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>, #l>
      %a = tt.addptr %b, %o : tensor<4x!tt.ptr<i32>, #l>, tensor<4xi32, #l>
      %v = tt.load %a : tensor<4x!tt.ptr<i32>, #l>
      %ends = arith.cmpi eq, %k, %c2 : i32
      scf.if %ends {
        tt.store %a, %o : tensor<4x!tt.ptr<i32>, #l>
      }
      %k1 = arith.addi %k, %c1 : i32
      %k2 = arith.select %ends, %c0, %k1 : i32
      scf.yield %k2, %new#0, %new#1 : i32, i32, tensor<4xi32>
    }
"""
NESTED = (
    """
    %done = scf.for %i = %c0 to %c4 step %c2 iter_args(%k = %x) -> (i32)  : i32 {
      %last = arith.addi %i, %x : i32
      scf.for %j = %i to %last step %c1  : i32 {
        %far = arith.muli %j, %c5 : i32
        %at = arith.addi %far, %k : i32
"""
    + load("at", "v")
    + """
      }
      %k3 = scf.for %l = %c0 to %c3 step %c1 iter_args(%k2 = %k) -> (i32)  : i32 {
"""
    + load("k2", "u")
    + """
        %k4 = arith.addi %k2, %c7 : i32
        scf.yield %k4 : i32
      }
      scf.yield %k3 : i32
    }
"""
    + load("done", "w")
)
WRAPPING = (
    """
    %two = arith.constant 2 : i32
    %first = arith.constant -1 : i32
    scf.for %i = %c0 to %c7 step %c1 iter_args(%s = %first, %phase = %c0)  -> (i32, i32)  : i32 {
      %next = arith.addi %s, %c1 : i32
      %over = arith.cmpi sge, %next, %c3 : i32
      %slot = arith.select %over, %c0, %next : i32
      %flip = arith.xori %phase, %c1 : i32
      %p2 = arith.select %over, %flip, %phase : i32
      %far = arith.muli %p2, %c8 : i32
      %at = arith.addi %slot, %far : i32
"""
    + load("at", "v")
    + """
      scf.yield %slot, %p2 : i32, i32
    }
"""
)
BEFORE = (
    """
    %end:2 = scf.for %i = %c0 to %c5 step %c1 iter_args(%was = %x, %older = %c7) -> (i32, i32)  : i32 {
      %at = arith.muli %older, %c8 : i32
"""
    + load("at", "v")
    + """
      %now = arith.muli %i, %i : i32
      scf.yield %now, %was : i32, i32
    }
    %sum = arith.addi %end#0, %end#1 : i32
"""
    + load("sum", "w")
)
BRANCHES = (
    """
    %is_low = arith.cmpi slt, %x, %c2 : i32
    %at = scf.if %is_low -> (i32) {
"""
    + load("x", "one")
    + """
      scf.yield %c7 : i32
    } else {
      %far = arith.muli %x, %c8 : i32
"""
    + load("far", "other")
    + """
      scf.yield %far : i32
    }
"""
    + load("at", "after")
)
ARGUMENT_BIT = (
    """
    scf.if %flag {
"""
    + load("x", "one")
    + """
    } else {
      %far = arith.muli %x, %c8 : i32
"""
    + load("far", "other")
    + """
    }
"""
)
RETURNS = (
    """
    %is_late = arith.cmpi sge, %x, %c3 : i32
    cf.cond_br %is_late, ^bb1, ^bb2
  ^bb1:  // pred: ^bb0
    tt.return
  ^bb2:  // pred: ^bb0
"""
    + load("x", "one")
    + """
    %is_odd = arith.cmpi eq, %x, %c1 : i32
    cf.cond_br %is_odd, ^bb3, ^bb4
  ^bb3:  // pred: ^bb2
    %far = arith.muli %x, %c8 : i32
"""
    + load("far", "two")
    + """
    tt.return
  ^bb4:  // pred: ^bb2
    scf.for %i = %c0 to %x step %c1  : i32 {
"""
    + load("i", "three")
    + """
    }
"""
)
MEETS = (
    """
    %is_late = arith.cmpi sge, %x, %c3 : i32
    cf.cond_br %is_late, ^bb3(%c7, %x : i32, i32), ^bb1
  ^bb1:  // pred: ^bb0
    %far = arith.muli %x, %c8 : i32
    %is_first = arith.cmpi eq, %x, %c0 : i32
    cf.cond_br %is_first, ^bb2, ^bb3(%far, %c5 : i32, i32)
  ^bb2:  // pred: ^bb1
"""
    + load("far", "one")
    + """
    cf.br ^bb4
  ^bb3(%at: i32, %times: i32):  // 2 preds: ^bb0, ^bb1
"""
    + load("at", "two")
    + """
    scf.for %i = %c0 to %times step %c1  : i32 {
"""
    + load("i", "three")
    + """
    }
    cf.br ^bb4
  ^bb4:  // 2 preds: ^bb2, ^bb3
"""
    + load("x", "four")
)
MEMORY = "!ttg.memdesc<128x128xf16, #s, #ttg.shared_memory>"
DOTS = f"""
    %never = arith.constant false
    %is_low = arith.cmpi slt, %x, %c2 : i32
    ttng.tc_gen5_mma %m, %m, %m, %never, %is_low, %b[%true] {{is_async}} : {MEMORY}, {MEMORY}, {MEMORY}, {MEMORY}
    scf.for %i = %c0 to %c4 step %c1  : i32 {{
      %is_more = arith.cmpi slt, %i, %x : i32
      %t = ttng.tc_gen5_mma %m, %m, %m[%t0], %is_low, %is_more, %b[%true], %b[%is_low] : {MEMORY}, {MEMORY}, {MEMORY}
      ttng.tc_gen5_mma %m, %m, %m[], %is_more, %true : {MEMORY}, {MEMORY}, {MEMORY}
      ttng.tc_gen5_mma %m, %m, %m[], %true, %never : {MEMORY}, {MEMORY}, {MEMORY}
    }}
"""
ATTRIBUTED = (
    """
    %n = arith.constant {async_task_id = array<i32: 0, 1>} 6 : i32
    scf.for %i = %c0 to %n step %c1  : i32 {
"""
    + load("i", "v")
    + """
    } {async_task_id = array<i32: 0, 1>}
"""
)
PLANES = """
    %y = tt.get_program_id y : i32
    %z = tt.get_program_id z : i32
    %ny = tt.get_num_programs y : i32
    %a = arith.muli %z, %ny : i32
    %b = arith.addi %a, %y : i32
    %c = arith.muli %b, %c8 : i32
    %at = arith.addi %c, %x : i32
""" + load("at", "v")
SHIFTED = """
    %a = arith.shli %x, %c2 : i32
    %b = arith.shrsi %a, %c1 : i32
    %c = arith.ori %b, %c1 : i32
    %d = arith.andi %c, %c5 : i32
    %e = arith.subi %d, %c4 : i32
    %f = arith.divsi %e, %c2 : i32
    %g = arith.remsi %e, %c2 : i32
    %h = arith.maxsi %f, %g : i32
    %is = arith.cmpi eq, %h, %c0 : i32
    %i = arith.extui %is : i1 to i32
    %at = arith.addi %h, %i : i32
""" + load("at", "v")
PARTITIONS = (
    """
    %at = arith.muli %x, %c8 : i32
    ttg.warp_specialize(%p, %at, %c2) attributes {requestedRegisters = array<i32: 24>}
    default {
"""
    + load("at", "v")
    + """
      ttg.warp_yield
    }
    partition0(%q: !tt.ptr<i32>, %from: i32, %n: i32) num_warps(1) {
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      scf.for %i = %zero to %n step %one  : i32 {
        %o = arith.addi %from, %i : i32
        %a = tt.addptr %q, %o : !tt.ptr<i32>, i32
        %u = tt.load %a : !tt.ptr<i32>
      }
      ttg.warp_return
    } : (!tt.ptr<i32>, i32, i32) -> ()
"""
)
WHILE = (
    """
    %end = scf.while (%k = %x) : (i32) -> i32 {
      %goes_on = arith.cmpi slt, %k, %c5 : i32
      scf.condition(%goes_on) %k : i32
    } do {
    ^bb0(%m: i32):
"""
    + load("m", "one")
    + """
      %m2 = arith.addi %m, %c2 : i32
      scf.yield %m2 : i32
    }
"""
    + load("end", "after")
)
# What a condition passes on is of other numbers than what the loop's body does.
FEWER = (
    """
    %end = scf.while (%k = %x, %n = %c0) : (i32, i32) -> i32 {
      %both = arith.addi %k, %n : i32
      %goes_on = arith.cmpi slt, %both, %c7 : i32
      scf.condition(%goes_on) %both : i32
    } do {
    ^bb0(%m: i32):
"""
    + load("m", "one")
    + """
      %m2 = arith.addi %m, %c2 : i32
      scf.yield %m2, %c1 : i32, i32
    }
"""
    + load("end", "after")
)
MORE = (
    """
    %end:3 = scf.while (%k = %x) : (i32) -> (i32, i32, i32) {
      %twice = arith.muli %k, %c2 : i32
      %goes_on = arith.cmpi slt, %twice, %c8 : i32
      scf.condition(%goes_on) %twice, %c5, %k : i32, i32, i32
    } do {
    ^bb0(%t: i32, %five: i32, %m: i32):
"""
    + load("t", "one")
    + """
      %m2 = arith.addi %m, %c1 : i32
      scf.yield %m2 : i32
    }
    %sum = arith.addi %end#0, %end#2 : i32
"""
    + load("sum", "after")
)
NONE = (
    """
    scf.while (%k = %x) : (i32) -> () {
      %goes_on = arith.cmpi slt, %k, %c2 : i32
      scf.condition(%goes_on)
    } do {
"""
    + load("x", "one")
    + """
      scf.yield %c3 : i32
    }
"""
    + load("x", "after")
)
# As a kernel does that takes as many iterations as others, of one tile or of parts of several.
STREAMED = (
    """
    %first = arith.muli %x, %c4 : i32
    %all = arith.addi %first, %c4 : i32
    %most = arith.constant 17 : i32
    %last = arith.minsi %all, %most : i32
    %end:2 = scf.while (%s = %first, %n = %c0) : (i32, i32) -> (i32, i32) {
      %goes_on = arith.cmpi slt, %s, %last : i32
      scf.condition(%goes_on) %s, %n : i32, i32
    } do {
    ^bb0(%t: i32, %m: i32):
      %in = arith.remsi %t, %c5 : i32
      %left = arith.subi %c5, %in : i32
      %far = arith.addi %t, %left : i32
      %stop = arith.minsi %far, %last : i32
      scf.for %i = %t to %stop step %c1  : i32 {
        %at = arith.muli %i, %c8 : i32
"""
    + load("at", "v")
    + """
      }
      %m2 = arith.addi %m, %c1 : i32
      scf.yield %stop, %m2 : i32, i32
    }
    %sum = arith.addi %end#0, %end#1 : i32
"""
    + load("sum", "w")
)
KNOWN = {
    "one program after the other": Kernel(INTEGERS + load("x", "v")),
    "programs in three dimensions": Kernel(INTEGERS + PLANES, grid=(2, 3, 2)),
    "programs in groups": Kernel(INTEGERS + SWIZZLED + load("at", "v"), grid=(15, 1, 1)),
    "shifts, and quotients of negative numbers": Kernel(INTEGERS + SHIFTED, grid=(9, 1, 1)),
    "rows that wrap": Kernel(
        INTEGERS
        + ROWS
        + "    %n = tt.splat %c5 : i32 -> tensor<4xi32, #l>\n    %w = arith.remsi %rows, %n : tensor<4xi32, #l>\n"
        + tile("w", "r8", "    %v = tt.load %t_a : tensor<4x8x!tt.ptr<i32>, #l>")
    ),
    "masks on the edge": Kernel(
        INTEGERS + ROWS + EDGE + tile("rows", "r8", "    %v = tt.load %t_a, %inside : tensor<4x8x!tt.ptr<i32>, #l>")
    ),
    "masks over both dimensions": Kernel(INTEGERS + ROWS + tile("rows", "r8", DIAGONAL)),
    "dimensions that change places": Kernel(INTEGERS + ROWS + tile("rows", "r8", TURNED)),
    "other shapes": Kernel(INTEGERS + ROWS + tile("rows", "r8", RESHAPED)),
    "pointers that move on": Kernel(INTEGERS + ROWS + POINTERS),
    "a loop up to the diagonal": Kernel(INTEGERS + CAUSAL),
    "a loop over tiles": Kernel(INTEGERS + PERSISTENT),
    "behind loops that end early": Kernel(INTEGERS + ROWS + LAST, grid=(6, 1, 1)),
    "loops in one": Kernel(INTEGERS + FLATTENED),
    "loops in loops": Kernel(INTEGERS + NESTED, grid=(3, 1, 1)),
    "counters that wrap": Kernel(INTEGERS + WRAPPING),
    "values from the iteration before": Kernel(INTEGERS + BEFORE),
    "branches": Kernel(INTEGERS + BRANCHES),
    "an argument that is a bit": Kernel(
        INTEGERS + ARGUMENT_BIT, parameters="%p: !tt.ptr<i32>, %flag: i1", arguments=(4096, 1)
    ),
    "a bit argument of 0": Kernel(
        INTEGERS + ARGUMENT_BIT, parameters="%p: !tt.ptr<i32>, %flag: i1", arguments=(4096, 0)
    ),
    "early returns": Kernel(INTEGERS + RETURNS),
    "blocks that meet": Kernel(INTEGERS + MEETS, grid=(6, 1, 1)),
    "dots with a predicate": Kernel(INTEGERS + DOTS),
    "constants behind attributes": Kernel(INTEGERS + ATTRIBUTED),
    "partitions": Kernel(INTEGERS + PARTITIONS),
    "a loop with a condition": Kernel(INTEGERS + WHILE, grid=(7, 1, 1)),
    "a condition that passes less on": Kernel(INTEGERS + FEWER, grid=(9, 1, 1)),
    "a condition that passes more on": Kernel(INTEGERS + MORE, grid=(5, 1, 1)),
    "a condition that passes nothing on": Kernel(INTEGERS + NONE, grid=(4, 1, 1)),
    "parts of tiles in a loop": Kernel(INTEGERS + STREAMED, grid=(5, 1, 1)),
}
"""All that they access is known."""

UNKNOWN_BRANCH = (
    """
    %flag_a = tt.addptr %p, %x : !tt.ptr<i32>, i32
    %flag = tt.load %flag_a : !tt.ptr<i32>
    %is_set = arith.cmpi sgt, %flag, %c1 : i32
    %at = scf.if %is_set -> (i32) {
"""
    + load("x", "one")
    + """
      scf.yield %c7 : i32
    } else {
      scf.yield %x : i32
    }
"""
    + load("at", "after")
)
UNKNOWN_LOOP = (
    """
    %flag_a = tt.addptr %p, %x : !tt.ptr<i32>, i32
    %flag = tt.load %flag_a : !tt.ptr<i32>
    %end = scf.for %i = %c0 to %flag step %c1 iter_args(%k = %x) -> (i32)  : i32 {
"""
    + load("k", "one")
    + """
      %k2 = arith.addi %k, %c5 : i32
      scf.yield %k2 : i32
    }
"""
    + load("end", "after")
)
UNKNOWN_WHILE = (
    """
    %end = scf.while (%k = %x) : (i32) -> i32 {
      %flag_a = tt.addptr %p, %k : !tt.ptr<i32>, i32
      %flag = tt.load %flag_a : !tt.ptr<i32>
      %is_set = arith.cmpi sgt, %flag, %c1 : i32
      scf.condition(%is_set) %k : i32
    } do {
    ^bb0(%m: i32):
"""
    + load("m", "one")
    + """
      %m2 = arith.addi %m, %c2 : i32
      scf.yield %m2 : i32
    }
"""
    + load("end", "after")
)
UNKNOWN_RETURN = (
    """
    %flag_a = tt.addptr %p, %x : !tt.ptr<i32>, i32
    %flag = tt.load %flag_a : !tt.ptr<i32>
    %is_set = arith.cmpi sgt, %flag, %c1 : i32
    cf.cond_br %is_set, ^bb1, ^bb2(%x : i32)
  ^bb1:  // pred: ^bb0
"""
    + load("x", "one")
    + """
    cf.br ^bb2(%c7 : i32)
  ^bb2(%at: i32):  // pred: ^bb0
"""
    + load("at", "after")
)
GOES_BACK = (
    """
    cf.br ^bb1(%x : i32)
  ^bb1(%at: i32):  // 2 preds: ^bb0, ^bb1
"""
    + load("at", "one")
    + """
    %next = arith.addi %at, %c1 : i32
    %goes_on = arith.cmpi slt, %next, %c5 : i32
    cf.cond_br %goes_on, ^bb1(%next : i32), ^bb2
  ^bb2:  // pred: ^bb1
"""
    + load("at", "after")
)
UNKNOWN = {
    "a branch that hangs on memory": Kernel(INTEGERS + UNKNOWN_BRANCH),
    "a loop that hangs on memory": Kernel(INTEGERS + UNKNOWN_LOOP),
    "a condition that hangs on memory": Kernel(INTEGERS + UNKNOWN_WHILE),
}
"""Of each, the loads of ``one`` and ``after`` are unknown."""
NEVER_KNOWN = {
    "a return that hangs on memory": Kernel(INTEGERS + UNKNOWN_RETURN),
    "blocks that lead back": Kernel(INTEGERS + GOES_BACK),
}
"""Nor is it known of them whether the blocks behind a branch are come to."""


def touched_by(name: str, ran: Ran) -> int | None:
    """How many bytes the load of this name touches."""
    ranges = next(access for access, _ in ran.accesses() if result_names(access.operation) == [f"%{name}"]).touched()
    return None if ranges is None else ranges.size_bytes


@pytest.mark.parametrize("name", KNOWN)
def test_everything_is_as_plain_loops_have_it(name: str) -> None:
    ran = run(KNOWN[name])
    assert_right(ran)
    assert_bytes_right(ran)
    assert all(one.times is not None for one in ran.found)
    assert all(access.places is not None and access.touched() is not None for access, _ in ran.accesses())


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_hangs_on_memory_is_unknown(name: str) -> None:
    ran = run(UNKNOWN[name])
    assert_right(ran)
    assert_bytes_right(ran)
    times = {name: one.times for one in ran.found for name in result_names(one.operation)}
    assert (times["%one"], times["%after"]) == (None, 4)
    assert (touched_by("one", ran), touched_by("after", ran)) == (None, None)


def test_a_loop_with_a_condition_is_the_same_in_the_generic_form() -> None:
    custom = run(KNOWN["a condition that passes less on"])
    text = KNOWN["a condition that passes less on"].text
    for printed, generic in (
        ("scf.while (%k = %x, %n = %c0) : (i32, i32) -> i32 {", '"scf.while"(%x, %c0) ({\n    ^bb0(%k: i32, %n: i32):'),
        ("scf.condition(%goes_on) %both : i32", '"scf.condition"(%goes_on, %both) : (i1, i32) -> ()'),
        ("} do {", "}, {"),
        ("%m2, %c1 : i32, i32\n    }", "%m2, %c1 : i32, i32\n    }) : (i32, i32) -> i32"),
    ):
        assert printed in text
        text = text.replace(printed, generic)
    module = parse(text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    found = executed(module, function, (9, 1, 1), (4096,))
    assert [one.times for one in found] == [one.times for one in custom.found]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%goes_on) %k : i32", "%goes_on) : i32"),
        ("%goes_on) %k : i32", "%goes_on) %k, %k : i32, i32"),
        ("%goes_on) %k : i32", ""),
        ("scf.condition(%goes_on) %k : i32", ""),
        ("scf.yield %m2 : i32", "scf.yield"),
        ("scf.yield %m2 : i32", "scf.yield %m2, %m2 : i32, i32"),
        ("^bb0(%m: i32):", ""),
        ("%k = %x", "%k = %x, %l = %x"),
    ],
)
def test_where_the_regions_of_a_loop_do_not_fit_nothing_is_known_of_it(before: str, after: str) -> None:
    text = KNOWN["a loop with a condition"].text
    assert before in text
    module = parse(text.replace(before, after))
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    times = {
        name: one.times
        for one in executed(module, function, (7, 1, 1), (4096,))
        for name in result_names(one.operation)
    }
    assert (times["%one"], times["%after"]) == (None, 7)


@pytest.mark.parametrize("name", NEVER_KNOWN)
def test_of_blocks_that_hang_on_memory_nothing_is_known(name: str) -> None:
    ran = run(NEVER_KNOWN[name])
    assert_right(ran)
    assert_bytes_right(ran)
    times = {name: one.times for one in ran.found for name in result_names(one.operation)}
    assert (times["%one"], times["%after"]) == (None, None)
    assert (touched_by("one", ran), touched_by("after", ran)) == (None, None)


@pytest.mark.parametrize("most", [4, 15, 40, 100])
def test_what_is_too_large_is_left_out(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", most)
    for kernel in KNOWN.values():
        ran = run(kernel)
        assert_right(ran)
        assert_bytes_right(ran)


def test_of_a_mask_that_is_too_large_a_part_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison is said to hold where it does so for the whole of a CTA's tile."""
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 100)
    above = "    %d = arith.cmpi sgt, %t_y, %t_x : tensor<4x8xi32, #l>\n"
    below = "    %d = arith.cmpi slt, %t_x, %t_y : tensor<4x8xi32, #l>\n"
    far = "    %t = tt.splat %f : i32 -> tensor<8xi32, #l>\n    %far = arith.subi %t, %r8 : tensor<8xi32, #l>\n"
    for compare in (above, below):
        text = (
            INTEGERS + ROWS + far + tile("r4", "far", compare + "    %v = tt.load %t_a, %d : tensor<4x8x!tt.ptr<i32>>")
        )
        ran = run(Kernel(text, grid=(20, 1, 1)))
        assert_right(ran)
        ((access, touched),) = ran.accesses()
        assert access.mask is not None and access.mask.is_lower_bound
        assert access.places is not None and 0 < access.places < len(touched)
        assert_bytes_right(ran)


@pytest.mark.parametrize("how", ["ori", "xori"])
def test_a_part_of_a_mask_is_not_joined_by_more_than_and(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it may be true in more places, nobody knows what comes out."""
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 100)
    masks = f"""
    %low = arith.cmpi sle, %t_x, %t_y : tensor<4x8xi32, #l>
    %all = arith.constant dense<true> : tensor<4x8xi1, #l>
    %d = arith.{how} %low, %all : tensor<4x8xi1, #l>
    %v = tt.load %t_a, %d : tensor<4x8x!tt.ptr<i32>, #l>
"""
    ran = run(Kernel(INTEGERS + ROWS + tile("rows", "r8", masks)))
    assert_right(ran)
    assert_bytes_right(ran)
    ((access, _),) = ran.accesses()
    assert (access.mask, access.touched()) == (None, None)


@pytest.mark.parametrize("name", KNOWN)
def test_without_arguments_what_hangs_on_them_is_unknown(name: str) -> None:
    ran = run(replace(KNOWN[name], told=()))
    assert_right(ran)
    assert_bytes_right(ran)
    assert all(access.touched() is None for access, _ in ran.accesses())


def knows_integers(path: Path, *, with_arguments: bool) -> bool:
    """Whether any of the integers are known that the functions of a module compute with."""
    module = parse(read(path), str(path))
    functions = [one for one in module.walk() if one.name == FUNCTION]
    arguments = [[64] * len(argument_names(module, one)) * with_arguments for one in functions]
    found = [executed(module, one, (4, 2, 1), given) for one, given in zip(functions, arguments, strict=True)]
    return any(isinstance(value, IntegerExpr) for operations in found for one in operations for value in one.operands)


@pytest.mark.parametrize(
    "line",
    [
        "%y = arith.addi %x : i32",
        "%y = arith.addi : i32",
        "%y = arith.divsi %x, %c0 : i32",
        "%y = arith.shli %x, %huge : i32",
        "%y = arith.constant 123456789012345678901234567890 : i64",
        "%y = arith.select %true, %x : i32",
        "%y = tt.addptr %p : !tt.ptr<i32>, i32",
        "%y = tt.trans %t_a {order = array<i32: 7, 8>} : tensor<4x8x!tt.ptr<i32>, #l> -> tensor<8x4x!tt.ptr<i32>, #l>",
        "%y = tt.reshape %t_o : tensor<4x8xi32, #l> -> tensor<5x5xi32, #l>",
        "%y = tt.expand_dims {axis = 1 : i32} : tensor<4xi32, #l> -> tensor<4x1xi32, #l>",
        "%y = tt.make_range {end = 2000000000 : i32, start = 0 : i32} : tensor<4xi32, #l>",
        "%y = tt.make_range {end = 2000000000 : i32, start = 0 : i32} : tensor<2000000000xi32, #l>",
        "%y = tt.make_range {start = 0 : i32} : tensor<4xi32, #l>",
        "%y = tt.make_tensor_descriptor : <f16>, <tensor<4x8xf16, #s>>",
        "%y = ttng.reinterpret_tensor_descriptor : !tt.ptr<i8> to !tt.tensordesc<tensor<4x8xf16, #s>>",
        "%y = ttg.memdesc_index %x : !ttg.memdesc<3x4xf16, #s, #smem> -> !ttg.memdesc<4xf16, #s, #smem>",
        "%y = tt.get_program_id : i32",
        "ttng.tensormap_create : () -> ()",
        "ttng.tc_gen5_mma : ()",
    ],
)
def test_an_operation_that_does_not_fit_gives_something_unknown(line: str) -> None:
    """And everything else is known as before."""
    huge = "    %huge = arith.constant 400000000000 : i64\n"
    more = f"{huge}    {line}\n    %v = tt.load %t_a : tensor<4x8x!tt.ptr<i32>, #l>"
    module = parse(Kernel(INTEGERS + ROWS + tile("rows", "r8", more)).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    found = executed(module, function, (4, 1, 1), (4096,))
    access = access_of(found[-1])
    assert access is not None and access.touched() is not None
    makes = [one for one in found if "%y" in one.operation.results]
    assert len(makes) == line.startswith("%y")


def test_a_loop_that_is_too_long_has_its_operations() -> None:
    body = """
    %most = arith.constant 9000000000000000000 : i64
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %end = scf.for %i = %zero to %most step %one iter_args(%k = %x) -> (i32)  : i64 {
      %k2 = arith.addi %k, %c1 : i32
      scf.yield %k2 : i32
    }
"""
    module = parse(Kernel(INTEGERS + body).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    (inside,) = (one for one in executed(module, function, (4, 1, 1), (4096,)) if "%k2" in one.operation.results)
    assert inside.times is None


def test_loops_in_loops_take_bounded_time() -> None:
    """Each is gone through twice or more, and so is each in it."""
    head = "scf.for %i = %c0 to %n step %c1 iter_args(%k = %x) -> (i32)  : i32 {\n"
    body = head * 200 + load("x", "one") + "scf.yield %x : i32\n}\n" * 200
    module = parse(Kernel(INTEGERS + body).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    found = executed(module, function, (4, 1, 1), (4096,))
    assert {name for one in found for name in result_names(one.operation)} >= {"%one", "%one_a"}


def test_all_compiled_kernels_are_gone_through() -> None:
    """Integers are found in most: few kernels only return, or call others."""
    known = [knows_integers(path, with_arguments=given) for path in fixtures("3.6.0") for given in (False, True)]
    assert sum(known) > 0.95 * len(known)


@given(kernels(), st.sampled_from((5, 30, 1 << 22)))
@settings(max_examples=35, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_kernels_of_any_kind_are_as_plain_loops_have_them(kernel: Kernel, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axis_arrays, "MAX_ELEMENTS", most)
        try:
            ran = run(kernel)
        except Overflow:
            reject()
        assert_right(ran)
        assert_bytes_right(ran, sms=[cta % 3 for cta in range(prod(kernel.grid))])

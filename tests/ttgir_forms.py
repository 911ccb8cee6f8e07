"""Hand-written TTGIR, one text for each habit of the printer, and the outline that each has.

In an outline an operation's children are indented below it; ``/`` begins a second or later region, with the word
that is printed before it; a block's label stands where the block begins.
"""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.ttgir.nodes import Module, Operation


@dataclass(frozen=True)
class Form:
    name: str
    text: str
    outline: str

    def __repr__(self) -> str:  # the test's id
        return self.name


def outline(module: Module) -> str:
    """The module in the form of ``Form.outline``."""
    return "\n" + "".join(line for operation in module.operations for line in _lines(operation, ""))


def _lines(operation: Operation, indent: str) -> list[str]:
    lines = [f"{indent}{operation.name}\n"]
    for index, region in enumerate(operation.regions):
        if index or region.clause:
            lines.append(f"{indent}/ {region.clause}".rstrip() + "\n")
        for block in region.blocks:
            if block.label:
                lines.append(f"{indent}{block.label}\n")
            for child in block.operations:
                lines += _lines(child, indent + "  ")
    return lines


CONTROL_FLOW = Form(
    "control flow",
    """\
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @kernel(%n: i32 {tt.divisibility = 16 : i32}) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    scf.for %i = %c0 to %n step %c1  : i32 {
    } {tt.num_stages = 3 : i32}
    %sum, %last = scf.for %i = %c0 to %n step %c1 iter_args(%a = %c0, %b = %c0) -> (i32, i32)  : i32 {
      %even = arith.cmpi eq, %i, %a : i32
      %next = scf.if %even -> (i32) {
        scf.yield %c1 : i32
      } else {
        scf.if %even {
          %unused = arith.addi %a, %b : i32
        } else {
          %unused = arith.subi %a, %b : i32
        } {tag}
        scf.yield %c0 : i32
      }
      scf.yield %next, %i : i32, i32
    } {tt.loop_unroll_factor = 2 : i32}
    %left:2 = scf.while (%a = %n, %b = %c0) : (i32, i32) -> (i32, i32) {
      %more = arith.cmpi sgt, %a, %c0 : i32
      scf.condition(%more) %a, %b : i32, i32
    } do {
    ^bb0(%a: i32, %b: i32):
      %less = arith.subi %a, %c1 : i32
      scf.yield %less, %b : i32, i32
    } attributes {tt.flatten}
    tt.return
  }
}
""",
    """
module
  tt.func
    arith.constant
    arith.constant
    scf.for
    scf.for
      arith.cmpi
      scf.if
        scf.yield
      / else
        scf.if
          arith.addi
        / else
          arith.subi
        scf.yield
      scf.yield
    scf.while
      arith.cmpi
      scf.condition
    / do
    ^bb0
      arith.subi
      scf.yield
    tt.return
""",
)

BLOCKS = Form(
    "block labels",
    """\
module {
  tt.func public @kernel(%c: i1, %x: i32) {
    cf.cond_br %c, ^bb1, ^bb2(%x : i32)
  ^bb1:  // pred: ^bb0
    tt.return
  ^bb2(%y: i32):  // pred: ^bb0
    %0 = arith.addi %y, %x : i32
    cf.br ^bb3
  ^bb3:
    tt.return
  }
}
""",
    """
module
  tt.func
    cf.cond_br
  ^bb1
    tt.return
  ^bb2
    arith.addi
    cf.br
  ^bb3
    tt.return
""",
)

GENERIC = Form(
    "generic form",
    """\
"builtin.module"() ({
  "tt.func"() <{function_type = (i32, i1) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  ^bb0(%arg0: i32, %arg1: i1):
    %0 = "arith.constant"() <{value = 1 : i32}> : () -> i32
    "scf.for"(%0, %arg0, %0) ({
    ^bb0(%arg2: i32):
      "scf.if"(%arg1) ({
        "tt.print"() <{hex = false, isSigned = array<i32>, prefix = " {"}> : () -> ()
        "scf.yield"() : () -> ()
      }, { // else
      }) : (i1) -> ()
      "scf.yield"() : () -> ()
    }) {tt.num_stages = 2 : i32} : (i32, i32, i32) -> ()
    %1 = "scf.while"(%arg0) ({
    ^bb0(%arg3: i32):
      "scf.condition"(%arg1, %arg3) : (i1, i32) -> ()
    }, {
    ^bb0(%arg4: i32):
      "scf.yield"(%arg4) : (i32) -> ()
    }) : (i32) -> i32
    "cf.br"()[^bb1] : () -> ()
  ^bb1:
    "tt.return"() : () -> ()
  }) {noinline = false} : () -> ()
}) : () -> ()
""",
    """
builtin.module
  tt.func
  ^bb0
    arith.constant
    scf.for
    ^bb0
      scf.if
        tt.print
        scf.yield
      /
      scf.yield
    scf.while
    ^bb0
      scf.condition
    /
    ^bb0
      scf.yield
    cf.br
  ^bb1
    tt.return
""",
)

GENERIC_WARP_SPECIALIZE = Form(
    "generic form of warp specialization",
    """\
"builtin.module"() ({
  "tt.func"() <{function_type = () -> (), sym_name = "kernel", sym_visibility = "public"}> ({
    "ttg.warp_specialize"() <{partitionNumWarps = array<i32: 4>}> ({
      "ttg.warp_yield"() : () -> ()
    }, {
      "ttg.warp_specialize.partitions"() ({
        "ttg.warp_return"() : () -> ()
      }) : () -> ()
    }) : () -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) {"ttg.num-warps" = 4 : i32} : () -> ()
""",
    """
builtin.module
  tt.func
    ttg.warp_specialize
      ttg.warp_yield
    /
      ttg.warp_specialize.partitions
        ttg.warp_return
    tt.return
""",
)

STRINGS = Form(
    "strings",
    r"""module {
  tt.func public @kernel(%x: i32, %c: i1) {
    tt.print " } else { // \22 loc(unknown) " {hex = false, isSigned = array<i32: 1>} : %x : i32
    tt.print " {" {hex = false, isSigned = array<i32>}
    %0 = tt.elementwise_inline_asm "{\0A\09// \22\0A\09mov.b32 $0, $1;\0A}" {constraints = "=r,r", packed_element = 1 : i32, pure = true} %x : i32 -> i32
    scf.if %c {
      tt.print " \\" {hex = false, isSigned = array<i32>}
    } {tag = "} else {\5C"}
    tt.return
  }
}
""",  # noqa: E501
    """
module
  tt.func
    tt.print
    tt.print
    tt.elementwise_inline_asm
    scf.if
      tt.print
    tt.return
""",
)

COMMENTS = Form(
    "comments",
    """\
// kernel "a" {
#tag = 1 : i32 // }
module { // of one kernel: {
  // "
  tt.func public @kernel(%c: i1) { // "
    %0 = arith.constant 8 : i32 // half / full "{
    scf.if %c { // then {
      // }
    } else { // otherwise }
      %1 = arith.divsi %0, %0 : i32 //
    } // "if" {
    //
    cf.br ^bb1 // {

  ^bb1: // pred: "^bb0" {
    tt.return// }
  } // }
} // "
""",
    """
module
  tt.func
    arith.constant
    scf.if
    / else
      arith.divsi
    cf.br
  ^bb1
    tt.return
""",
)

WARP_SPECIALIZE = Form(
    "warp specialization",
    """\
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @kernel(%x: i32) {
    %0 = ttg.warp_specialize(%x) attributes {requestedRegisters = array<i32: 24, 24>}
    default {
      ttg.warp_yield %x : i32
    }
    partition0(%a: i32) num_warps(4) {
      %1 = arith.addi %a, %a : i32
      ttg.warp_return
    }
    partition1(%a: i32) num_warps(1) {
      cf.br ^bb1
    ^bb1:  // pred: ^bb0
      ttg.warp_return
    } : (i32) -> i32
    ttg.warp_specialize()
    default {
      ttg.warp_yield
    } : () -> ()
    tt.return
  }
}
""",
    """
module
  tt.func
    ttg.warp_specialize
    / default
      ttg.warp_yield
    / partition0
      arith.addi
      ttg.warp_return
    / partition1
      cf.br
    ^bb1
      ttg.warp_return
    ttg.warp_specialize
    / default
      ttg.warp_yield
    tt.return
""",
)

REDUCE = Form(
    "combine regions",
    """\
#blocked = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32} {
  tt.func public @kernel(%x: tensor<128xf32, #blocked>) {
    %0 = "tt.reduce"(%x) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %2 = arith.addf %a, %b : f32
      tt.reduce.return %2 : f32
    }) : (tensor<128xf32, #blocked>) -> f32
    %1 = "tt.scan"(%x) <{axis = 0 : i32, reverse = false}> ({
    ^bb0(%a: f32, %b: f32):
      %2 = arith.addf %a, %b : f32
      tt.scan.return %2 : f32
    }) : (tensor<128xf32, #blocked>) -> tensor<128xf32, #blocked>
    tt.return
  }
}
""",
    """
module
  tt.func
    tt.reduce
    ^bb0
      arith.addf
      tt.reduce.return
    tt.scan
    ^bb0
      arith.addf
      tt.scan.return
    tt.return
""",
)

LOCATIONS = Form(
    "locations",
    """\
#loc = loc("/a/k.py":8:0)
#loc1 = loc("/a/k.py":9:4)
#loc2 = loc("x"(#loc))
module {
  tt.func public @kernel(%x: i32 loc("x"(#loc)), %c: i1 loc("c {"(#loc))) {
    cf.br ^bb1(%x : i32) loc(#loc1)
  ^bb1(%y: i32 loc("y":1:2)):  // pred: ^bb0
    scf.if %c {
      %0 = arith.addi %y, %x : i32 loc(fused[#loc1, callsite(#loc2 at "/a/{b}.py":3:4)])
    } loc("}"(#loc1))
    tt.return loc(#loc3)
  } loc(#loc)
} loc(#loc)
#loc3 = loc("/a/k.py":10:4)
""",
    """
module
  tt.func
    cf.br
  ^bb1
    scf.if
      arith.addi
    tt.return
""",
)

METADATA = Form(
    "file metadata",
    """\
module {
  tt.func public @kernel() {
    tt.return
  }
}

{-#
  external_resources: {
    kprof: {
      text: "#- } {",
      blob: "0x08000000010203"
    }
  }
#-}
""",
    """
module
  tt.func
    tt.return
""",
)

DECLARATION = Form(
    "a function without a body",
    """\
module {
  tt.func private @helper(i32) -> i32 attributes {noinline = true}
  tt.func public @kernel(%x: i32) {
    %0 = tt.call @helper(%x) : (i32) -> i32
    tt.return
  }
}
""",
    """
module
  tt.func
  tt.func
    tt.call
    tt.return
""",
)

SPACING = Form(
    "odd spacing",
    "\n\n\t module{\n\n\ttt.func @kernel( ) { \t\n\n   \n  tt.return\n\n\n }\t\n\n}  \n\n \t",
    """
module
  tt.func
    tt.return
""",
)

SWITCHES = Form(
    "switches",
    """\
module {
  tt.func public @kernel(%x: i32, %i: index) {
    cf.switch %x : i32, [
      default: ^bb1(%x : i32),
      42: ^bb1(%x : i32),
      43: ^bb2
    ] {tag = "]"}
  ^bb1(%y: i32):  // 3 preds: ^bb0, ^bb0, ^bb1
    %0 = scf.index_switch %i -> i32 
    case 2 {
      scf.yield %x : i32
    }
    case -5 {
      scf.yield %y : i32
    }
    default {
      scf.yield %y : i32
    } loc("switch.py":1:2)
    scf.index_switch %i {tag} 
    default {
    }
    llvm.switch %x : i32, ^bb2 [
      1: ^bb1(%x : i32),
      2: ^bb2
    ]
  ^bb2:  // 2 preds: ^bb0, ^bb1
    tt.return
  }
}
""",
    """
module
  tt.func
    cf.switch
  ^bb1
    scf.index_switch
    / case
      scf.yield
    / case
      scf.yield
    / default
      scf.yield
    scf.index_switch
    / default
    llvm.switch
  ^bb2
    tt.return
""",
)

OTHER_REGIONS = Form(
    "regions of other operations",
    """\
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @kernel(%x: i32, %i: index, %t: tensor<128xi32, #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>>) {
    scf.execute_region {
      cf.br ^bb1
    ^bb1:  // pred: ^bb0
      scf.yield
    }
    %0 = scf.execute_region -> i32 {
      scf.yield %x : i32
    } {tag}
    %1:2 = scf.parallel (%j) = (%i) to (%i) step (%i) init (%x, %x) -> (i32, i32) {
      scf.reduce(%x, %x : i32, i32) {
      ^bb0(%a: i32, %b: i32):
        scf.reduce.return %a : i32
      }, {
      ^bb0(%a: i32, %b: i32):
        scf.reduce.return %b : i32
      }
    }
    scf.parallel (%j) = (%i) to (%i) step (%i) {
      scf.reduce 
    }
    %2 = "tt.map_elementwise"(%t) <{pack = 1 : i32}> ({
    ^bb0(%a: i32):
      cf.br ^bb1(%a : i32)
    ^bb1(%b: i32):  // pred: ^bb0
      tt.map_elementwise.return %b : i32
    }) : (tensor<128xi32, #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>>) -> tensor<128xi32, #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>>
    tt.return
  }
}
""",  # noqa: E501
    """
module
  tt.func
    scf.execute_region
      cf.br
    ^bb1
      scf.yield
    scf.execute_region
      scf.yield
    scf.parallel
      scf.reduce
      ^bb0
        scf.reduce.return
      /
      ^bb0
        scf.reduce.return
    scf.parallel
      scf.reduce
    tt.map_elementwise
    ^bb0
      cf.br
    ^bb1
      tt.map_elementwise.return
    tt.return
""",
)

BROKEN_LINES = Form(
    "operations broken over lines",
    """\
#loc =
  loc("k.py" :1:2)
module
    attributes
      {"ttg.num-warps" = 4 : i32,
       ttg.tag} {
  tt.func public
    @kernel(%n: i32 {tt.divisibility = 16 : i32},  // how many
            %c: i1) attributes
        {noinline = false}
  {
    %c0 =
      arith.constant 0
        : i32
    %c1 = // one
      arith.constant 1 : i32 loc(fused[ // here
        #loc,
        "k.py":3:4])
    %sum,
    %last = scf.for %i = %c0 to %n
        step %c1
        iter_args(
          %a = %c0, %b = %c0
        ) -> (i32,
              i32) : i32 {
      scf.if %c
      {
        // then
      }
      // }
      else // if not {
      {
        %unused = arith.addi %a,
          // the other

          %b : i32
      }
      {tag = 1 : i32}
      %w = "scf.if"(
          %c)
        ({
          "scf.yield"(%a) : (i32) -> ()
        },
        {
          "scf.yield"(%b) : (i32) -> ()
        }
        ) :
        (i1) -> (i32)
      scf.yield %a, %b :
        i32, i32
    }
    cf.cond_br %c,
      ^bb1(%c0,
           %c1 : i32, i32),
      ^bb2
  ^bb1(%x: i32,  // "first":
       %y: i32)  :
    tt.return
  ^bb2: // last
    tt.return
  }
}
""",
    """
module
  tt.func
    arith.constant
    arith.constant
    scf.for
      scf.if
      / else
        arith.addi
      scf.if
        scf.yield
      /
        scf.yield
      scf.yield
    cf.cond_br
  ^bb1
    tt.return
  ^bb2
    tt.return
""",
)

BROKEN_CLAUSES = Form(
    "clauses broken over lines",
    """\
module attributes {"ttg.num-warps" = 4 : i32} {
tt.func public @kernel(%x: i32, %y: i32, %i: index) {
%0 = ttg.warp_specialize(%x, %y)

attributes {requestedRegisters = array<i32: 24>} // default {

// partition0
default
{
ttg.warp_yield %x : i32
} // }

partition0(%a: i32,
           %b: i32) num_warps(4)
{
ttg.warp_return
} : (i32, i32)
  -> i32
\t\tscf.index_switch %i // {
// case 1 {
case 1 // {
{
scf.yield
} // case 2
\tdefault { // case 3
\t\t\t}
tt.return
}
}
""",
    """
module
  tt.func
    ttg.warp_specialize
    / default
      ttg.warp_yield
    / partition0
      ttg.warp_return
    scf.index_switch
    / case
      scf.yield
    / default
    tt.return
""",
)

UNICODE = Form(
    "unicode",
    """\
#loc = loc("größe.py":1:2) // « } »
module { // 模块
  tt.func public @kernel(%x: i32 loc("größe"(#loc))) {
    tt.print " \u2028 × 大小: 🙂 } else { " {hex = false, isSigned = array<i32: 1>} : %x : i32 loc("naïve \\E4"(#loc))
    tt.return // \u2028tt.return
  } // \x0b\x0c\x85
}
""",
    """
module
  tt.func
    tt.print
    tt.return
""",
)

NESTED_MODULES = Form(
    "nested modules",
    """\
module @outer {
  module @inner attributes {"ttg.num-warps" = 4 : i32} {
    tt.func private @helper() {
      tt.return
    }
  }
  module {
  }
  tt.func public @kernel() {
    tt.return
  }
}
""",
    """
module
  module
    tt.func
      tt.return
  module
  tt.func
    tt.return
""",
)

METADATA_BETWEEN = Form(
    "metadata between strings and comments",
    """\
#loc = loc(unknown)
{-# // "of one #-}
  external_resources: {
    kprof: {
      text: "#-} {", // }
      half: "1/2"
    }
  }
#-}

#loc1 = loc("a.py":1:2)
module {
  tt.func public @kernel() {
    tt.return loc(#loc1)
  } loc(#loc2)
} loc(#loc)
#loc2 = loc("b"(#loc1))
""",
    """
module
  tt.func
    tt.return
""",
)

ONE_LINE = Form(
    "operations that share a line",
    """\
#loc = loc("k.py":1:2) #loc1 = loc("x"(#loc)) module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func private @helper(%x: i32 {tt.divisibility = 16 : i32}) -> i32 { tt.return %x : i32 } tt.func public @kernel(%n: i32, %c: i1, %i: index) {
    %a = arith.constant 1 : i32 %b = arith.constant 2 : i32 // %no = arith.constant 3 : i32
    %d, %e = scf.if %c -> (i32, i32) {scf.yield %a, %b : i32, i32}else{ scf.yield %b, %a : i32, i32 } loc("y"(#loc)) %f = arith.addi %d, %e : i32
    scf.if %c { gpu.barrier } else { gpu.barrier } {tag} gpu.barrier gpu.barrier
    scf.if %c {} else {
    } scf.for unsigned %j = %a to %n step %b : i32 { } {tt.num_stages = 2 : i32}
    %g, %g1 = scf.for %j = %a to %n step %b iter_args(%x = %a, %y = %b) -> (i32, i32) : i32 { %z = arith.addi %x, %y : i32 scf.yield %z, %x : i32, i32 } {tt.flatten} tt.print "tt.return %q = x.y(" {hex = false, isSigned = array<i32>}
    %h = "arith.constant"() <{value = 1 : i32}> : () -> i32 %k = tt.call @helper(%h) : (i32) -> i32 loc(callsite("f"(#loc) at "g"(#loc))) cf.assert %c, "tt.x" "cf.assert"(%c) <{msg = "m"}> : (i1) -> () loc(fused["tt.q"(#loc), "u"(#loc1)])
    "scf.if"(%c) ({ "scf.yield"() : () -> () }, { }) : (i1) -> () %l = scf.while (%x = %n) : (i32) -> i32 { scf.condition(%c) %x : i32 } do { ^bb0(%y: i32 loc("y"(#loc))): scf.yield %y : i32 } attributes {tt.flatten}
    scf.index_switch %i {tag} case 1 { scf.yield } case -2 {scf.yield} default {scf.yield} %m = ttg.async_commit_group %o = ttg.async_commit_group tokens %m ttg.async_wait {num = 0 : i32}
    ttg.warp_specialize() default { ttg.warp_yield } partition0() num_warps(4) { ttg.warp_return } partition1() num_warps(2) { cf.br ^bb1 ^bb1: ttg.warp_return } : () -> () cf.br ^bb1(%n : i32) ^bb1(%x: i32): cf.cond_br %c, ^bb2, ^bb3 {tag} ^bb2: tt.return
  ^bb3: proton.record start "x" tt.return } } {-# external_resources: { k: { b: "0x08000000010203" } } #-}
""",  # noqa: E501
    """
module
  tt.func
    tt.return
  tt.func
    arith.constant
    arith.constant
    scf.if
      scf.yield
    / else
      scf.yield
    arith.addi
    scf.if
      gpu.barrier
    / else
      gpu.barrier
    gpu.barrier
    gpu.barrier
    scf.if
    / else
    scf.for
    scf.for
      arith.addi
      scf.yield
    tt.print
    arith.constant
    tt.call
    cf.assert
    cf.assert
    scf.if
      scf.yield
    /
    scf.while
      scf.condition
    / do
    ^bb0
      scf.yield
    scf.index_switch
    / case
      scf.yield
    / case
      scf.yield
    / default
      scf.yield
    ttg.async_commit_group
    ttg.async_commit_group
    ttg.async_wait
    ttg.warp_specialize
    / default
      ttg.warp_yield
    / partition0
      ttg.warp_return
    / partition1
      cf.br
    ^bb1
      ttg.warp_return
    cf.br
  ^bb1
    cf.cond_br
  ^bb2
    tt.return
  ^bb3
    proton.record
    tt.return
""",
)

BROKEN_ATTRIBUTES = Form(
    "attributes broken over lines",
    """\
module attributes {
  "ttg.num-warps" = 4 : i32
} {
  tt.func public @kernel(%c: i1) attributes {
    noinline = false
  } {
    scf.if %c {
    } {
      tag = {a = "}", b = {c = 1 : i32}},  // }
      other
    }
    tt.return {
      tag,
      more = #ttg.slice<{dim = 0, parent = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [1, 4], order = [1, 0]}>}>
    }
  }
}
""",  # noqa: E501
    """
module
  tt.func
    scf.if
    tt.return
""",
)

FORMS = (
    CONTROL_FLOW,
    BLOCKS,
    GENERIC,
    GENERIC_WARP_SPECIALIZE,
    STRINGS,
    COMMENTS,
    WARP_SPECIALIZE,
    REDUCE,
    LOCATIONS,
    METADATA,
    DECLARATION,
    SPACING,
    SWITCHES,
    OTHER_REGIONS,
    BROKEN_LINES,
    BROKEN_CLAUSES,
    UNICODE,
    NESTED_MODULES,
    METADATA_BETWEEN,
    ONE_LINE,
    BROKEN_ATTRIBUTES,
)

"""Hypothesis strategies for TTGIR: every kind of region, nested at random and spaced oddly."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Op:
    """An operation as it is printed: its first line, then further lines of its own and operations inside it."""

    name: str
    parts: tuple[str | Op, ...]


@dataclass(frozen=True)
class GeneratedModule:
    """``operations`` are names with their depth, in the order of the text."""

    text: str
    operations: list[tuple[int, str]]


LEAVES = st.sampled_from(
    [
        Op("gpu.barrier", ("gpu.barrier",)),
        Op("arith.addi", ("%0 = arith.addi %x, %y : i32 loc(#loc1)",)),
        Op("tt.store", ('tt.store %p, %x {tag = {of = "}"}} : !tt.ptr<i32> loc("p"("/a {b}.py":3:4))',)),
        Op("tt.print", (r'tt.print "} else { // \22 loc(" {hex = false} : %x : i32',)),
        Op("tt.elementwise_inline_asm", (r'%1:2 = tt.elementwise_inline_asm "{\0A//\09}" {} %x : i32 -> i32, i32',)),
        Op("test.opaque", ('%2 = "test.opaque"(%x) <{value = "{"}> {half = 1 / 2} : (i32) -> i32',)),
    ]
)


def region_ops(inner: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
    """Operations with regions of ``inner`` operations."""
    body = st.lists(inner, max_size=3).map(tuple)
    closing = st.sampled_from(["", " {tt.num_stages = 3 : i32}", ' attributes {tag = "{"}', " loc(#loc2)"])
    yields = Op("scf.yield", ("scf.yield %x : i32",))
    returns = Op("tt.reduce.return", ("tt.reduce.return %x : f32",))
    condition = Op("scf.condition", ("scf.condition(%c) %x : i32",))
    return st.one_of(
        st.builds(
            lambda body, end: Op("scf.for", ("scf.for %i = %a to %n step %s  : i32 {", *body, "}" + end)), body, closing
        ),
        st.builds(
            lambda body, end: Op(
                "scf.for",
                ("%r = scf.for %i = %a to %n step %s iter_args(%x = %y) -> (i32)  : i32 {", *body, yields, "}" + end),
            ),
            body,
            closing,
        ),
        st.builds(
            lambda before, after, end: Op(
                "scf.while",
                (
                    "%w = scf.while (%x = %y) : (i32) -> i32 {",
                    *before,
                    condition,
                    "} do {",
                    "^bb0(%x: i32):",
                    *after,
                    yields,
                    "}" + end,
                ),
            ),
            body,
            body,
            closing,
        ),
        st.builds(lambda then, end: Op("scf.if", ("scf.if %c {", *then, "}" + end)), body, closing),
        st.builds(
            lambda then, other, end: Op(
                "scf.if", ("%r = scf.if %c -> (i32) {", *then, yields, "} else {", *other, yields, "}" + end)
            ),
            body,
            body,
            closing,
        ),
        st.builds(
            lambda leaves: Op(
                "tt.reduce",
                (
                    '%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
                    '^bb0(%a: f32 loc("a"), %b: f32 loc("b")):',
                    *leaves,
                    returns,
                    "}) : (tensor<128xf32, #blocked>) -> f32",
                ),
            ),
            st.lists(LEAVES, max_size=2),
        ),
        st.builds(
            lambda default, partition, end: Op(
                "ttg.warp_specialize",
                (
                    "ttg.warp_specialize(%x) attributes {requestedRegisters = array<i32: 24>}",
                    "default {",
                    *default,
                    Op("ttg.warp_yield", ("ttg.warp_yield",)),
                    "}",
                    'partition0(%x: i32 loc("x")) num_warps(4) {',
                    *partition,
                    Op("ttg.warp_return", ("ttg.warp_return",)),
                    "} : (i32) -> ()" + end,
                ),
            ),
            body,
            body,
            st.sampled_from(["", " loc(#loc2)"]),
        ),
    )


STATEMENTS = st.recursive(LEAVES, lambda inner: LEAVES | region_ops(inner), max_leaves=12)
BODIES = st.lists(STATEMENTS, max_size=4).map(tuple)
RETURN = Op("tt.return", ("tt.return loc(unknown)",))


@st.composite
def functions(draw: st.DrawFn) -> Op:
    """A kernel of one block, or of three with a return in each of two."""
    head = "tt.func public @kernel(%x: i32 {tt.divisibility = 16 : i32}) attributes {noinline = false} {"
    entry = draw(BODIES)
    if draw(st.booleans()):
        return Op("tt.func", (head, *entry, RETURN, "} loc(#loc1)"))
    branch = Op("cf.cond_br", ("cf.cond_br %c, ^bb1, ^bb2(%x : i32)",))
    early, late = draw(BODIES), draw(BODIES)
    labels = ("^bb1:  // pred: ^bb0", "^bb2(%z: i32):")
    return Op("tt.func", (head, *entry, branch, labels[0], *early, RETURN, labels[1], *late, RETURN, "}"))


# What stands before a line, how far it is indented beyond its depth, and what stands behind it.
SPACING = st.sampled_from(
    [
        ((), "", ""),
        ((), "  ", " "),
        ((), "\t", " // {"),
        (("",), "", ' // "'),
        (("  \t", "// } else {"), " ", "\t// }"),
    ]
)


@st.composite
def modules(draw: st.DrawFn) -> GeneratedModule:
    lines: list[str] = []
    operations: list[tuple[int, str]] = []

    def write(operation: Op, depth: int) -> None:
        operations.append((depth, operation.name))
        for part in operation.parts:
            if isinstance(part, Op):
                write(part, depth + 1)
            else:
                before, indent, after = draw(SPACING)
                lines.extend([*before, "  " * depth + indent + part + after])

    write(Op("module", ('module attributes {"ttg.num-warps" = 4 : i32} {', draw(functions()), "}")), 0)
    head = draw(st.sampled_from([[], ["#loc1 = loc(unknown)", '#loc2 = loc("/a {":1:2) // "']]))
    tail = draw(st.sampled_from([[], ["#loc3 = loc(#loc1)", "", "{-#", '  external_resources: {a: "} {"}', "#-}"]]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    end = draw(st.sampled_from([newline, ""]))
    return GeneratedModule(newline.join([*head, *lines, *tail]) + end, operations)

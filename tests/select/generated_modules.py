"""Hypothesis strategies for TTGIR: every kind of region, nested at random, in custom and generic form, spaced oddly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Op:
    """An operation as it is printed: lines of its own, and operations inside it."""

    name: str
    parts: tuple[str | Op, ...]


@dataclass(frozen=True)
class GeneratedModule:
    """``operations`` are names with their depth, in the order of the text."""

    text: str
    operations: list[tuple[int, str]]


def op(name: str, *parts: str | Op) -> Op:
    return Op(name, parts)


LEAVES = st.sampled_from(
    [
        op("gpu.barrier", "gpu.barrier"),
        op("arith.addi", "%0 = arith.addi %x, %y : i32 loc(#loc1)"),
        op("arith.muli", "%0 =", "arith.muli %x, // of two", "%y", ": i32"),
        op("tt.store", 'tt.store %p, %x {tag = {of = "}"}} : !tt.ptr<i32> loc("p"("/a {b}.py":3:4))'),
        op("tt.print", r'tt.print "} else { // \22 loc(" {hex = false} : %x : i32'),
        op("tt.print", f'tt.print "{"} else {{ größe 大 🙂 " * 50}" : %x : i32 loc("größe"(#loc1))'),
        op("tt.elementwise_inline_asm", r'%1:2 = tt.elementwise_inline_asm "{\0A//\09}" {} %x : i32 -> i32, i32'),
        op("test.opaque", '%2 = "test.opaque"(%x) <{value = "{"}> {half = 1 / 2} : (i32) -> i32'),
        op("ttg.barrier", '"ttg.barrier"() : () -> () loc(callsite(#loc1 at "x.py":1:2))'),
    ]
)

CLOSINGS = st.sampled_from(["", " {tt.num_stages = 3 : i32}", ' attributes {tag = "{"}', " loc(#loc2)"])
ELSE = st.sampled_from([("} else {",), ("}", "else {"), ("} // then", "// } else {", "else", "{")])
NEXT = st.sampled_from([("}, {",), ("},", "{"), ("}", ", {")])

YIELD = op("scf.yield", "scf.yield %x : i32")
GENERIC_YIELD = op("scf.yield", '"scf.yield"(%x) : (i32) -> ()')
CONDITION = op("scf.condition", "scf.condition(%c) %x : i32")
RETURN = op("tt.return", "tt.return loc(unknown)")

Parts = tuple[str | Op, ...]


def region_ops(inner: st.SearchStrategy[Op]) -> st.SearchStrategy[Op]:
    """Operations with regions of ``inner`` operations."""
    body = st.lists(inner, max_size=3).map(tuple)

    def of(name: str, parts: Callable[..., Parts], *drawn: st.SearchStrategy[Parts]) -> st.SearchStrategy[Op]:
        """The operation whose parts are made of what is drawn, with something behind its last brace."""
        return st.builds(lambda end, *found: Op(name, (*parts(*found)[:-1], parts(*found)[-1] + end)), CLOSINGS, *drawn)

    return st.one_of(
        of("scf.for", lambda body: ("scf.for %i = %a to %n step %s  : i32 {", *body, "}"), body),
        of(
            "scf.for",
            lambda body: ("%r = scf.for %i = %a to %n", "step %s iter_args(", "%x = %y)", "{", *body, YIELD, "}"),
            body,
        ),
        of(
            "scf.for",
            lambda body: ('%r = "scf.for"(%a, %n, %s, %y) ({', "^bb0(%i: i32, %x: i32):", *body, GENERIC_YIELD, "})"),
            body,
        ),
        of(
            "scf.while",
            lambda before, after: (
                *("%w = scf.while (%x = %y) : (i32) -> i32 {", *before, CONDITION),
                *("} do {", "^bb0(%x: i32):", *after, YIELD, "}"),
            ),
            body,
            body,
        ),
        of("scf.if", lambda then: ("scf.if %c {", *then, "}"), body),
        of(
            "scf.if",
            lambda then, orelse, other: ("%r = scf.if %c -> (i32) {", *then, YIELD, *orelse, *other, YIELD, "}"),
            body,
            ELSE,
            body,
        ),
        of(
            "scf.if",
            lambda then, between, other: (
                *('%r = "scf.if"(%c) ({', *then, GENERIC_YIELD, *between, *other, GENERIC_YIELD, "})"),
                ": (i1) -> i32",
            ),
            body,
            NEXT,
            body,
        ),
        of(
            "scf.index_switch",
            lambda one, other: (
                *("%r = scf.index_switch %i -> i32 ", "case 2 {", *one, YIELD, "}"),
                *("default {", *other, YIELD, "}"),
            ),
            st.lists(LEAVES, max_size=2),
            st.lists(LEAVES, max_size=2),
        ),
        of(
            "scf.execute_region",
            lambda first, second: (
                *("scf.execute_region {", *first, op("cf.br", "cf.br ^bb1")),
                *("^bb1:  // pred: ^bb0", *second, op("scf.yield", "scf.yield"), "}"),
            ),
            body,
            body,
        ),
        of("tt.reduce", lambda leaves: combined("tt.reduce", leaves), st.lists(LEAVES, max_size=2)),
        of("tt.scan", lambda leaves: combined("tt.scan", leaves), st.lists(LEAVES, max_size=2)),
        of(
            "tt.map_elementwise",
            lambda leaves: (
                *('%r = "tt.map_elementwise"(%x) <{pack = 1 : i32}> ({', "^bb0(%a: i32):", *leaves),
                *(op("cf.br", "cf.br ^bb1(%a : i32)"), "^bb1(%b: i32):  // pred: ^bb0"),
                op("tt.map_elementwise.return", "tt.map_elementwise.return %b : i32"),
                "}) : (tensor<128xi32, #blocked>) -> tensor<128xi32, #blocked>",
            ),
            st.lists(LEAVES, max_size=2),
        ),
        of(
            "ttg.warp_specialize",
            lambda default, partitions: (
                "ttg.warp_specialize(%x) attributes {requestedRegisters = array<i32: 24>}",
                *("default {", *default, op("ttg.warp_yield", "ttg.warp_yield"), "}"),
                *(part for index, body in enumerate(partitions) for part in partition(index, body)),
                ": (i32) -> ()",
            ),
            body,
            st.lists(body, max_size=3),
        ),
    )


def combined(name: str, leaves: list[Op]) -> Parts:
    return (
        f'%r = "{name}"(%x) <{{axis = 0 : i32}}> ({{',
        '^bb0(%a: f32 loc("a"), %b: f32 loc("b: {")):',
        *leaves,
        op(f"{name}.return", f"{name}.return %x : f32"),
        "}) : (tensor<128xf32, #blocked>) -> f32",
    )


def partition(index: int, body: Parts) -> Parts:
    head = f'partition{index}(%x: i32 loc("x")) num_warps(4) {{'
    return head, *body, op("ttg.warp_return", "ttg.warp_return"), "}"


STATEMENTS = st.recursive(LEAVES, lambda inner: LEAVES | region_ops(inner), max_leaves=12)
BODIES = st.lists(STATEMENTS, max_size=4).map(tuple)


@st.composite
def functions(draw: st.DrawFn) -> Op:
    """A kernel of up to five blocks, with a return in one of them at least."""
    head = "tt.func public @kernel(%x: i32 {tt.divisibility = 16 : i32}) attributes {noinline = false} {"
    count = draw(st.sampled_from([1, 1, 2, 3, 5]))
    targets = st.integers(1, max(count - 1, 1)).map(lambda number: f"^bb{number}")
    branches = st.one_of(
        st.builds(lambda to: op("cf.br", f"cf.br {to}"), targets),
        st.builds(lambda to, other: op("cf.cond_br", f"cf.cond_br %c, {to}, {other}(%x : i32)"), targets, targets),
        st.builds(
            lambda to, other: op("cf.switch", "cf.switch %x : i32, [", f"default: {to},", f"42: {other}", "] {tag}"),
            targets,
            targets,
        ),
    )
    parts: list[str | Op] = [head]
    for number in range(count):
        if number:
            plain, broken = (f"^bb{number}:  // pred: ^bb0",), (f"^bb{number}(%z: i32,", "%y: i1):")
            parts += draw(st.sampled_from([plain, broken]))
        parts += draw(BODIES)
        # Behind an entry that returns, no block would be reached.
        ways_on = branches | st.just(RETURN) if number else branches
        parts.append(RETURN if number == count - 1 else draw(ways_on))
    return Op("tt.func", (*parts, draw(st.sampled_from(["}", "} loc(#loc1)"]))))


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

    write(op("module", 'module attributes {"ttg.num-warps" = 4 : i32} {', draw(functions()), "}"), 0)
    head = draw(st.sampled_from([[], ["#loc1 = loc(unknown)", '#loc2 = loc("/a {":1:2) // "']]))
    tail = draw(st.sampled_from([[], ["#loc3 = loc(#loc1)", "", "{-#", '  external_resources: {a: "} {"}', "#-}"]]))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    end = draw(st.sampled_from([newline, ""]))
    return GeneratedModule(newline.join([*head, *lines, *tail]) + end, operations)

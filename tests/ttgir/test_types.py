"""The types that operations are printed with."""

from __future__ import annotations

import pytest
from golden import fixtures, kernel_of, read

from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.types import PrintedType, factors_of, types_of


def operation_in(line: str) -> Operation:
    """The one in a kernel."""
    module = parse(f"module {{\n  tt.func public @k() {{\n    {line}\n    tt.return\n  }}\n}}\n")
    return module.operations[0].regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0]


def types_in(line: str) -> list[PrintedType]:
    return list(types_of(operation_in(line)))


A = PrintedType("tensor", (128, 64), "f16", ", #a")
POINTERS = PrintedType("tensor", (128, 64), "!tt.ptr<f16>", ", #a")
SHARED = PrintedType("memdesc", (64, 32), "f16", ", #s, #smem, mutable")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%x = tt.load %p, %m : tensor<128x64x!tt.ptr<f16>, #a> loc(#loc1)", [POINTERS]),
        ('%x = tt.load %p {note = "a : b"} : !tt.ptr<i32>', [PrintedType("", (), "!tt.ptr<i32>")]),
        (
            "%d = tt.dot %a, %b, %c, inputPrecision = tf32 : tensor<128x64xf16, #a> * tensor<64x32xf16, #b> -> "
            "tensor<128x32xf32, #mma>",
            [A, PrintedType("tensor", (64, 32), "f16", ", #b"), PrintedType("tensor", (128, 32), "f32", ", #mma")],
        ),
        (
            '%d = "tt.dot"(%a, %b) <{inputPrecision = 0 : i32}> : (tensor<128x64xf16, #a>, !ttg.memdesc<64x32xf16, #s, '
            "#smem, mutable>) -> f32",
            [A, SHARED, PrintedType("", (), "f32")],
        ),
        (
            "%t = ttg.async_copy_global_to_local %p, %s : tensor<128x64x!tt.ptr<f16>, #a> -> <64x32xf16, #s, #smem, "
            "mutable>",
            [POINTERS, SHARED],
        ),
        (
            "ttng.async_tma_copy_global_to_local %d[%i] %s, %b, %p : !tt.tensordesc<tensor<128x64xf16, #a>>",
            [PrintedType("tensordesc", (128, 64), "f16", ", #a")],
        ),
        ("%x = arith.extf %a : tensor<4xbf16, #ttg.slice<{dim = 1, parent = #a}>> to tensor<4xf32, #a>", None),
        ("%n = arith.addi %a, %b : index", [PrintedType("", (), "index")]),
        ("ttng.fence_async_shared {bCluster = false}", []),
    ],
    ids=["pointers", "string", "dot", "generic", "short", "descriptor", "nested", "index", "none"],
)
def test_an_operations_types(line: str, expected: list[PrintedType] | None) -> None:
    found = types_in(line)
    if expected is None:
        assert [(one.shape, one.element) for one in found] == [((4,), "bf16"), ((4,), "f32")]
    else:
        assert found == expected


def test_a_reductions_types_stand_behind_its_region() -> None:
    line = (
        '%x = "tt.reduce"(%a) <{axis = 1 : i32}> ({\n'
        "    ^bb0(%l: f32, %r: f32):\n      %m = arith.maxnumf %l, %r : f32\n"
        "      tt.reduce.return %m : f32\n    }) : (tensor<128x64xf32, #a>) -> tensor<128xf32, #b>"
    )
    assert [one.shape for one in types_in(line)] == [(128, 64), (128,)]


@pytest.mark.parametrize(
    "line",
    [
        "%d = tt.dot %a, %b, %c : tensor<16x32xi8, #a> * tensor<32x64xi8, #b> -> tensor<16x64xi32, #c>",
        "%d = tt.dot_scaled %a, %b, %c lhs = e2m1 rhs = e2m1 : tensor<16x32xi8, #a> * tensor<32x64xi8, #b> -> "
        "tensor<16x64xf32, #c>",
        "%d = tt.dot_scaled %a scale %s, %b scale %t, %c lhs = e2m1 rhs = e2m1 : tensor<16x32xi8, #a>, "
        "tensor<16x2xi8, #s> * tensor<32x64xi8, #b>, tensor<64x2xi8, #s> -> tensor<16x64xf32, #c>",
        "%d = tt.dot_scaled %a, %b scale %t, %c lhs = e2m1 rhs = e2m1 : tensor<16x32xi8, #a> * tensor<32x64xi8, #b>, "
        "tensor<64x2xi8, #s> -> tensor<16x64xf32, #c>",
        '%d = "tt.dot_scaled"(%a, %b, %c, %s, %t) <{}> : (tensor<16x32xi8, #a>, tensor<32x64xi8, #b>, '
        "tensor<16x64xf32, #c>, tensor<16x2xi8, #s>, tensor<64x2xi8, #s>) -> tensor<16x64xf32, #c>",
    ],
)
def test_what_a_dot_multiplies(line: str) -> None:
    assert [one.shape for one in factors_of(operation_in(line))] == [(16, 32), (32, 64)]


@pytest.mark.parametrize(
    ("element", "bits"), [("f16", 16), ("bf16", 16), ("f8E4M3FN", 8), ("i1", 1), ("!tt.ptr<f16>", 64), ("index", 0)]
)
def test_how_large_an_element_is(element: str, bits: int) -> None:
    assert PrintedType("tensor", (4,), element).bits == bits


def test_what_a_pointer_leads_to() -> None:
    assert (POINTERS.pointee, POINTERS.is_pointer, A.pointee) == ("f16", True, "f16")


def test_every_dot_and_load_of_the_fixtures_tells_its_types() -> None:
    """In each printed form; the two forms of a kernel tell the same of a dot's operands."""
    for path in fixtures("3.6.0"):
        for operation in parse(read(path), str(path)).walk():
            types = types_of(operation)
            if operation.traits.is_dot:
                rows, depth = types[0].shape[-2:]
                assert depth in types[1].shape and rows, (kernel_of(path), operation.tail)
            if operation.name == "tt.load":
                assert types[0].is_pointer and types[0].pointee, (kernel_of(path), operation.tail)

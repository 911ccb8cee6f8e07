"""The types that operations are printed with."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixtures, kernel_of, read
from text_cases import facts_in

from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.types import PrintedType, bits_of, factors_of, types_of

CASES = facts_in(Path(__file__).with_name("types.txt"))


def operation_in(line: str) -> Operation:
    """The one in a kernel."""
    module = parse(f"module {{\n  tt.func public @k() {{\n    {line}\n    tt.return\n  }}\n}}\n")
    return module.operations[0].regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0]


A = PrintedType("tensor", (128, 64), "f16", ", #a")
POINTERS = PrintedType("tensor", (128, 64), "!tt.ptr<f16>", ", #a")


def fact(one: PrintedType) -> str:
    shape = "x".join(map(str, one.shape))
    return " ".join(word for word in (one.kind or "-", shape or "-", one.element, one.rest) if word)


@pytest.mark.parametrize("name", CASES)
def test_an_operations_types(name: str) -> None:
    """And of a dot, which two it multiplies."""
    text, facts = CASES[name]
    operation = operation_in(text)
    if name.startswith("factors"):
        assert [f"multiplies {fact(one)}" for one in factors_of(operation)] == facts
    else:
        assert ([fact(one) for one in types_of(operation)] or ["nothing"]) == facts


@pytest.mark.parametrize(
    ("element", "bits"), [("f16", 16), ("bf16", 16), ("f8E4M3FN", 8), ("i1", 1), ("!tt.ptr<f16>", 64), ("index", 0)]
)
def test_how_large_an_element_is(element: str, bits: int) -> None:
    assert PrintedType("tensor", (4,), element).bits == bits


def test_what_a_pointer_leads_to() -> None:
    assert (POINTERS.pointee, POINTERS.is_pointer, A.pointee) == ("f16", True, "f16")
    assert bits_of(PrintedType("", (), "!tt.ptr<!tt.ptr<f16>>").pointee) == 64


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

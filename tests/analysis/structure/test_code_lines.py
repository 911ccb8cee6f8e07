"""How many lines of code differ: each case's truth is what was edited."""

from __future__ import annotations

import re

import pytest
from golden import FIXTURES

from kprof_inject.analysis.structure.code_lines import differing_lines, records_differ
from kprof_inject.ttgir.parser import parse

FOLDER = FIXTURES / "3.6.0/cuda-90"
TEXT = (FOLDER / "matmul.ttgir").read_text()
TWO_FUNCTIONS = (FOLDER / "noinline_helper.ttgir").read_text()


def differing(a: str, b: str) -> int:
    """The same from either side."""
    modules = parse(a, "a.ttgir"), parse(b, "b.ttgir")
    found = differing_lines(*modules)
    other = differing_lines(*reversed(modules))
    assert (other.count, other.lines_a, other.lines_b) == (found.count, found.lines_b, found.lines_a)
    return found.count


def without_locations(text: str) -> str:
    """As Triton prints a module without them."""
    lines = (line for line in text.splitlines() if not line.startswith("#loc"))
    return "\n".join(re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", line) for line in lines)


@pytest.mark.parametrize("text", [TEXT, TWO_FUNCTIONS])
def test_names_of_values_and_locations_are_no_code(text: str) -> None:
    renamed = re.sub(r"%([a-z]\w*)", r"%\1_x", text)
    assert renamed != text and differing(text, renamed) == 0
    bare = without_locations(text)
    assert "loc(" not in bare and differing(text, bare) == 0
    assert differing(text, text.replace("\n", " // a comment\n")) == 0


def test_records_are_no_code() -> None:
    recorded = (FOLDER / "matmul.expected.ttgir").read_text()
    assert differing(TEXT, recorded) == 0
    a, b = parse(TEXT), parse(recorded)
    assert records_differ(a, b) and not records_differ(b, b)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("arith.mulf %x_5, %y_7", "arith.addf %x_5, %y_7"),  # another operation
        ("{end = 1024 : i32, start = 0 : i32}", "{end = 1024 : i32, start = 1 : i32}"),  # another constant
        ("arith.mulf %x_5, %y_7", "arith.mulf %y_7, %x_5"),  # other operands
        ("arith.mulf %x_5, %y_7", "arith.mulf %x_5, %x_5"),
        ("    %3 = arith.mulf", "    %new = math.exp %2 : f32\n    %3 = arith.mulf"),  # a line more
    ],
)
def test_each_edited_line_counts(old: str, new: str) -> None:
    assert differing(TWO_FUNCTIONS, TWO_FUNCTIONS.replace(old, new, 1)) == 1

"""How many lines of code differ: each case's truth is what was edited."""

from __future__ import annotations

import re

import pytest
from golden import FIXTURES
from printed_forms import local_scope

from kprof_inject.analysis.structure.structural_changes import differing_lines
from kprof_inject.ttgir.parser import parse

FOLDER = FIXTURES / "3.6.0/cuda-90"
TEXT = (FOLDER / "matmul.ttgir").read_text()
TWO_FUNCTIONS = (FOLDER / "noinline_helper.ttgir").read_text()


def differing(a: str, b: str) -> int:
    return len(differing_lines(parse(a, "a.ttgir"), parse(b, "b.ttgir")))


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


BLOCKED = re.compile(r"sizePerThread = \[1, 8\]")


def test_the_lines_that_use_another_layout_differ() -> None:
    narrower = BLOCKED.sub("sizePerThread = [1, 4]", TEXT, count=1)
    found = differing_lines(parse(TEXT), parse(narrower))
    uses = [number for number, line in enumerate(TEXT.split("\n"), 1) if re.search(r"#blocked[>},]", line)]
    assert found == [(number, number) for number in uses if number > 2]
    assert differing(local_scope(TEXT), narrower) == len(found)


def test_a_layout_that_another_one_took_the_place_of_counts_where_it_does() -> None:
    line = next(line for line in TEXT.split("\n") if "tt.splat" in line and "#blocked1>" in line)
    assert differing(TEXT, TEXT.replace(line, line.replace("#blocked1>", "#blocked>"))) == 1


def test_an_operation_that_left_its_loop_differs() -> None:
    """Its line is the same; where the loop ends is not."""
    moved = re.sub(r"(\n *scf\.yield .*\n    \}.*\n)((?:.*\n)*?)(?=    tt\.return)", r"\1\2", TEXT)
    inside = re.search(r"\n( +)%\S+ = ttg\.async_commit_group .*(?=\n +scf\.yield)", moved)
    assert inside
    without = moved.replace(inside[0], "", 1)
    end = re.search(r"\n    \} loc.*", without[inside.start() :])
    assert end
    place = inside.start() + end.end()
    assert differing(TEXT, without[:place] + inside[0].replace(inside[1], "    ", 1) + without[place:]) >= 1


def test_attributes_of_a_stranger_end() -> None:
    doubling = "\n".join(f"#a{number} = #ttg.pair<#a{number + 1}, #a{number + 1}>" for number in range(60))
    nested = "#ttg.slice<" * 3_000 + "#a0" + ">" * 3_000
    operation = f"    %x = ub.poison : tensor<1xf32, {nested}>\n"
    text = f"{doubling}\n#b = #b\n" + TEXT.replace(
        "    tt.return", f"{operation}    %y = ub.poison {{b = #b}}\n    tt.return", 1
    )
    assert differing(text, text.replace("\n#b = #b", "\n#b = #c\n#c = #b")) <= 1

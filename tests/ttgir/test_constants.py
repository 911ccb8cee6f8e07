"""The integers that constants stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import constant_of

# An operation, and below it its integer.
PRINTED = dict(
    pair.split("\n> ") for pair in Path(__file__).with_name("constants.txt").read_text().rstrip().split("\n\n")
)


@pytest.mark.parametrize("line", PRINTED)
def test_a_constant_is_its_integer(line: str) -> None:
    module = parse(f"module {{\n  tt.func public @k() {{\n    %x = {line}\n    tt.return\n  }}\n}}\n")
    operation = module.operations[0].regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0]
    found = constant_of(operation)

    assert ("no integer" if found is None else str(found).lower()) == PRINTED[line]

"""Triton's own parser judges the values that are visible at a place, and their types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import fixture_id, kernel_of, read
from triton_oracle import one_of_each_kernel, parse_with_triton

from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.scalars import scalars_at

# With loops of both kinds, branches, partitions, tokens, inlined functions; in each form.
KERNELS = {"softmax", "grouped_gemm", "while_if", "early_return", "ws_matmul", "noinline_helper"}
JUDGED = [path for path in one_of_each_kernel() if kernel_of(path) in KERNELS]
INTEGER = re.compile(r"i\d+|index")


def with_users(module: Module) -> Iterator[str]:
    """The text, and before each operation of Triton's one that uses all integers that are said to be visible there."""
    done = 0
    for number, user in enumerate(module.walk()):
        line = module.line_start(user.start)
        alone = not module.text[line : user.start].strip()
        if not alone or not user.name.startswith("tt.") or any(not one.traits.regions for one in user.owners()):
            continue
        yield module.text[done:line]
        done = line
        for place, one in enumerate(scalars_at(module, user)):
            if INTEGER.fullmatch(one.type):
                result = f"%user.{number}.{place}"
                yield f'{result} = "arith.ori"({one.name}, {one.name}) : ({one.type}, {one.type}) -> {one.type}\n'
    yield module.text[done:]


@pytest.mark.triton
@pytest.mark.parametrize("path", JUDGED, ids=fixture_id)
def test_triton_sees_the_same_values(path: Path, tmp_path: Path) -> None:
    module = parse(read(path))
    text = "".join(with_users(module))
    assert text.count("%user.") > text.count("tt.func")
    used = tmp_path / "used.ttgir"
    used.write_text(text)
    parse_with_triton(used)

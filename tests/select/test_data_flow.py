"""Integer arithmetic that is work, beyond ``cases/data_flow.txt``: nests, long kernels, printed forms."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from durations import assert_linear
from golden import fixture_id, fixtures, form_of, read
from small_modules import kernel, work_of

from kprof_inject.select.functions import functions_of, integer_work
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse

I32 = "tensor<16xi32, #b>"
POINTERS = "tensor<16x!tt.ptr<i32>, #b>"
LOAD = f"%x = tt.load %p : {POINTERS}"


def add(result: str, left: str, right: str) -> str:
    return f"{result} = arith.addi {left}, {right} : {I32}"


def store(value: str) -> str:
    return f"tt.store %q, {value}, %m : {POINTERS}"


def test_nests_deeper_than_calls_may_be() -> None:
    loops = ["scf.for %i = %a to %n step %c  : i32 {"] * 500

    assert work_of(kernel(LOAD, *loops, add("%y", "%x", "%c"), store("%y"), *["}"] * 500)) == ["%y"]


def test_time_grows_with_the_length_alone() -> None:
    @cache
    def function_of(count: int) -> tuple[Module, Operation]:
        lines = [LOAD, *(add(f"%y{n + 1}", f"%y{n}" if n else "%x", "%x") for n in range(count))]
        module = parse(kernel(*lines, store(f"%y{count}")))
        (function,) = functions_of(module)
        assert len(integer_work(module, function.operation)) == count
        return module, function.operation

    assert_linear(lambda count: integer_work(*function_of(count)))


FORMS = [path for path in fixtures() if form_of(path)]


@pytest.mark.parametrize("path", FORMS, ids=fixture_id)
def test_every_printed_form_tells_the_same(path: Path) -> None:
    stem = path.name.removesuffix(f".{form_of(path)}.ttgir.gz")
    (printed,) = (other for other in path.parent.glob(f"{stem}.ttgir*"))

    assert names_of_work(read(path)) == names_of_work(read(printed))


def names_of_work(text: str) -> list[str]:
    module = parse(text)
    functions = functions_of(module)
    starts = frozenset[int]().union(*(integer_work(module, function.operation) for function in functions))
    return sorted(operation.name for operation in module.walk() if operation.start in starts)

"""Texts without some operations: they compile, nothing else changes, and what else vanishes is noticed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import triton
from golden import FIXTURES, form_of, kernel_of, read
from removal_kernels import DIVIDED, kernel, last_store, named, sum_of_columns

from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.vanished import vanished
from kprof_inject.pipeline.removals.kinds import is_removable, text_without
from kprof_inject.pipeline.removals.replacing import RemovalRefused
from kprof_inject.runtime.compiling.disassembly import machine_code_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse

pytestmark = pytest.mark.triton

_FOLDER = FIXTURES / triton.__version__ / "cuda-90"
PATHS = [
    path
    for path in sorted([*_FOLDER.glob("*.ttgir"), *_FOLDER.glob("*.ttgir.gz")])
    if ".expected" not in path.name and not form_of(path)
]
# Layouts of tiles, of dots and slices of both; masks; loops; half precision; a scalar.
COMPILED = {"attention", "softmax", "layer_norm", "gelu_matmul", "welford", "matmul"}


def code_of(module: Module) -> MachineFunction:
    (function,) = machine_code_of(module, {"num_warps": int(module.attribute("ttg.num-warps"))})
    return function


def removable_in(module: Module) -> dict[Operation, str]:
    """The text without each operation that can be removed."""
    found = {}
    for one in module.walk():
        if is_removable(one):
            try:
                found[one] = text_without(module, [one])
            except RemovalRefused:
                continue
    return found


def assert_compiles_without_each(path: Path) -> None:
    module = parse(read(path), "k.ttgir")
    texts = removable_in(module)
    assert texts
    for text in texts.values():
        assert len(text.splitlines()) == len(module.text.splitlines())
    all_at_once = text_without(module, list(texts))
    assert code_of(parse(all_at_once, "k.ttgir")).instructions


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_fixtures_compile_without_what_can_be_removed(name: str) -> None:
    assert_compiles_without_each(next(path for path in PATHS if kernel_of(path) == name))


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", PATHS, ids=kernel_of)
def test_all_fixtures_compile_without_each(path: Path) -> None:
    module = parse(read(path), "k.ttgir")
    for text in removable_in(module).values():
        assert code_of(parse(text, "k.ttgir")).instructions


def opcodes(function: MachineFunction) -> Counter[str]:
    return Counter(one.operation for one in function.instructions)


@pytest.fixture(scope="module")
def plain() -> MachineFunction:
    return code_of(kernel())


def without(module: Module, operation: Operation) -> MachineFunction:
    return code_of(parse(text_without(module, [operation]), "k.ttgir"))


def lines_of(module: Module, operation: Operation) -> set[int]:
    first, last = module.line_numbers([operation.start, operation.end - 1])
    return set(range(first, last + 1))


@pytest.mark.parametrize(
    ("result", "fewer"),
    [
        ("g", {"LDG"}),
        ("y", {"MUFU", "CALL"}),
        ("part", {"SHFL", "STS", "LDS", "BAR"}),
    ],
)
def test_only_the_operation_is_removed(plain: MachineFunction, result: str, fewer: set[str]) -> None:
    module = kernel()
    code = without(module, named(module, result))
    before, after = opcodes(plain), opcodes(code)
    assert all(after[one] < before[one] for one in fewer if before[one])
    assert after["STG"] == before["STG"]
    assert vanished(plain, code, lines_of(module, named(module, result))) is None


def test_a_thread_still_combines_the_elements_of_its_rows() -> None:
    """A load fills four registers with elements of four columns, which are not combined."""
    module = sum_of_columns()
    code = without(module, named(module, "sum")).instructions
    assert [one.opcode for one in code if one.operation == "LDG"] == ["LDG.E.128"] * 4
    sums = [re.findall(r"\bR(\d+)", one.operands) for one in code if one.operation == "FADD"]
    assert len(sums) == 4 * 3
    _, first, second = map(int, sums[0])
    assert first // 4 != second // 4


def test_a_store_is_disabled_and_its_operands_are_computed(plain: MachineFunction) -> None:
    module = kernel()
    code = without(module, last_store(module))
    assert opcodes(code)["STG"] == opcodes(plain)["STG"]
    assert vanished(plain, code, lines_of(module, last_store(module))) is None


def test_copies_are_disabled_and_still_waited_for() -> None:
    module = parse(read(next(path for path in PATHS if kernel_of(path) == "matmul")), "k.ttgir")
    copies = [one for one in module.walk() if one.name == "ttg.async_copy_global_to_local"]
    before = opcodes(code_of(module))
    after = opcodes(code_of(parse(text_without(module, copies), "k.ttgir")))
    assert copies
    for one in ("LDGSTS", "HGMMA", "DEPBAR", "BAR", "STG"):
        assert after[one] == before[one]


def test_a_loop_ends_in_the_middle(plain: MachineFunction) -> None:
    module = kernel()
    loop = named(module, "sum")
    code = without(module, loop)
    assert vanished(plain, code, lines_of(module, loop)) is None
    before, after = opcodes(plain), opcodes(code)
    assert (after["LDG"], after["STG"], after["SHFL"]) == (before["LDG"], before["STG"], before["SHFL"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("gpu.barrier", "wait for each other"),
        ("tt.store %table, %start : !tt.ptr<i32>", "more than compute and store floating-point numbers"),
        ('tt.print "sum" {hex = false, isSigned = array<i32: 0>} : %acc : f32', "tt.print"),
    ],
)
def test_iterations_that_others_would_miss_are_not_removed(body: str, reason: str) -> None:
    module = kernel(f"{DIVIDED}\n      {body}")
    with pytest.raises(RemovalRefused, match=reason):
        text_without(module, [named(module, "sum")])


def test_the_compiler_removes_more_and_is_caught() -> None:
    """Numbers made of addresses are positive, so a comparison with zero is known and its selection is none."""
    module = kernel(
        "%positive = arith.cmpf ogt, %g, %zero : tensor<512xf32, #blocked>\n"
        "      %root = math.exp2 %value : tensor<512xf32, #blocked>\n"
        "      %y = arith.select %positive, %value, %root : tensor<512xi1, #blocked>, tensor<512xf32, #blocked>"
    )
    g = named(module, "g")
    lost = vanished(code_of(module), without(module, g), lines_of(module, g))
    assert lost is not None
    assert lost.line not in lines_of(module, g)


@pytest.mark.parametrize(
    ("change", "result", "reason"),
    [
        (("%g = tt.load %gain_at", "%g = tt.load %gain_at {isVolatile = true}"), "g", "elements"),
        (("sizePerThread = [4], threads", "sizePerThread = [4], CTAsPerCGA = [2], threads"), "part", "layout"),
        (("END", ""), "places", "not removable"),
    ],
)
def test_refused(change: tuple[str, str], result: str, reason: str) -> None:
    module = parse(kernel().text.replace(*change), "k.ttgir")
    operation = named(module, result)
    if reason == "not removable":
        assert not is_removable(operation)
        return
    with pytest.raises(RemovalRefused, match=reason):
        text_without(module, [operation])


def test_values_that_decide_are_not_replaced() -> None:
    module = kernel(
        f"{DIVIDED}\n      %i = arith.fptosi %g : tensor<512xf32, #blocked> to tensor<512xi32, #blocked>\n"
        "      %at = tt.addptr %xs, %i : tensor<512x!tt.ptr<f32>, #blocked>, tensor<512xi32, #blocked>"
    )
    with pytest.raises(RemovalRefused, match=r"tt\.addptr"):
        text_without(module, [named(module, "g")])


@pytest.mark.slow
@pytest.mark.parametrize("element", ["f16", "bf16", "f64", "f8E5M2"])
def test_loads_of_each_type_compile(element: str) -> None:
    text = kernel("%y = arith.mulf %value, %g : tensor<512xf32, #blocked>").text.replace("f32", element)
    if element.startswith("f8"):
        text = (
            text.replace("arith.mulf %value, %g", "arith.select %all, %g, %value")
            .replace("%y =", "%all = arith.constant dense<true> : tensor<512xi1, #blocked>\n      %y =")
            .replace(
                f"%g, %value : tensor<512x{element}", f"%g, %value : tensor<512xi1, #blocked>, tensor<512x{element}"
            )
        )
        text = text.partition("%part =")[0] + "scf.yield %acc : f8E5M2\n    }\n    tt.return\n  }\n}\n"
    module = parse(text, "k.ttgir")
    assert opcodes(without(module, named(module, "g")))["LDG"] < opcodes(code_of(module))["LDG"]

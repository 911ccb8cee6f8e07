"""What operations have to do, by their types."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import FIXTURES, read
from text_cases import facts_in
from work_facts import work_named

from kprof_inject.analysis.roofs.operation_work import NO_WORK, Work, work_of
from kprof_inject.analysis.roofs.unit_rates import rates_of
from kprof_inject.ttgir.parser import parse

ALIASES = """
#mma = #ttg.nvidia_mma<{versionMajor = 2}>
#blocked = #ttg.blocked<{order = [1, 0]}>
#rows = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>
#mma2 = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>
"""


WORK = facts_in(Path(__file__).with_name("operation_work.txt"))


def work_in(line: str) -> Work:
    """Of the first operation in a kernel."""
    module = parse(f"{ALIASES}module {{\n  tt.func public @k() {{\n    {line}\n    tt.return\n  }}\n}}\n")
    function = module.operations[0].regions[0].blocks[0].operations[0]
    return work_of(function.regions[0].blocks[0].operations[0], module.aliases)


@pytest.mark.parametrize("name", WORK)
def test_an_operations_work(name: str) -> None:
    line, work = WORK[name]
    assert work_in(line) == work_named(work)


def reduction(layout: str, shape: str = "128x64", axis: int = 1, combine: str = "arith.addf") -> str:
    left = shape.split("x")[1 - axis]
    return (
        f'%x = "tt.reduce"(%a) <{{axis = {axis} : i32}}> ({{\n    ^bb0(%l: f32, %r: f32):\n'
        f"      %m = {combine} %l, %r : f32\n      tt.reduce.return %m : f32\n"
        f"    }}) : (tensor<{shape}xf32, {layout}>) -> tensor<{left}xf32, #left>"
    )


def test_a_reduction_divides_each_time() -> None:
    """As that of Welford does, by a sum of weights."""
    assert work_in(reduction("#x", combine="arith.divf")) == Work(special=128 * 63)


def test_a_reduction_adds_all_but_one_of_each_row() -> None:
    assert work_in(reduction("#x")) == Work(additions=128 * 63)


@pytest.mark.parametrize(
    ("layout", "shape", "axis", "lanes", "own"),
    [
        # As in the PTX that Triton 3.5 to 3.9 make of such a reduction: each thread does (own - 1) + log2(lanes).
        ("#rows", "32x64", 1, 16, 4),
        ("#rows", "32x128", 1, 16, 8),
        ("#rows", "32x32", 1, 8, 4),
        ("#mma2", "64x64", 1, 4, 8),
        ("#mma2", "64x64", 0, 8, 4),
    ],
)
def test_lanes_repeat_what_they_combine_of_each_other(layout: str, shape: str, axis: int, lanes: int, own: int) -> None:
    rows, columns = map(int, shape.split("x"))
    size, left = (columns, rows) if axis else (rows, columns)
    threads = left * size // own
    work = work_in(reduction(layout, shape, axis))
    assert work == Work(additions=threads * (own - 1 + lanes.bit_length() - 1))
    # One instruction may do it for all lanes.
    assert work_in(reduction(layout, shape, axis, "arith.maxnumf")) == Work(logic=left * (size - 1))


def total(name: str) -> Work:
    """Of all operations of a fixture, each once."""
    module = parse(read(FIXTURES / "3.6.0" / name))
    found = NO_WORK
    for operation in module.walk():
        found += work_of(operation, module.aliases)
    return found


def test_of_compiled_kernels() -> None:
    tile = 2 * 128 * 64 * 128
    assert total("cuda-90/matmul.ttgir").tensor_flops == {"f16": tile}
    assert total("cuda-100/matmul.ttgir").tensor_flops["f16"] % tile == 0
    assert total("hip-gfx942/matmul.ttgir").tensor_flops["f16"] % tile == 0
    # QK and PV of a block, and an exponential for each of its 128 x 64 scores.
    attention = total("cuda-90/attention.ttgir")
    assert attention.tensor_flops["f16"] % (2 * 128 * 64 * 64) == 0
    assert attention.special >= 128 * 64


def test_works_add_up() -> None:
    assert Work({"f16": 1}, 2, 3, 4) * 2 + Work({"f8": 5}, 1) == Work({"f16": 2, "f8": 5}, 5, 6, 8)


def test_the_cycles_that_the_units_of_an_sm_need() -> None:
    rates = rates_of("cuda:90")
    assert rates is not None
    needed = rates.cycles(Work({"f16": 8192, "tf32": 2048, "i4": 9}, 32, 128, 256, shared_bytes=512, l2_bytes=640))
    assert needed == {
        "tensor cores": 3.0,
        "special functions": 2.0,
        "fp32 units": 2.0,
        "ALU": 0.0,
        "instruction issue": 2.25,
        "shared memory and L1": 4.0,
        "L2 to SM": 10.0,
    }
    assert rates_of("cuda:75") is None


@pytest.mark.parametrize(
    ("target", "sms", "ghz", "teraflops"),
    [
        ("cuda:80", 108, 1.41, 312),
        ("cuda:90", 132, 1.83, 989.4),
        ("cuda:100", 148, 1.85, 2250),
        ("hip:gfx942", 304, 2.1, 1307.4),
        ("hip:gfx950", 256, 2.4, 2516),
    ],
)
def test_rates_are_those_of_the_data_sheets(target: str, sms: int, ghz: float, teraflops: float) -> None:
    rates = rates_of(target)
    assert rates is not None
    assert rates.tensor_flops["f16"] * sms * ghz * 1e9 == pytest.approx(teraflops * 1e12, rel=0.01)


def test_newer_devices_issue_an_instruction_for_two_floats() -> None:
    work = Work(multiplications=256, additions=128, special=128)
    issued = {target: rates_of(target).cycles(work)["instruction issue"] for target in ("cuda:90", "cuda:100")}  # type: ignore[union-attr]
    assert issued == {"cuda:90": 3, "cuda:100": 2}

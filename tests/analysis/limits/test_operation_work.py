"""What operations have to do, by their types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from golden import FIXTURES, read
from text_cases import facts_in
from work_facts import work_named

from kprof_inject.analysis.limits.operation_work import NO_WORK, Work, exchanged_bytes, work_of
from kprof_inject.analysis.limits.rates import rates_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.parser import parse

ALIASES = """
#mma = #ttg.nvidia_mma<{versionMajor = 2}>
#blocked = #ttg.blocked<{order = [1, 0]}>
#rows = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>
#in_columns = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0, 1]}>
#lanes = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]}>
#mma2 = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>
"""


WORK = facts_in(Path(__file__).with_name("operation_work.txt"))


def dot(a: str, b: str, result: str, more: str = "") -> str:
    return f"%d = tt.dot %a, %b, %c{more} : tensor<{a}> * tensor<{b}> -> tensor<{result}>"


MMA = "128x32xf32, #mma"


def scaled(a: str, b: str, of_a: str, of_b: str) -> str:
    rows, columns = a.split("x")[0], b.split("x")[1]
    return (
        f"%d = tt.dot_scaled %a scale %s, %b scale %t, %c lhs = {of_a} rhs = {of_b} {{fastMath = false}} : tensor<{a}, "
        f"#x>, tensor<{rows}x2xi8, #x> * tensor<{b}, #x>, tensor<{columns}x2xi8, #x> -> "
        f"tensor<{rows}x{columns}xf32, #mma>"
    )


def module_of(lines: str) -> tuple[list[Operation], Mapping[str, str]]:
    """The operations of a kernel before its return, and the aliases."""
    module = parse(f"{ALIASES}module {{\n  tt.func public @k() {{\n    {lines}\n    tt.return\n  }}\n}}\n")
    function = module.operations[0].regions[0].blocks[0].operations[0]
    return [*function.regions[0].blocks[0].operations][:-1], module.aliases


def work_in(lines: str) -> Work:
    """Return the work of a kernel's last operation."""
    operations, aliases = module_of(lines)
    return work_of(operations[-1], aliases)


def exchanged_in(line: str) -> float:
    operations, aliases = module_of(line)
    return exchanged_bytes(operations[-1], aliases)


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
    one, other = Work({"f16": 1}, *range(1, 11)), Work({"f16": 3, "f8": 5}, *range(100, 1100, 100))
    assert one + other == Work({"f16": 4, "f8": 5}, *range(101, 1111, 101))
    assert other * 2 == Work({"f16": 6, "f8": 10}, *range(200, 2200, 200))


@pytest.mark.parametrize(
    ("lines", "special"),
    [
        ("%x = arith.divf %a, %b : tensor<128x64xf32, #x>", 128 * 64),
        ("%x = tt.precise_divf %a, %b : tensor<128x64xf32, #x>", 128 * 64),
        ("%b = math.exp2 %c : tensor<128x64xf32, #x>\n%x = arith.divf %a, %b : tensor<128x64xf32, #x>", 128 * 64),
        (
            "%b = tt.broadcast %c : tensor<128x1xf32, #x> -> tensor<128x64xf32, #x>\n"
            "%x = arith.divf %a, %b : tensor<128x64xf32, #x>",
            128,
        ),
        (
            "%c = tt.broadcast %s : tensor<128x1xf32, #x> -> tensor<128x4xf32, #x>\n"
            "%b = ttg.convert_layout %c : tensor<128x4xf32, #x> -> tensor<128x64xf32, #y>\n"
            "%x = arith.divf %a, %b : tensor<128x64xf32, #x>",
            128,
        ),
        # The reciprocal of a scalar is computed once, that of a constant by the compiler.
        ("%b = tt.splat %s : f32 -> tensor<128xf32, #x>\n%x = arith.divf %a, %b : tensor<128xf32, #x>", 0),
        ("%b = arith.constant dense<3.0> : tensor<128xf32, #x>\n%x = arith.divf %a, %b : tensor<128xf32, #x>", 0),
        ("%a = arith.constant dense<3.0> : tensor<128xf32, #x>\n%x = arith.divf %a, %b : tensor<128xf32, #x>", 128),
        ("%x = arith.divf %a, %b : f32", 0),
    ],
)
def test_a_division_takes_a_reciprocal_of_each_divisor(lines: str, special: int) -> None:
    assert work_in(lines) == Work(special=special)


MEMORY = "!ttg.memdesc<32x32xf32, #in_columns, #smem, mutable>"


@pytest.mark.parametrize(
    ("line", "work"),
    [
        (f"ttg.local_store %x, %m : tensor<32x32xf32, #x> -> {MEMORY}", Work(shared_bytes=4096)),
        (f"%x = ttg.local_load %m : {MEMORY} -> tensor<32x32xf32, #x>", Work(shared_bytes=4096)),
        (
            f"%x = ttg.local_load %m : {MEMORY} -> tensor<32x32xf32, #lanes>",
            Work(shared_bytes=4096, conflict_cycles=31 * 32),
        ),
        (
            "%m = ttg.local_alloc %x : (tensor<32x32xf16, #x>) -> !ttg.memdesc<32x32xf16, #s, #smem>",
            Work(shared_bytes=2048),
        ),
        (f"%m = ttg.local_alloc : () -> {MEMORY}", NO_WORK),
        (f"%t = ttg.async_copy_global_to_local %p, %m : tensor<32x32x!tt.ptr<f32>, #x> -> {MEMORY}", NO_WORK),
        (
            f"%t = ttg.async_copy_global_to_local %p, %m : tensor<32x32x!tt.ptr<f32>, #lanes> -> {MEMORY}",
            Work(conflict_cycles=31 * 32),
        ),
        ("%x = ttg.local_load %m", NO_WORK),
    ],
)
def test_bytes_between_registers_and_shared_memory(line: str, work: Work) -> None:
    assert work_in(line) == work


def of_warp_group(a: str, rows: int) -> str:
    return f"%d = ttng.warp_group_dot %a, %b, %c : {a} * !ttg.memdesc<16x8xf16, #s, #m> -> tensor<{rows}x8xf32, #mma>"


SCALED_ROWS_512 = (
    "ttng.tc_gen5_mma_scaled %a, %b, %c, %s, %t, %u, %v lhs = e5m2 rhs = e5m2 : !ttg.memdesc<512x128xf8E5M2, #s, #m>, "
    "!ttg.memdesc<128x64xf8E5M2, #s, #m>, !ttg.memdesc<512x64xf32, #t, #ttng.tensor_memory>"
)


def of_tensor_memory(rows: int, a: str = "#s, #m") -> str:
    return (
        f"ttng.tc_gen5_mma %a, %b, %c[], %t, %t : !ttg.memdesc<{rows}x64xf16, {a}>, !ttg.memdesc<64x32xf16, #s, #m>, "
        f"!ttg.memdesc<{rows}x32xf32, #t, #ttng.tensor_memory>"
    )


@pytest.mark.parametrize(
    ("line", "size_bytes"),
    [
        # The second operand is read again for each 64 rows, or 256.
        (of_warp_group("!ttg.memdesc<64x16xf16, #s, #m>", 64), 64 * 16 * 2 + 16 * 8 * 2),
        (of_warp_group("!ttg.memdesc<32x16xf16, #s, #m>", 32), 32 * 16 * 2 + 16 * 8 * 2),
        (of_warp_group("!ttg.memdesc<192x16xf16, #s, #m>", 192), 192 * 16 * 2 + 3 * 16 * 8 * 2),
        (of_warp_group("tensor<128x16xf16, #x>", 128), 2 * 16 * 8 * 2),
        (of_tensor_memory(512), 512 * 64 * 2 + 2 * 64 * 32 * 2),
        (SCALED_ROWS_512, 512 * 128 + 2 * 128 * 64),
        (of_tensor_memory(128, "#t, #ttng.tensor_memory"), 64 * 32 * 2),
        (dot("128x64xf16, #x", "64x32xf16, #x", MMA), 0),
    ],
)
def test_operands_that_tensor_cores_read_from_shared_memory(line: str, size_bytes: int) -> None:
    assert work_in(line).shared_bytes == size_bytes


ELEMENTS_BYTES = 128 * 64 * 4


@pytest.mark.parametrize(
    ("line", "size_bytes"),
    [
        ("%x = ttg.convert_layout %a : tensor<128x64xf32, #rows> -> tensor<128x64xf32, #lanes>", 2 * ELEMENTS_BYTES),
        ("%x = ttg.convert_layout %a : tensor<128x64xf16, #rows> -> tensor<128x64xf16, #lanes>", ELEMENTS_BYTES),
        (
            "%x = ttg.convert_layout %a : tensor<128xf32, #rows> -> "
            "tensor<128xf32, #ttg.slice<{dim = 1, parent = #rows}>>",
            0,
        ),
        (
            "%x = ttg.convert_layout %a : tensor<64x64xf16, #rows> -> "
            "tensor<64x64xf16, #ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>>",
            0,
        ),
        ("%x, %y = tt.split %a : tensor<128x64x2xf32, #rows> -> tensor<128x64xf32, #lanes>", 4 * ELEMENTS_BYTES),
        (
            "%x = tt.gather %a[%i] {axis = 0 : i32} : (tensor<128x64xf32, #rows>, tensor<8x64xi32, #rows>) -> "
            "tensor<8x64xf32, #rows>",
            2 * ELEMENTS_BYTES,
        ),
        (dot("128x64xf16, #x", "64x32xf16, #x", "128x32xf32, #blocked"), 2 * 128 * 64 * 32),
        (dot("128x64xf16, #x", "64x32xf16, #x", MMA), 0),
        ("%x = arith.addf %a, %b : tensor<128xf32, #x>", 0),
        ("%x = arith.addf %a, %b : f32", 0),
    ],
)
def test_bytes_that_threads_may_exchange(line: str, size_bytes: int) -> None:
    assert exchanged_in(line) == size_bytes


@pytest.mark.parametrize(("shape", "lanes"), [("128x64", 4), ("128x4", 4), ("128x2", 2)])
def test_four_lanes_or_more_exchange_parts_of_a_reductions_result(shape: str, lanes: int) -> None:
    assert exchanged_in(reduction("#x", shape)) == 2 * 128 * lanes * 4


def test_results_of_reductions_to_a_scalar_and_of_two_tensors() -> None:
    to_scalar = reduction("#x").replace("128x64", "64").replace("tensor<128xf32, #left>", "f32").replace("= 1", "= 0")
    assert exchanged_in(to_scalar) == 2 * 4 * 4
    of_two = reduction("#x").replace("(tensor<128x64xf32, #x>)", "(tensor<128x64xf32, #x>, tensor<128x64xi32, #x>)")
    assert exchanged_in(of_two) == 2 * 128 * 4 * 4


def test_a_scan_combines_at_least_once_for_each_element() -> None:
    scan = reduction("#x").replace("tt.reduce", "tt.scan").replace("tensor<128xf32, #left>", "tensor<128x64xf32, #x>")
    assert work_in(scan) == Work(additions=128 * 64)
    assert exchanged_in(scan) == 2 * ELEMENTS_BYTES


def test_a_reduction_of_other_types_than_f32_is_not_counted() -> None:
    assert work_in(reduction("#x").replace("f32", "f16")) == NO_WORK


def test_packed_operands_hold_two_floats_unless_they_are_packed_by_rows() -> None:
    packed = scaled("128x32xi8", "32x32xi8", "e2m1", "e2m1")
    by_rows = scaled("64x64xi8", "32x64xi8", "e2m1", "e2m1").replace("{fastMath", "{lhs_k_pack = false, fastMath")
    assert work_in(packed) == Work({"f4": 2 * 128 * 64 * 32})
    assert work_in(by_rows).tensor_flops == {"f4": 2 * 64 * 64 * 64}


@pytest.mark.parametrize(
    ("precision", "work"),
    [
        ("0 : i32", {"tf32": 1}),
        ("1 : i32", {"tf32": 3}),
        ("2 : i32", {"f32": 1}),
        ("3 : i32", {"bf16": 3}),
        ("4 : i32", {"bf16": 6}),
        ("of_tomorrow", {"tf32": 1}),
    ],
)
def test_passes_of_a_precision_that_is_a_number(precision: str, work: Mapping[str, int]) -> None:
    line = (
        f"%d = ttng.warp_group_dot %a, %b, %c {{inputPrecision = {precision}}} : !ttg.memdesc<64x16xf32, #s, #m> * "
        "!ttg.memdesc<16x8xf32, #s, #m> -> tensor<64x8xf32, #mma>"
    )
    assert work_in(line).tensor_flops == {family: passes * 2 * 64 * 16 * 8 for family, passes in work.items()}


def test_a_dot_of_f64_without_tensor_cores_is_work_of_the_fp64_units() -> None:
    assert work_in(dot("128x64xf64, #x", "64x32xf64, #x", "128x32xf64, #blocked")) == Work(fp64=128 * 64 * 32)


@pytest.mark.parametrize(
    "line",
    [
        dot("64xf16, #x", "64x32xf16, #x", "64x32xf32, #mma"),
        dot("32x64xf16, #x", "64xf16, #x", "32x64xf32, #mma"),
        "%d = tt.dot %a, %b, %c : tensor<64x64xf16, #x> -> tensor<64x64xf32, #mma>",
        "%d = ttng.warp_group_dot %a, %b, %c : !ttg.memdesc<64x64xf16, #s, #m> -> tensor<64x64xf32, #mma>",
    ],
)
def test_operands_that_do_not_fit_a_dot_are_no_work(line: str) -> None:
    assert work_in(line) == NO_WORK


def test_a_scaled_dot_of_batches() -> None:
    line = (
        "%d = tt.dot_scaled %a scale %s, %b scale %t, %c lhs = e5m2 rhs = e5m2 {fastMath = false} : "
        "tensor<2x16x64xf8E5M2, #x>, tensor<2x16x2xi8, #x> * tensor<2x64x32xf8E5M2, #x>, tensor<2x32x2xi8, #x> -> "
        "tensor<2x16x32xf32, #mma>"
    )
    assert work_in(line) == Work({"f8": 2 * 2 * 16 * 64 * 32})


def test_a_reduction_along_an_axis_that_is_not_printed() -> None:
    assert work_in(reduction("#rows", "32x64").replace("axis = 1 : i32", "")) == Work(additions=32 * 63)


def test_a_dot_whose_layout_is_a_slice_of_tensor_cores() -> None:
    result = "128x32xf32, #ttg.slice<{dim = 0, parent = #mma}>"
    assert work_in(dot("128x64xf16, #x", "64x32xf16, #x", result)) == Work({"f16": 2 * 128 * 64 * 32})


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

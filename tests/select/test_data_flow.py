"""Which integer arithmetic is work: what is computed from data, but no address, index or mask."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from durations import assert_linear
from golden import fixture_id, fixtures, form_of, read
from planning import plan_of
from small_modules import found, kernel, sequence

from kprof_inject.select.functions import functions_of, integer_work
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse

I32 = "tensor<16xi32, #b>"
POINTERS = "tensor<16x!tt.ptr<i32>, #b>"
INDEX = "%o = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32, #b>"
LOAD = f"%x = tt.load %p : {POINTERS}"


def add(result: str, left: str, right: str) -> str:
    return f"{result} = arith.addi {left}, {right} : {I32}"


def store(value: str) -> str:
    return f"tt.store %q, {value}, %m : {POINTERS}"


def work(*lines: str) -> list[str]:
    """The results of those operations of a kernel that are integer work, in the order of the text."""
    module = parse(kernel(*lines))
    (function,) = functions_of(module, LocationTable(module))
    starts = integer_work(module, function.operation)
    return [op.results.partition("=")[0].strip() for op in function.operation.walk() if op.start in starts]


def test_what_is_computed_from_loaded_values_is_work() -> None:
    assert work(INDEX, LOAD, add("%y", "%x", "%c"), add("%z", "%y", "%o"), store("%z")) == ["%y", "%z"]


def test_what_is_computed_from_indices_is_none() -> None:
    assert work(INDEX, LOAD, add("%y", "%o", "%c"), store("%y")) == []


def test_what_an_address_depends_on_is_none() -> None:
    gather = f"%a = tt.addptr %base, %z : {POINTERS}, {I32}"

    assert work(LOAD, add("%y", "%x", "%c"), add("%z", "%y", "%c"), gather) == []
    assert work(LOAD, add("%y", "%x", "%c"), add("%z", "%y", "%c"), f"ttg.memdesc_index %d[%z] : {I32}") == []


@pytest.mark.parametrize(
    "user",
    [
        f"%v = tt.load %p, %y : {POINTERS}",
        f"tt.store %q, %c, %y : {POINTERS}",
        f'"tt.store"(%q, %c, %y) <{{cache = 1 : i32}}> : ({POINTERS}, {I32}, {I32}) -> ()',
        f"%v = tt.atomic_rmw add, acq_rel, gpu, %q, %c, %y : ({POINTERS}, {I32}, {I32}) -> {I32}",
        f"%v = ttg.async_copy_global_to_local %p, %view mask %y : {POINTERS} -> <16xi32, #s>",
        f"%v = amdg.buffer_load %p[%y] : {I32}",
        f"amdg.buffer_store %c, %p[%o], %y : {I32}",
        f"%v = tt.gather %c[%y] {{axis = 0 : i32}} : ({I32}, {I32}) -> {I32}",
    ],
)
def test_masks_and_indices_are_none(user: str) -> None:
    assert work(LOAD, add("%y", "%x", "%c"), user) == []


@pytest.mark.parametrize(
    "user",
    [
        store("%y"),
        f'"tt.store"(%q, %y, %m) : ({POINTERS}, {I32}, {I32}) -> ()',
        f"%v = tt.atomic_rmw add, acq_rel, gpu, %q, %y, %m : ({POINTERS}, {I32}, {I32}) -> {I32}",
        f"amdg.buffer_store %y, %p[%o], %m : {I32}",
        f"%v = amdg.buffer_atomic_rmw add, relaxed, gpu, %y, %p[%o], %m : {I32}",
        f'%v = "amdg.buffer_atomic_rmw"(%p, %o, %y, %m) : ({I32}, {I32}, {I32}, {I32}) -> {I32}',
        f"ttg.local_store %y, %d : {I32} -> !ttg.memdesc<16xi32, #s>",
        f"%v = tt.gather %y[%o] {{axis = 0 : i32}} : ({I32}, {I32}) -> {I32}",
        f"%v = arith.sitofp %y : {I32} to tensor<16xf32, #b>",
        f'tt.print "%p is " {{hex = false}} : %y : {I32}',
    ],
)
def test_what_is_stored_is_work(user: str) -> None:
    assert work(INDEX, LOAD, add("%y", "%x", "%c"), user) == ["%y"]


def test_an_index_in_another_layout_is_an_index() -> None:
    move = f"%y = ttg.convert_layout %o : {I32} -> {I32}"

    assert work(INDEX, move, add("%z", "%y", "%c"), store("%z")) == []
    assert work(LOAD, move.replace("%o", "%x"), add("%z", "%y", "%c"), store("%z")) == ["%z"]


def test_a_loaded_scalar_is_a_length_or_an_offset() -> None:
    scalar = "%n = tt.load %r : !tt.ptr<i32>"

    assert work(scalar, INDEX, f"%s = tt.splat %n : i32 -> {I32}", add("%y", "%o", "%s"), store("%y")) == []


def test_random_numbers_are_work_from_their_first_product_on() -> None:
    product = f"%y = tt.mulhiui %o, %c : {I32}"

    assert work(INDEX, add("%u", "%o", "%c"), product, add("%z", "%y", "%u"), store("%z")) == ["%y", "%z"]


def test_a_loop_passes_values_on_by_their_position() -> None:
    lines = (
        *(INDEX, LOAD),
        f"%r:2 = scf.for %i = %a to %n step %c iter_args(%s = %o, %t = %x) -> ({I32}, {I32})  : i32 {{",
        *(add("  %u", "%s", "%c"), add("  %v", "%t", "%c"), f"  scf.yield %u, %v : {I32}, {I32}", "}"),
        *(add("%y", "%r#0", "%c"), add("%z", "%r#1", "%c"), store("%y"), store("%z")),
    )

    assert work(*lines) == ["%v", "%z"]


def test_the_generic_form_of_a_loop() -> None:
    lines = (
        *(INDEX, LOAD, '%r:2 = "scf.for"(%a, %n, %c, %o, %x) ({', f"^bb0(%i: i32, %s: {I32}, %t: {I32}):"),
        *(add("  %u", "%s", "%c"), add("  %v", "%t", "%c"), f'  "scf.yield"(%u, %v) : ({I32}, {I32}) -> ()'),
        f"}}) : (i32, i32, i32, {I32}, {I32}) -> ({I32}, {I32})",
        *(add("%y", "%r#0", "%c"), add("%z", "%r#1", "%c"), store("%y"), store("%z")),
    )

    assert work(*lines) == ["%v", "%z"]


def test_an_address_of_the_next_iteration_is_none_in_this_one() -> None:
    lines = (
        f"%r = scf.for %i = %a to %n step %c iter_args(%s = %o) -> ({I32})  : i32 {{",
        *(f"  %g = tt.addptr %base, %s : {POINTERS}, {I32}", f"  %x = tt.load %g : {POINTERS}"),
        *(add("  %u", "%x", "%s"), f"  scf.yield %u : {I32}", "}"),
    )

    assert work(*lines) == []


def test_a_while_hands_on_what_stands_behind_its_condition() -> None:
    lines = (
        *(INDEX, LOAD, f"%r:2 = scf.while (%s = %o, %t = %x) : ({I32}, {I32}) -> ({I32}, {I32}) {{"),
        *(f"  scf.condition(%m) %t, %s : {I32}, {I32}", "} do {", f"^bb0(%u: {I32}, %v: {I32}):"),
        *(add("  %f", "%u", "%c"), add("  %g", "%v", "%c"), f"  scf.yield %g, %f : {I32}, {I32}", "}"),
        *(add("%y", "%r#0", "%c"), add("%z", "%r#1", "%c"), store("%y"), store("%z")),
    )

    assert work(*lines) == ["%f", "%y"]


def test_a_name_is_what_its_own_region_gives_it() -> None:
    branch = (INDEX, f"scf.if %k -> ({I32}) {{", f"  %x = tt.load %p : {POINTERS}", f"  scf.yield %x : {I32}")
    other = ("} else {", f"  %x = tt.bitcast %o : {I32} -> {I32}", add("  %y", "%x", "%c"), store("%y"))

    assert work(*branch, *other, f"  scf.yield %y : {I32}", "}") == []


def test_both_ends_of_a_branch_come_out_of_it() -> None:
    branch = (LOAD, f"%r = scf.if %k -> ({I32}) {{", f"  scf.yield %x : {I32}", "} else {", f"  scf.yield %o : {I32}")

    assert work(*branch, "}", add("%y", "%r", "%c"), store("%y")) == ["%y"]


def test_blocks_pass_values_on() -> None:
    entry = (INDEX, LOAD, f"cf.cond_br %k, ^bb1(%x, %o : {I32}, {I32}), ^bb2")
    first = (f"^bb1(%s: {I32}, %t: {I32}):", add("%y", "%s", "%c"), add("%z", "%t", "%c"), store("%y"), store("%z"))

    assert work(*entry, *first, "tt.return", "^bb2:", "tt.return") == ["%y"]


def test_nests_deeper_than_calls_may_be() -> None:
    loops = ["scf.for %i = %a to %n step %c  : i32 {"] * 500

    assert work(LOAD, *loops, add("%y", "%x", "%c"), store("%y"), *["}"] * 500) == ["%y"]


def test_time_grows_with_the_length_alone() -> None:
    @cache
    def function_of(count: int) -> tuple[Module, Operation]:
        lines = [LOAD, *(add(f"%y{n + 1}", f"%y{n}" if n else "%x", "%x") for n in range(count))]
        module = parse(kernel(*lines, store(f"%y{count}")))
        (function,) = functions_of(module, LocationTable(module))
        assert len(integer_work(module, function.operation)) == count
        return module, function.operation

    assert_linear(lambda count: integer_work(*function_of(count)))


def test_a_scope_reaches_for_integer_work() -> None:
    text = kernel(
        *(
            f"{INDEX} @5",
            f"{LOAD} @5",
            f"{add('%y', '%x', '%c')} @5",
            f"{add('%z', '%o', '%c')} @6",
            f"{store('%y')} @6",
        )
    )

    assert sequence(text, "line(5)=a") == ("tt.make_range [a tt.load arith.addi a] arith.addi tt.store tt.return")
    assert found(plan_of(text, "line(5)=a")) == [("a", "function", 2, 0)]


FORMS = [path for path in fixtures() if form_of(path)]


@pytest.mark.parametrize("path", FORMS, ids=fixture_id)
def test_every_printed_form_tells_the_same(path: Path) -> None:
    stem = path.name.removesuffix(f".{form_of(path)}.ttgir.gz")
    (printed,) = (other for other in path.parent.glob(f"{stem}.ttgir*"))

    assert names_of_work(read(path)) == names_of_work(read(printed))


def names_of_work(text: str) -> list[str]:
    module = parse(text)
    functions = functions_of(module, LocationTable(module))
    starts = frozenset[int]().union(*(integer_work(module, function.operation) for function in functions))
    return sorted(operation.name for operation in module.walk() if operation.start in starts)

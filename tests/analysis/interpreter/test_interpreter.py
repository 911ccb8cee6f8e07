"""The interpreter computes for all CTAs at once what plain loops over the CTAs compute."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from brute_force import Kernel, Overflow, Ran, Table, assert_bytes_right, assert_right, run
from executable_kernels import executable, kernels_in
from generated_kernels import kernels
from golden import fixtures, read
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from replacing import replace

from kprof_inject.analysis.interpreter import axis_arrays
from kprof_inject.analysis.interpreter.accesses import access_of
from kprof_inject.analysis.interpreter.axis_arrays import IntegerExpr
from kprof_inject.analysis.interpreter.interpreter import executed
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import argument_names, result_names

# All that they access is known.
KNOWN = kernels_in("known.txt")
# So is this, although the elements of all CTAs together are too many.
MANY_ELEMENTS = kernels_in("many_elements.txt")
# The loads of ``one`` and ``after`` are unknown.
UNKNOWN = kernels_in("unknown.txt")
# Nor is it known whether the blocks after a branch are reached.
NEVER_KNOWN = kernels_in("never_known.txt")
UNFIT = Path(__file__).parent / "kernels/unfit_operations.txt"


def touched_by(name: str, ran: Ran) -> int | None:
    """Return the bytes that the load of this name touches."""
    ranges = next(access for access, _ in ran.accesses() if result_names(access.operation) == [f"%{name}"]).touched()
    return None if ranges is None else ranges.size_bytes


@pytest.mark.parametrize("name", KNOWN)
def test_everything_is_as_plain_loops_have_it(name: str) -> None:
    ran = run(KNOWN[name])
    assert_right(ran)
    assert_bytes_right(ran)
    assert all(one.times is not None for one in ran.found)
    assert all(access.places is not None and access.touched() is not None for access, _ in ran.accesses())


@pytest.mark.parametrize("name", MANY_ELEMENTS)
def test_terms_of_the_cta_and_of_the_element_stay_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of either are small enough, also where bits are set, shifted and masked, or numbers divided."""
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 12)
    ran = run(MANY_ELEMENTS[name])
    assert_right(ran)
    assert_bytes_right(ran)
    ((access, _),) = ran.accesses()
    assert access.places is not None and access.touched() is not None


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_hangs_on_memory_is_unknown(name: str) -> None:
    ran = run(UNKNOWN[name])
    assert_right(ran)
    assert_bytes_right(ran)
    times = {name: one.times for one in ran.found for name in result_names(one.operation)}
    assert (times["%one"], times["%after"]) == (None, 4)
    assert (touched_by("one", ran), touched_by("after", ran)) == (None, None)


def test_a_loop_with_a_condition_is_the_same_in_the_generic_form() -> None:
    custom = run(KNOWN["a condition that passes less on"])
    text = KNOWN["a condition that passes less on"].text
    for printed, generic in (
        ("scf.while (%k = %x, %n = %c0) : (i32, i32) -> i32 {", '"scf.while"(%x, %c0) ({\n    ^bb0(%k: i32, %n: i32):'),
        ("scf.condition(%goes_on) %both : i32", '"scf.condition"(%goes_on, %both) : (i1, i32) -> ()'),
        ("} do {", "}, {"),
        ("%m2, %c1 : i32, i32\n  }", "%m2, %c1 : i32, i32\n  }) : (i32, i32) -> i32"),
    ):
        assert printed in text
        text = text.replace(printed, generic)
    module = parse(text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    found = executed(module, function, (9, 1, 1), (4096,))
    assert [one.times for one in found] == [one.times for one in custom.found]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("%goes_on) %k : i32", "%goes_on) : i32"),
        ("%goes_on) %k : i32", "%goes_on) %k, %k : i32, i32"),
        ("%goes_on) %k : i32", ""),
        ("scf.condition(%goes_on) %k : i32", ""),
        ("scf.yield %m2 : i32", "scf.yield"),
        ("scf.yield %m2 : i32", "scf.yield %m2, %m2 : i32, i32"),
        ("^bb0(%m: i32):", ""),
        ("%k = %x", "%k = %x, %l = %x"),
    ],
)
def test_where_the_regions_of_a_loop_do_not_fit_nothing_is_known_of_it(before: str, after: str) -> None:
    text = KNOWN["a loop with a condition"].text
    assert before in text
    module = parse(text.replace(before, after))
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    times = {
        name: one.times
        for one in executed(module, function, (7, 1, 1), (4096,))
        for name in result_names(one.operation)
    }
    assert (times["%one"], times["%after"]) == (None, 7)


@pytest.mark.parametrize("name", NEVER_KNOWN)
def test_of_blocks_that_hang_on_memory_nothing_is_known(name: str) -> None:
    ran = run(NEVER_KNOWN[name])
    assert_right(ran)
    assert_bytes_right(ran)
    times = {name: one.times for one in ran.found for name in result_names(one.operation)}
    assert (times["%one"], times["%after"]) == (None, None)
    assert (touched_by("one", ran), touched_by("after", ran)) == (None, None)


@pytest.mark.parametrize("most", [4, 15, 40, 100])
def test_what_is_too_large_is_left_out(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", most)
    for kernel in KNOWN.values():
        ran = run(kernel)
        assert_right(ran)
        assert_bytes_right(ran)


def test_of_a_mask_that_is_too_large_a_part_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison is said to hold where it does so for the whole of a CTA's tile."""
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 100)
    for compare in ("sgt, %t_y, %t_x", "slt, %t_x, %t_y"):
        text = f"""
--grid 20x1x1
ROWS
%t = tt.splat %f : i32 -> tensor<8xi32, #l>
%far = arith.subi %t, %r8 : tensor<8xi32, #l>
TILE %r4 %far
%d = arith.cmpi {compare} : tensor<4x8xi32, #l>
%v = tt.load %t_a, %d : tensor<4x8x!tt.ptr<i32>>
"""
        ran = run(executable(text))
        assert_right(ran)
        ((access, touched),) = ran.accesses()
        assert access.mask is not None and access.mask.is_lower_bound
        assert access.places is not None and 0 < access.places < len(touched)
        assert_bytes_right(ran)


@pytest.mark.parametrize("how", ["ori", "xori"])
def test_a_part_of_a_mask_is_not_joined_by_more_than_and(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the condition may be true in more places, the result is unknown."""
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 100)
    text = f"""
ROWS
TILE %rows %r8
%low = arith.cmpi sle, %t_x, %t_y : tensor<4x8xi32, #l>
%all = arith.constant dense<true> : tensor<4x8xi1, #l>
%d = arith.{how} %low, %all : tensor<4x8xi1, #l>
%v = tt.load %t_a, %d : tensor<4x8x!tt.ptr<i32>, #l>
"""
    ran = run(executable(text))
    assert_right(ran)
    assert_bytes_right(ran)
    ((access, _),) = ran.accesses()
    assert (access.mask, access.touched()) == (None, None)


@pytest.mark.parametrize("name", KNOWN)
def test_without_arguments_what_hangs_on_them_is_unknown(name: str) -> None:
    ran = run(replace(KNOWN[name], known_arguments=()))
    assert_right(ran)
    assert_bytes_right(ran)
    assert all(access.touched() is None for access, _ in ran.accesses())


def knows_integers(path: Path, *, with_arguments: bool) -> bool:
    """Return whether any integer that the functions of a module compute with is known."""
    module = parse(read(path), str(path))
    functions = [one for one in module.walk() if one.name == FUNCTION]
    arguments = [[64] * len(argument_names(module, one)) * with_arguments for one in functions]
    found = [executed(module, one, (4, 2, 1), given) for one, given in zip(functions, arguments, strict=True)]
    return any(isinstance(value, IntegerExpr) for operations in found for one in operations for value in one.operands)


@pytest.mark.parametrize("line", UNFIT.read_text().splitlines())
def test_an_operation_that_does_not_fit_gives_something_unknown(line: str) -> None:
    """And everything else is known as before."""
    text = f"""
ROWS
%huge = arith.constant 400000000000 : i64
TILE %rows %r8
{line}
%v = tt.load %t_a : tensor<4x8x!tt.ptr<i32>, #l>
"""
    module = parse(executable(text).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    found = executed(module, function, (4, 1, 1), (4096,))
    access = access_of(found[-1])
    assert access is not None and access.touched() is not None
    makes = [one for one in found if "%y" in one.operation.results]
    assert len(makes) == line.startswith("%y")


def test_a_loop_that_is_too_long_has_its_operations() -> None:
    body = """
    %most = arith.constant 9000000000000000000 : i64
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %end = scf.for %i = %zero to %most step %one iter_args(%k = %x) -> (i32)  : i64 {
      %k2 = arith.addi %k, %c1 : i32
      scf.yield %k2 : i32
    }
"""
    module = parse(executable(body).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    (inside,) = (one for one in executed(module, function, (4, 1, 1), (4096,)) if "%k2" in one.operation.results)
    assert inside.times is None


def test_loops_in_loops_take_bounded_time() -> None:
    """Each is gone through twice or more, and so is each in it."""
    head = "scf.for %i = %c0 to %n step %c1 iter_args(%k = %x) -> (i32)  : i32 {\n"
    body = head * 200 + "LOAD %one FROM %x\nscf.yield %x : i32\n}\n" * 200
    module = parse(executable(body).text)
    (function,) = (one for one in module.walk() if one.name == FUNCTION)
    found = executed(module, function, (4, 1, 1), (4096,))
    assert {name for one in found for name in result_names(one.operation)} >= {"%one", "%one_a"}


def test_all_compiled_kernels_are_gone_through() -> None:
    """Integers are found in most: few kernels only return, or call others."""
    known = [knows_integers(path, with_arguments=given) for path in fixtures("3.6.0") for given in (False, True)]
    assert sum(known) > 0.95 * len(known)


@pytest.mark.parametrize("memory", [None, Table()], ids=["unknown memory", "known memory"])
@given(kernels(), st.sampled_from((5, 30, 1 << 22)))
@settings(max_examples=35, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_kernels_of_any_kind_are_as_plain_loops_have_them(memory: Table | None, kernel: Kernel, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axis_arrays, "MAX_ELEMENTS", most)
        try:
            ran = run(kernel, memory)
        except Overflow:
            reject()
        assert_right(ran)
        assert_bytes_right(ran, sms=[cta % 3 for cta in range(prod(kernel.grid))])

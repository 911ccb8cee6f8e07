"""Which kernels must not be launched again, which may wait for others, and arguments that a kernel only writes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixtures, form_of, kernel_of, read
from planning import view_of_text
from small_modules import kernel
from text_cases import facts_in

from kprof_inject.capture.scopes import RelaunchRecord
from kprof_inject.select.safety import relaunch, written_arguments
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import argument_names

KERNELS = facts_in(Path(__file__).with_name("relaunch.txt"))
FREE = RelaunchRecord()
ATOMIC = "%old = tt.atomic_cas acq_rel, gpu, %p, %a, %b : (!tt.ptr<i32>, i32, i32) -> i32"


def of(*lines: str) -> RelaunchRecord:
    return relaunch(view_of_text(kernel(*lines)).module)


@pytest.mark.parametrize("name", KERNELS)
def test_what_may_be_launched_again(name: str) -> None:
    """Nothing that would be done twice; and what goes round until memory changes may wait for others."""
    text, (fact,) = KERNELS[name]
    refusal = fact.removeprefix("refused ") if fact.startswith("refused ") else ""
    assert of(text) == RelaunchRecord(refusal=refusal, waits=fact == "waits")


def test_a_function_of_several_blocks_may_go_round() -> None:
    text = f"""module {{
  tt.func public @k(%c: i1) {{
    cf.br ^bb1
  ^bb1:
    {ATOMIC}
    cf.cond_br %c, ^bb1, ^bb2
  ^bb2:
    tt.return
  }}
}}
"""
    assert relaunch(view_of_text(text).module) == RelaunchRecord(waits=True)


def test_a_function_that_returns_early_does_not() -> None:
    text = f"""module {{
  tt.func public @k(%c: i1) {{
    cf.cond_br %c, ^bb1, ^bb2
  ^bb1:
    tt.return
  ^bb2:
    {ATOMIC}
    tt.return
  }}
}}
"""
    assert relaunch(view_of_text(text).module) == FREE


def test_real_modules() -> None:
    """The tutorial's layer norm has a lock, and another kernel looks at a tolerance until that has changed."""
    found = {kernel_of(path): relaunch(parse(read(path), str(path))) for path in fixtures("3.6.0")}
    assert {name: one for name, one in found.items() if one != FREE} == {
        "grouped_gemm": RelaunchRecord(refusal="casts integers to pointers (tt.int_to_ptr)"),
        "debug_strings": RelaunchRecord(refusal="prints (tt.print)"),
        "layer_norm_backward": RelaunchRecord(waits=True),
        "while_condition": RelaunchRecord(waits=True),
    }


EXPECTED = {
    "attention": {"%out_ptr"},
    "layer_norm": {"%out_ptr", "%mean_ptr", "%rstd_ptr"},
    "matmul": {"%c_ptr"},
    "noinline_helper": set(),  # helpers are not followed
    "splitk_matmul": set(),  # by atomics, which read
    "tma_matmul": {"%c_desc"},
    "while_if": {"%out_ptr"},
    "gluon_warp_specialized": {"%out_ptr"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_of_fixtures(name: str) -> None:
    found = [path for path in fixtures("3.6.0") if kernel_of(path) == name and not form_of(path)]
    for path in [path for path in found if "cuda-90" in path.parts]:
        module = parse(read(path), path.name)
        function = next(operation for operation in module.walk() if operation.name == FUNCTION)
        flags = written_arguments(module)
        names = {one for one, flag in zip(argument_names(module, function), flags, strict=False) if flag}
        assert {one for one in names if one.endswith(("_ptr", "_desc"))} == EXPECTED[name]


KERNEL = """module {
  tt.func public @k(%in: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32) {
    %x = tt.load %in : !tt.ptr<f32>
    BODY
    tt.return
  }
}
"""
STORE = "tt.store %out, %x : !tt.ptr<f32>"


@pytest.mark.parametrize(
    ("body", "is_written"),
    [
        (STORE, True),
        (f"%p = tt.addptr %out, %n : !tt.ptr<f32>, i32\n tt.store %p, %x : !tt.ptr<f32>\n {STORE}", True),
        (f"%y = tt.load %out : !tt.ptr<f32>\n {STORE}", False),
        (f"%y = tt.atomic_rmw fadd, acq_rel, gpu, %out, %x : (!tt.ptr<f32>, f32) -> f32\n {STORE}", False),
        (f"%i = tt.ptr_to_int %out : !tt.ptr<f32> -> i64\n tt.call @f(%i) : (i64) -> ()\n {STORE}", False),
        ("", False),
    ],
)
def test_what_is_done_with_an_address(body: str, is_written: bool) -> None:
    assert written_arguments(parse(KERNEL.replace("BODY", body)))[:2] == [False, is_written]


def test_an_address_that_goes_around_a_loop_is_followed() -> None:
    loop = """%c = arith.constant 1 : i32
    %end = scf.for %i = %c to %n step %c iter_args(%p = %out) -> (!tt.ptr<f32>) : i32 {
      tt.store %p, %x : !tt.ptr<f32>
      %next = tt.addptr %p, %c : !tt.ptr<f32>, i32
      scf.yield %next : !tt.ptr<f32>
    }"""
    assert written_arguments(parse(KERNEL.replace("BODY", loop)))[1]
    after = loop + "\n    %y = tt.load %end : !tt.ptr<f32>"
    assert not written_arguments(parse(KERNEL.replace("BODY", after)))[1]

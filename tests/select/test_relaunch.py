"""Which kernels must not be launched again, and which may wait for others."""

from __future__ import annotations

import pytest
from golden import fixtures, kernel_of, read
from planning import view_of_text
from small_modules import kernel

from kprof_inject.capture.schema import RelaunchRecord
from kprof_inject.select.replay_safety import relaunch
from kprof_inject.ttgir.parser import parse

FREE = RelaunchRecord()
ATOMIC = "%old = tt.atomic_cas acq_rel, gpu, %p, %a, %b : (!tt.ptr<i32>, i32, i32) -> i32"
VOLATILE = "%v = tt.load %p {isVolatile = true} : !tt.ptr<i32>"
LOAD = "%v = tt.load %p : !tt.ptr<i32>"


def asm(text: str, *, pure: bool) -> str:
    options = f'constraints = "=r", packed_element = 1 : i32, pure = {str(pure).lower()}'
    return f'%w = tt.elementwise_inline_asm "{text}" {{{options}}} %a : i32 -> i32'


def of(*lines: str) -> RelaunchRecord:
    return relaunch(view_of_text(kernel(*lines)).module)


def in_while(line: str) -> tuple[str, ...]:
    return "scf.while : () -> () {", f"  {line}", "  scf.condition(%c)", "} do {", "  scf.yield", "}"


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        (("%p = tt.int_to_ptr %n : i64 -> !tt.ptr<f32>",), "casts integers to pointers (tt.int_to_ptr)"),
        (("%p = tt.load %q : !tt.ptr<!tt.ptr<f32>>",), "reads pointers from memory (tt.load)"),
        (('tt.print "x: " {hex = false} : %x : i32',), "prints (tt.print)"),
        (
            ('%x = tt.extern_elementwise %a {libname = "", pure = false, symbol = "put"} : (i32) -> i32',),
            "calls put, which may do anything",
        ),
    ],
)
def test_what_would_be_done_twice_is_refused(lines: tuple[str, ...], refusal: str) -> None:
    assert of(*lines) == RelaunchRecord(refusal=refusal)


@pytest.mark.parametrize(
    "lines",
    [
        in_while(ATOMIC),
        in_while(VOLATILE),
        in_while(asm("ld.acquire.gpu.b32 $0, [$1];", pure=False)),
        (asm("spin: ld.acquire.gpu.b32 $0, [$1]; @p bra spin;", pure=False),),
        ("%k = tt.atomic_poll acquire, gpu, %p, %e : !tt.ptr<i32>, i32 -> i1",),
    ],
    ids=["atomic", "volatile", "asm", "branch", "poll"],
)
def test_what_goes_round_until_memory_changes_waits(lines: tuple[str, ...]) -> None:
    assert of(*lines) == RelaunchRecord(waits=True)


@pytest.mark.parametrize(
    "lines",
    [
        (ATOMIC,),
        (VOLATILE,),
        in_while(LOAD),
        in_while(asm("add.u32 $0, $1, 1;", pure=True)),
        (asm("griddepcontrol.wait;", pure=False),),
        ("scf.for %i = %a to %b step %c : i32 {", f"  {ATOMIC}", "}"),
        ('%x = tt.extern_elementwise %a {libname = "", pure = true, symbol = "__nv_sinf"} : (f32) -> f32',),
    ],
    ids=["atomic", "volatile", "load", "pure asm", "asm", "counted", "libdevice"],
)
def test_all_else_is_free_to_be_launched_again(lines: tuple[str, ...]) -> None:
    assert of(*lines) == FREE


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


def test_real_modules() -> None:
    """The tutorial's layer norm has a lock, and another kernel looks at a tolerance until that has changed."""
    found = {kernel_of(path): relaunch(parse(read(path), str(path))) for path in fixtures("3.6.0")}
    assert {name: one for name, one in found.items() if one != FREE} == {
        "grouped_gemm": RelaunchRecord(refusal="casts integers to pointers (tt.int_to_ptr)"),
        "debug_strings": RelaunchRecord(refusal="prints (tt.print)"),
        "layer_norm_backward": RelaunchRecord(waits=True),
        "while_condition": RelaunchRecord(waits=True),
    }

"""Which kernels must not be launched again, and which may wait for others."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixtures, kernel_of, read
from planning import view_of_text
from small_modules import kernel
from text_cases import facts_in

from kprof_inject.capture.scopes import RelaunchRecord
from kprof_inject.select.safety import relaunch
from kprof_inject.ttgir.parser import parse

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

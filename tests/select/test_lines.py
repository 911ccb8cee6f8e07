"""``line(…)``: which operations come from which source lines."""

from __future__ import annotations

import pytest
from planning import counts, insertion_of, plan_of
from small_modules import FILE, found, kernel, sequence
from snapshots import check

from kprof_inject.capture.schema import PointRecord
from kprof_inject.errors import KprofError

LOAD = "%x = tt.load %p : !tt.ptr<f32>"
STORE = "tt.store %p, %x : !tt.ptr<f32>"
BARRIER = "gpu.barrier"


@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("", 2),
        ("k.py:", 2),
        ("src/k.py:", 1),
        ("/src/k.py:", 1),
        ("lib/k.py:", 1),
        ("other/src/k.py:", 0),
        ("h.py:", 0),
        (".py:", 0),
        ("/k.py:", 0),
    ],
)
def test_the_end_of_a_path_is_enough(file: str, count: int) -> None:
    loop = "scf.for %i = %a to %n step %c  : i32 {"
    text = kernel(f"{LOAD} @/src/k.py:5", loop, f"  {STORE} @/lib/k.py:5", "} @9")

    assert len(plan_of(text, f"line({file}5)").scopes) == count
    assert len(plan_of(text, f"line({file}1-6)").scopes) == count


def test_code_that_a_line_calls_belongs_to_it() -> None:
    text = kernel(f"{LOAD} @h.py:3<57", f"{STORE} @h.py:9<h.py:4<57", f"{BARRIER} @58")
    plan = plan_of(text, "line(57)")

    assert sequence(text, "line(57)") == "[line(57) tt.load tt.store line(57)] gpu.barrier tt.return"
    assert plan.scopes[0].source == PointRecord(FILE, 57, 0)
    assert plan.scopes[0].called_from == ()


def test_a_line_of_an_inlined_helper_is_apart_for_each_call() -> None:
    text = kernel(f"{LOAD} @h.py:3<57", f"{STORE} @h.py:3<58", f"{BARRIER} @h.py:3<h.py:9<58")
    plan = plan_of(text, "line(h.py:3)")

    assert sequence(text, "line(h.py:3)=x") == "[x#0 tt.load x#0] [x#1 tt.store x#1] [x#2 gpu.barrier x#2] tt.return"
    assert [[point.line for point in scope.called_from] for scope in plan.scopes] == [[57], [58], [9, 58]]
    assert {scope.source for scope in plan.scopes} == {PointRecord("h.py", 3, 0)}


def test_a_line_that_is_left_in_no_operation() -> None:
    text = kernel(f"{LOAD} @5")
    with pytest.raises(KprofError) as caught:
        insertion_of(text, "line(6)")

    check("select/errors", caught.value.render(), "a line without operations")
    assert counts(plan_of(text, "line(6)", "line(5)")) == {"line(5)": 1}


def test_a_file_s_name_is_quoted_in_a_record() -> None:
    text = kernel(f'{LOAD} loc("/src/odd\\22\\5Cname.py":5:0)')

    done = insertion_of(text, 'line(odd"\\name.py:5)')

    assert done.plan.scopes[0].record == 'line(odd"\\name.py:5)'
    assert '    proton.record start "line(odd\\22\\5Cname.py:5)"\n' in done.text


def test_a_line_of_the_kernel_s_own_that_cannot_have_a_record_is_not_sought_elsewhere() -> None:
    text = kernel(
        f"{LOAD} @h.py:7<9",
        '%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
        "^bb0(%l: f32, %m: f32):",
        "  %s = arith.addf %l, %m : f32 @7",
        "  tt.reduce.return %s : f32 @7",
        "}) : (tensor<16xf32, #b>) -> f32 @8",
    ).replace("\n  }\n", f'\n  }} loc("{FILE}":2:0)\n')

    assert found(plan_of(text, "line(7)")) == []

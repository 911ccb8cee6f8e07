"""Waits for memory in what Triton makes of kernels that have some, and of others."""

from __future__ import annotations

from functools import cache
from typing import Any

import polling_kernels
import pytest
import triton
from planning import view_of_text
from polling_kernels import KERNELS
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.select.candidates import candidates
from kprof_inject.select.plan import make_plan
from kprof_inject.select.safety import relaunch
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse

pytestmark = pytest.mark.triton

TARGETS = {"sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}
# Some have PTX; of the loop over many flags, Triton's compiler for AMD leaves nothing.
NOT_FOR_AMD = (
    *("meets_at_a_barrier", "signals", "waits_in_lines_without_indent", "lets_time_pass", "computes_in_assembly"),
    "reads_many_flags",
)
CASES = [(name, target) for name in KERNELS for target in TARGETS if target == "sm_90" or name not in NOT_FOR_AMD]


@cache
def ttgir_of(name: str, target: str) -> str:
    kernel: Any = getattr(polling_kernels, name)
    signature = {"flag_ptr": "*i32", "out_ptr": "*fp32", "n": "i32"}
    source = triton.compiler.ASTSource(kernel, signature, {})
    return str(triton.compile(source, target=TARGETS[target]).asm["ttgir"])


def waiting_lines(name: str) -> list[int]:
    lines = KERNELS[name].fn.__code__.co_firstlineno, KERNELS[name].src.splitlines()
    return [lines[0] + number for number, line in enumerate(lines[1], 1) if line.endswith("# waits")]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_what_waits_has_a_scope_unasked_and_no_records_in_it(name: str, target: str) -> None:
    view = view_of_text(ttgir_of(name, target))
    plan = make_plan(view, [])
    spins = [scope for scope in plan.scopes if scope.kind == ScopeKind.SPIN]
    lines = [(scope.calls[-1] if scope.calls else scope.place).line for scope in spins if scope.place]
    assert lines == waiting_lines(name)
    assert not any(scope.kind == ScopeKind.ITERATION and plan.scopes[scope.parent] in spins for scope in plan.scopes)
    assert ("spin" in candidates(view)) == bool(spins)
    asked = make_plan(view, parse_selectors(["spin"]))
    assert [scope.record for scope in asked.scopes] == [scope.record for scope in spins]


def test_a_loop_that_waits_is_one_scope_for_all_who_select_it() -> None:
    view = view_of_text(ttgir_of("adds_others_parts", "sm_90"))
    plan = make_plan(view, parse_selectors(["loop", "spin", "iter[0.0]"]))
    assert [(scope.name, scope.kind) for scope in plan.scopes] == [
        ("loop[0]", ScopeKind.LOOP),
        ("spin[0.0]", ScopeKind.SPIN),
        ("iter[0.0]", ScopeKind.ITERATION),
    ]


@pytest.mark.parametrize(("name", "target"), [case for case in CASES if waiting_lines(case[0])])
def test_what_waits_is_not_launched_again(name: str, target: str) -> None:
    assert relaunch(parse(ttgir_of(name, target))).waits


@pytest.mark.parametrize(
    ("name", "waits"), [("asks_a_function", True), ("calls_what_only_computes", False), ("improves_until_told", True)]
)
def test_loops_with_other_work_may_wait_too(name: str, waits: bool) -> None:
    assert relaunch(parse(ttgir_of(name, "sm_90"))).waits == waits

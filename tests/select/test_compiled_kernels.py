"""Lines and parts of kernels that Triton compiled; small kernels are in ``cases``."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import FIXTURES, read
from planning import fixture_view
from small_modules import found

from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors


def test_a_pipelined_load_is_found_where_the_compiler_put_it() -> None:
    """Line 34 of the source loads inside the loop; two stages of it were moved before the loop."""
    view = fixture_view(read(FIXTURES / "3.6.0/cuda-90/marked_matmul.ttgir"))
    plan = make_plan(view, parse_selectors(["line(34)=load", "op(ttg.async_copy_global_to_local)=copy"]))

    assert [(record, block) for record, block, _, _ in found(plan) if record.startswith("load")] == [
        ("load#0", "prologue"),
        ("load#1", "body"),
    ]
    around = {s.record: plan.scopes[s.parent].record for s in plan.scopes if s.name == "copy" and s.parent >= 0}
    assert set(around.values()) == {"load#0", "load#1"}


def test_names_have_the_users_lines() -> None:
    """Lines of Triton's library do not count: they are the same in each reduction."""
    text = read(FIXTURES / "3.6.0/cuda-90/attention.ttgir")
    plan = make_plan(fixture_view(text), parse_selectors(["parts"]))
    in_first_loop = [scope.record for scope in plan.scopes if scope.record.endswith("#0")]
    assert in_first_loop == [
        *("wait@28#0", "dot@29#0", "wait@29#0", "reduce@33#0", "exp2@34#0", "reduce@36#0", "dot@38#0"),
        *("copies@28#0", "copies@37#0"),
    ]
    reduce = next(scope for scope in plan.scopes if scope.record == "reduce@33#0")
    assert reduce.place is not None
    assert Path(reduce.place.file).name == "attention.py"


@pytest.mark.parametrize("target", ["cuda-90", "cuda-100", "hip-gfx942"])
def test_of_every_target(target: str) -> None:
    text = read(FIXTURES / f"3.6.0/{target}/matmul.ttgir")
    names = {scope.name.split("@")[0] for scope in make_plan(fixture_view(text), parse_selectors(["parts"])).scopes}
    assert names >= {"prologue", "dot", "epilogue"}
    assert names & {"copies", "loads"}

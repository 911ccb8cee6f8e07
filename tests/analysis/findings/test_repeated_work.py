"""Work in each iteration of a loop that could be done once."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.findings.evidences import evidence_of, named_in, worth
from snapshots import check

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.repeated_work import loop_invariant, reduction_in_loop

PARTS = {"ALU": 0.2}
LOOP = """\
    %n:2 = scf.for %i = %c0 to %c8 step %c1 iter_args(%acc = %none, %own = %zero) -> (f32, tensor<128xf32, #l>)  : i32 {
      %s = tt.splat %i : i32 -> tensor<128xi32, #l>
      %there = tt.addptr %at, %s : tensor<128x!tt.ptr<f32>, #l>, tensor<128xi32, #l>
      %x = tt.load %there : tensor<128x!tt.ptr<f32>, #l>
BODY
      %one = "tt.reduce"(%y) <{axis = 0 : i32}> ({
      ^bb0(%a: f32, %b: f32):
        %c = arith.addf %a, %b : f32
        tt.reduce.return %c : f32
      }) : (tensor<128xf32, #l>) -> f32
      %next = ACCUMULATE %acc, %one : f32
      %mine = arith.addf %own, %x : tensor<128xf32, #l>
      scf.yield %next, %mine : f32, tensor<128xf32, #l>
    }
"""
INVARIANT_LOAD = """\
      %g = tt.load %at : tensor<128x!tt.ptr<f32>, #l>
      %e = math.exp %g : tensor<128xf32, #l>
      %y = arith.mulf %x, %e : tensor<128xf32, #l>
"""
DIVISION = "      %y = arith.divf %x, %g : tensor<128xf32, #l>\n"
BEFORE = "    %g = tt.load %at : tensor<128x!tt.ptr<f32>, #l>\n"
VARYING = "      %y = arith.divf %x, %x : tensor<128xf32, #l>\n"


def loop(body: str, accumulate: str = "arith.addf") -> str:
    return LOOP.replace("BODY\n", body).replace("ACCUMULATE", accumulate)


def invariant(folder: Path, body: str, *names: str, **samples: int) -> list[Finding]:
    """The findings, which name these operations, and are worth the time of these samples."""
    of_lines = {f"%{name} =": count for name, count in samples.items()}
    evidence = evidence_of(folder, body, PARTS, of_lines)
    found = [one for one in loop_invariant(evidence) if isinstance(one, Finding)]
    assert [name for one in found for name in named_in(evidence, one)] == [*names]
    time_share = sum(samples[name[1:]] for name in names) / 100
    assert all(one.share == pytest.approx(worth(evidence, one, time_share)) for one in found)
    return found


def test_a_load_and_a_function_of_it_that_do_not_depend_on_the_iteration(tmp_path: Path) -> None:
    (found,) = invariant(tmp_path, loop(INVARIANT_LOAD), "%g", "%e", g=20, e=11, y=30)
    assert found.rule == "loop-invariant"
    assert found.figures == {"operations": 2, "divisions": 0, "time_share": pytest.approx(0.31)}
    check("analysis/findings", f"{found.text}\n{found.advice}", "a load that a loop repeats")


def test_waits_for_a_repeated_load_count(tmp_path: Path) -> None:
    body = loop(INVARIANT_LOAD)
    evidence = evidence_of(tmp_path, body, PARTS, {"%e =": 5}, {"%g =": 40})
    (found,) = loop_invariant(evidence)
    assert isinstance(found, Finding)
    assert found.figures["time_share"] == pytest.approx(0.45)
    assert found.share == pytest.approx(worth(evidence, found, 0.45))


def test_a_division_by_the_same_value(tmp_path: Path) -> None:
    (found,) = invariant(tmp_path, BEFORE + loop(DIVISION), "%y", y=25)
    assert found.figures["divisions"] == 1
    assert "reciprocal" in found.advice
    check("analysis/findings", found.advice, "a division by an invariant")


def test_what_differs_from_iteration_to_iteration_stays_where_it_is(tmp_path: Path) -> None:
    assert invariant(tmp_path, loop(VARYING), y=25) == []


def test_what_takes_hardly_any_time_is_not_worth_an_edit(tmp_path: Path) -> None:
    assert invariant(tmp_path, loop(INVARIANT_LOAD), g=2, e=1, y=30) == []


def reductions(folder: Path, body: str) -> list[Finding]:
    evidence = evidence_of(folder, body, PARTS, {'"tt.reduce"': 12, "%c = arith.addf": 5})
    found = [one for one in reduction_in_loop(evidence) if isinstance(one, Finding)]
    assert all(len(named_in(evidence, one)) == one.figures["reductions"] for one in found)
    assert all(one.share == pytest.approx(worth(evidence, one, 0.17 * 7 / 8)) for one in found), "one of 8 is left"
    return found


def test_a_reduction_whose_results_are_added_up(tmp_path: Path) -> None:
    (found,) = reductions(tmp_path, loop(VARYING))
    assert found.rule == "reduction-in-loop"
    check("analysis/findings", f"{found.text}\n{found.advice}", "a reduction in a loop")


def test_a_reduction_in_a_loop_of_few_iterations(tmp_path: Path) -> None:
    """The edit leaves a reduction after the loop."""
    assert reductions(tmp_path, loop(VARYING).replace("to %c8", "to %c1")) == []


def test_a_reduction_that_is_combined_otherwise(tmp_path: Path) -> None:
    assert reductions(tmp_path, loop(VARYING, "arith.mulf")) == []


def test_a_reduction_whose_result_the_iteration_uses(tmp_path: Path) -> None:
    body = loop(VARYING).replace(
        "%mine = arith.addf %own, %x :",
        "%t = tt.splat %one : f32 -> tensor<128xf32, #l>\n      %mine = arith.addf %own, %t :",
    )
    assert reductions(tmp_path, body) == []


def test_a_sum_that_the_iteration_uses(tmp_path: Path) -> None:
    body = loop(VARYING).replace(
        "%mine = arith.addf %own, %x :",
        "%t = tt.splat %next : f32 -> tensor<128xf32, #l>\n      %mine = arith.addf %own, %t :",
    )
    assert reductions(tmp_path, body) == []

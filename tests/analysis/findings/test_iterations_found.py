"""First and last iterations that take much longer than the steady ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import ITERATIONS, Known, launched, rules_of, sentences_of, the_finding
from replacing import replace
from snapshots import check


def first(*ns: int) -> Known:
    return Known(iterations_ns=(*ns, *(100,) * (ITERATIONS - len(ns))))


def test_an_iteration_that_fills_the_pipeline(tmp_path: Path) -> None:
    known = first(910)
    finding = the_finding(launched(tmp_path, known))
    assert (finding.rule, finding.scope) == ("first-iterations", "iter[0]")
    assert finding.share == pytest.approx(810 / known.duration_ns)
    check("analysis/findings", sentences_of(finding), "a slow first iteration")
    assert finding.figures["steady_ns"] == 100


def test_several_iterations_that_fill_it_are_taken_together(tmp_path: Path) -> None:
    known = first(600, 300)
    finding = the_finding(launched(tmp_path, known))
    assert finding.share == pytest.approx(700 / known.duration_ns)
    check("analysis/findings", sentences_of(finding), "slow first iterations")


def test_a_last_iteration(tmp_path: Path) -> None:
    known = Known(iterations_ns=(*(100,) * (ITERATIONS - 1), 1000))
    finding = the_finding(launched(tmp_path, known))
    assert (finding.rule, finding.scope) == ("last-iteration", "iter[0]")
    assert finding.share == pytest.approx(900 / known.duration_ns)
    check("analysis/findings", sentences_of(finding), "a slow last iteration")


# Of 2,400 ns, a tenth are 240 beyond the 100 of a steady iteration.
@pytest.mark.parametrize(("ns", "found"), [(339, []), (340, ["first-iterations"])])
def test_it_costs_a_tenth(tmp_path: Path, ns: int, found: list[str]) -> None:
    loop_ns = ns + 1900
    known = Known(before_ns=0, iterations_ns=first(ns).iterations_ns, after_ns=2400 - loop_ns)
    assert rules_of(launched(tmp_path, known)) == found


def test_many_slow_iterations_that_are_no_twice_as_long_are_none(tmp_path: Path) -> None:
    assert rules_of(launched(tmp_path, first(*(199,) * 8))) == []
    assert rules_of(launched(tmp_path, first(*(200,) * 8))) == ["first-iterations"]


def test_a_loop_of_three_iterations_has_no_steady_state(tmp_path: Path) -> None:
    assert rules_of(launched(tmp_path, Known(iterations_ns=(900, 100, 900)))) == []
    assert rules_of(launched(tmp_path, Known(iterations_ns=(900, 100, 100, 100)))) == ["first-iterations"]


def test_what_only_some_warps_run_is_of_their_time(tmp_path: Path) -> None:
    known = Known(iterations_ns=first(910).iterations_ns, looping=(0,))
    assert the_finding(launched(tmp_path, known)).share == pytest.approx(810 / known.duration_ns)


def test_a_loop_over_tiles_fills_no_pipeline(tmp_path: Path) -> None:
    slow_at_both_ends = Known(iterations_ns=(900, *(100,) * (ITERATIONS - 2), 900))
    timeline = launched(tmp_path, slow_at_both_ends)
    assert sorted(rules_of(timeline)) == ["first-iterations", "last-iteration"]
    *others, work, wait = timeline.table.scopes
    inner = replace(work, kind="loop", label="loop[0.0]")
    assert rules_of(replace(timeline, table=replace(timeline.table, scopes=(*others, inner, wait)))) == []

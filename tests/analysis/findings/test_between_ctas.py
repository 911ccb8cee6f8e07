"""SMs that have no CTA for a while before they get the next one."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import SMS, Known, evidence_of, launched, rules_of, sentences_of, the_finding
from snapshots import check

from kprof_inject.analysis.findings.rules import Outcome, judge_by_rules
from kprof_inject.capture.resources import KernelResources

D = Known().duration_ns


def apart(gap_ns: int, ctas: int = 3) -> list[tuple[int, int, int]]:
    """So many CTAs on each SM, with a gap between two."""
    step_ns = D + gap_ns
    return [(sm, number * step_ns, number * step_ns + D) for number in range(ctas) for sm in range(SMS)]


def test_gaps_are_told_with_what_fills_them(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, ctas=apart(D)))
    assert (finding.rule, finding.scope, finding.share) == ("between-ctas", None, pytest.approx(2 / 5))
    check("analysis/findings", sentences_of(finding), "gaps between CTAs")


def test_where_an_sm_has_room_for_two_another_one_is_no_advice(tmp_path: Path) -> None:
    kernel = {"with_records": KernelResources(ctas_per_sm=2)}
    finding = the_finding(launched(tmp_path, ctas=[row for row in apart(D) for _ in range(2)], kernel=kernel))
    assert finding.share == pytest.approx(2 / 5)
    assert "16 CTAs" in finding.advice
    assert "second CTA" not in finding.advice
    check("analysis/findings", sentences_of(finding), "gaps with room for two CTAs")


@pytest.mark.parametrize(("part", "found"), [(0.15, []), (0.18, ["between-ctas"])])
def test_gaps_take_a_tenth_of_the_launch(tmp_path: Path, part: float, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, ctas=apart(int(part * D)))) == found


def test_gaps_that_another_sm_makes_up_for_are_none(tmp_path: Path) -> None:
    """One SM pauses in the middle of a launch whose other SMs take its CTAs."""
    ctas = [(sm, number * D, (number + 1) * D) for number in range(20) for sm in range(1, SMS)]
    assert rules_of(launched(tmp_path, ctas=[*ctas, (0, 0, D), (0, 19 * D, 20 * D)])) == []


def test_where_records_take_the_room_of_a_cta_gaps_tell_nothing(tmp_path: Path) -> None:
    kernel = {"clean": KernelResources(ctas_per_sm=2), "with_records": KernelResources(ctas_per_sm=1)}
    judged = {one.rule: one for one in judge_by_rules(evidence_of(launched(tmp_path, ctas=apart(D), kernel=kernel)))}
    assert judged["between-ctas"].outcome is Outcome.UNJUDGED
    check("analysis/unjudged", str(judged["between-ctas"].unjudged), "fewer CTAs fit with records")

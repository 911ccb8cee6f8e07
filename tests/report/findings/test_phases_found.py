"""Prologues and epilogues that take much of the CTA's time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from known_kernels import Known, launched, rules_of, the_finding
from timelines import incomplete_rows

LOOP_NS = sum(Known().iterations_ns)


def test_a_slow_prologue(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, Known(before_ns=LOOP_NS, after_ns=0)))
    assert (finding.rule, finding.scope, finding.share) == ("prologue", "loop[0]", 0.5)
    assert finding.text == (
        "slow prologue: before loop[0] begins, 50.0 % of the CTA's time is gone (2.00 µs of 4.00 µs)"
    )
    assert finding.figures["mean_ns"] == LOOP_NS


def test_a_slow_epilogue(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, Known(before_ns=0, after_ns=LOOP_NS // 2)))
    assert (finding.rule, finding.scope) == ("epilogue", "loop[0]")
    assert finding.share == pytest.approx(1 / 3)
    assert finding.text == (
        "slow epilogue: what comes after loop[0] takes 33.3 % of the CTA's time (1.00 µs of 3.00 µs)"
    )


# Of 2,500 ns, a fifth are 500.
@pytest.mark.parametrize(("ns", "found"), [(499, []), (500, ["prologue"])])
def test_a_prologue_takes_a_fifth(tmp_path: Path, ns: int, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, Known(before_ns=ns, after_ns=2500 - LOOP_NS - ns))) == found


@pytest.mark.parametrize(("ns", "found"), [(499, []), (500, ["epilogue"])])
def test_an_epilogue_takes_a_fifth(tmp_path: Path, ns: int, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, Known(before_ns=2500 - LOOP_NS - ns, after_ns=ns))) == found


def test_of_warps_that_lost_records_the_first_loop_is_unknown(tmp_path: Path) -> None:
    timeline = launched(tmp_path, Known(before_ns=LOOP_NS), [(0, 0, 2 * LOOP_NS + 80)])
    assert rules_of(timeline) == ["prologue"]
    lost = [{"cta": 0, "warp": warp, "records_written": 50, "records_lost": 10} for warp in range(4)]
    assert rules_of(replace(timeline, incomplete=incomplete_rows(*lost))) == []
    # One warp that has all is enough.
    assert rules_of(replace(timeline, incomplete=incomplete_rows(*lost[1:]))) == ["prologue"]

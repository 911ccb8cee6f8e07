"""CTAs that take longer than others, so that SMs wait at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import SMS, Known, found_in, launched, rules_of, sentences_of, the_finding_of
from replacing import replace
from snapshots import check

D = Known().duration_ns


def with_last(duration_ns: int) -> list[tuple[int, int, int]]:
    """One CTA on each SM, the last of which takes so long."""
    return [(sm, 0, D) for sm in range(SMS - 1)] + [(SMS - 1, 0, duration_ns)]


def test_a_cta_that_takes_three_times_as_long_is_named(tmp_path: Path) -> None:
    finding = the_finding_of("uneven-ctas", launched(tmp_path, ctas=with_last(3 * D)))
    assert finding.scope is None
    assert finding.share == pytest.approx(2 / 3 * (SMS - 1) / SMS)
    check("analysis/findings", sentences_of(finding), "an uneven CTA")
    assert (finding.figures["last_cta"], finding.figures["median_cta_ns"]) == (7, D)


@pytest.mark.parametrize(("ns", "found"), [(1.24 * D, []), (1.26 * D, ["uneven-ctas"])])
def test_the_last_cta_is_a_quarter_longer(tmp_path: Path, ns: float, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, ctas=with_last(int(ns)))) == found


def test_what_is_within_a_step_of_the_timer_is_not_uneven(tmp_path: Path) -> None:
    """CTAs of 2.5 µs, as a timer with steps of 1 µs shows them: 2 steps, or 3."""
    timeline = launched(tmp_path, ctas=[(sm, 0, 1024 * (2 if sm else 3)) for sm in range(SMS)])
    assert rules_of(timeline) == ["uneven-ctas"]
    assert rules_of(replace(timeline, clock=replace(timeline.clock, timer_step_ns=1024))) == []


def test_ctas_that_only_begin_late_are_not_uneven(tmp_path: Path) -> None:
    late = [(sm, 0, D) for sm in range(SMS - 1)] + [(SMS - 1, D, 2 * D)]
    assert rules_of(launched(tmp_path, ctas=late)) == ["late-start"]


def test_what_the_number_of_ctas_explains_is_a_tail(tmp_path: Path) -> None:
    full = [(sm, 0, D) for sm in range(SMS)]
    assert rules_of(launched(tmp_path / "equal", ctas=[*full, (0, D, 2 * D)])) == ["tail"]
    # It comes last and takes long, too: of equal ones, 9 on 8 SMs lose 7 / 16.
    tail, uneven = found_in(launched(tmp_path / "long", ctas=[*full, (0, D, 3 * D)]))
    assert (tail.rule, uneven.rule) == ("tail", "uneven-ctas")
    assert tail.share == pytest.approx(7 / 16)
    assert uneven.share == pytest.approx(2 / 3 * 7 / 8 - 7 / 16)


def test_an_sm_that_ran_more_ctas_because_they_were_short_is_no_tail(tmp_path: Path) -> None:
    # 16 CTAs on 8 SMs: SM 0 took three, as its first was short, and the last of these is long.
    ctas = [(0, 0, D // 2), (0, D // 2, D), (0, D, 3 * D)]
    ctas += [(sm, 0, D) for sm in range(1, SMS)] + [(sm, D, 2 * D) for sm in range(1, SMS - 1)]
    assert rules_of(launched(tmp_path, ctas=ctas)) == ["uneven-ctas"]


@pytest.mark.parametrize(("begun_ns", "case"), [(0, "most CTAs exit at once"), (20, "most CTAs exit within a step")])
def test_most_ctas_may_have_nothing_to_do(tmp_path: Path, begun_ns: int, case: str) -> None:
    ctas = [(sm, 0, begun_ns) for sm in range(SMS)] + [(0, begun_ns, D)]
    timeline = launched(tmp_path, ctas=ctas)
    step = replace(timeline, clock=replace(timeline.clock, timer_step_ns=32))
    finding = the_finding_of("uneven-ctas", step)
    assert f"{2.16 - begun_ns / 1000:.2f} µs" in finding.text
    check("analysis/findings", sentences_of(finding), case)

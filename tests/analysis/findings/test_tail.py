"""A last wave that does not fill the SMs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from known_kernels import Known, launched, rules_of, sentences_of, the_finding, the_finding_of
from replacing import replace
from snapshots import check

from kprof_inject.capture.resources import KernelResources

D = Known().duration_ns
Ctas = list[tuple[int, int, int]]


def waves(sms: int, full: int, rest: int) -> Ctas:
    """``full`` CTAs on each SM, one after the other, and ``rest`` SMs have one more."""
    ctas = [(sm, wave * D, (wave + 1) * D) for wave in range(full) for sm in range(sms)]
    return ctas + [(sm, full * D, (full + 1) * D) for sm in range(rest)]


def test_the_last_wave_of_few_ctas_is_a_tail(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, ctas=waves(132, 1, 8)))
    assert (finding.rule, finding.scope) == ("tail", None)
    # 140 CTAs take two waves where 1.06 would do.
    assert finding.share == pytest.approx(1 - 140 / 132 / 2)
    check("analysis/findings", sentences_of(finding), "a last wave of few CTAs")
    assert finding.figures["last_wave_ctas"] == 8
    assert finding.figures["waves"] == 2


def test_where_an_sm_has_room_for_all_its_ctas_at_once_they_are_counted(tmp_path: Path) -> None:
    # 3 SMs run two CTAs side by side, which takes twice as long; the others one.
    ctas = [(sm, 0, 2 * D) for sm in (0, 0, 1, 1, 2, 2)] + [(sm, 0, D) for sm in range(3, 8)]
    timeline = launched(tmp_path, ctas=ctas, kernel={"with_records": KernelResources(ctas_per_sm=2)})
    finding = the_finding_of("tail", timeline)
    assert finding.share == pytest.approx(5 / 8 / 2)
    check("analysis/findings", sentences_of(finding), "CTAs that do not divide evenly")


def test_a_single_sm_with_more(tmp_path: Path) -> None:
    ctas = [(0, 0, 2 * D), (0, 0, 2 * D)] + [(sm, 0, D) for sm in range(1, 8)]
    timeline = launched(tmp_path, ctas=ctas, kernel={"with_records": KernelResources(ctas_per_sm=2)})
    check("analysis/findings", sentences_of(the_finding_of("tail", timeline)), "an SM with one CTA more")


@pytest.mark.parametrize(
    "ctas",
    [waves(8, 1, 0), waves(8, 4, 0), waves(8, 2, 7), waves(8, 20, 1), [(0, 0, D)], waves(132, 1, 131)],
    ids=["one wave", "full waves", "nearly full", "one in twenty waves", "one CTA", "one missing"],
)
def test_no_tail(tmp_path: Path, ctas: Ctas) -> None:
    assert rules_of(launched(tmp_path, ctas=ctas)) == []


@pytest.mark.parametrize(("full", "found"), [(8, ["tail"]), (9, [])])
def test_a_tail_takes_a_tenth_of_the_launch(tmp_path: Path, full: int, found: Sequence[str]) -> None:
    # 1 CTA more than fits: of 100 SMs, 99 wait for 1 / 9 or 1 / 10 of the time.
    assert rules_of(launched(tmp_path, ctas=waves(100, full, 1))) == found


def test_ctas_that_are_not_there_tell_nothing(tmp_path: Path) -> None:
    timeline = launched(tmp_path, ctas=waves(8, 1, 1))
    assert rules_of(timeline) == ["tail"]
    assert rules_of(replace(timeline, ctas_never_ran=1)) == []
    assert rules_of(replace(timeline, ctas_damaged=1)) == []
    chosen = replace(timeline, launch=replace(timeline.launch, grid=(10, 1, 1)))
    assert rules_of(chosen) == []


def test_without_a_timer_there_is_no_tail(tmp_path: Path) -> None:
    timeline = launched(tmp_path, ctas=waves(8, 1, 1))
    assert rules_of(replace(timeline, clock=replace(timeline.clock, source="nominal"))) == []

"""The rule on a CTA that is late at a barrier of all CTAs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from barrier_launches import Visits, launch
from programs.child import REPO
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.late_cta import late_cta
from kprof_inject.analysis.findings.rules import Outcome
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.roofs.memory_waits import MEMORY_WAITS
from kprof_inject.analysis.summary import summarise
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

CTAS = 5
BEGIN_NS, ROUND_NS = 1_000, 10_000
LATE_NS = 3_000


def visits_of(*last: int) -> Visits:
    """Rounds in which one CTA each arrives 3 µs after the others, which arrive 100 ns after each other."""
    visits: Visits = [[] for _ in range(CTAS)]
    for number, late in enumerate(last):
        begin_ns = BEGIN_NS + ROUND_NS * number
        for cta in range(CTAS):
            leaves_ns = begin_ns + 100 * CTAS + LATE_NS
            visits[cta].append((begin_ns + 100 * cta + LATE_NS * (cta == late), leaves_ns))
    return visits


def found(timeline: Timeline, **changes: Any) -> list[Finding | Unjudged]:
    return list(late_cta(timeline, replace(summarise(timeline), **{"duration_ns": 3 * ROUND_NS, **changes})))


def test_the_cta_that_is_last_in_most_rounds_is_named(tmp_path: Path) -> None:
    (finding,) = found(launch(tmp_path, visits_of(4, 4, 0)))
    assert isinstance(finding, Finding)
    # The median CTA is the one in the middle; the last but one is the fourth.
    assert finding.share == pytest.approx(2 * (LATE_NS + 200) / (3 * ROUND_NS))
    assert finding.likely == pytest.approx(2 * (LATE_NS + 100) / (3 * ROUND_NS))
    check("analysis/late-cta", f"{finding.sentence}\n{finding.advice}", "the last of five")


@pytest.mark.parametrize("last", [(4, 3, 0), (1, 2, 3)])
def test_if_another_one_is_last_each_time_none_is(tmp_path: Path, last: tuple[int, ...]) -> None:
    assert found(launch(tmp_path, visits_of(*last))) == []


def test_a_small_delay_is_none(tmp_path: Path) -> None:
    timeline = launch(tmp_path, visits_of(4, 4, 4))
    assert found(timeline, duration_ns=1_000_000) == []


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    timeline = launch(tmp_path, visits_of(4, 4, 4))
    (lost,) = found(replace(timeline, records_lost=3, records_written=30))
    (sample,) = found(timeline, recorded_ctas=2)
    assert str(lost) == "10.0 % of the records were lost; use --fit, or a larger --buffer-bytes"
    assert str(sample) == "only 2 of 5 CTAs recorded; add --ctas all"


def test_a_launch_that_waits_for_a_late_cta_gets_no_other_advice() -> None:
    """More CTAs or warps would wait, too. The capture is of ``late_at_barrier.py`` of ``tests/gpu``, on an H100."""
    (recorded,) = read_capture(REPO / "tests/captures/late-at-barrier").launches
    analysis = LaunchAnalysis.of(decode_launch(recorded))
    assert analysis.limit.name == MEMORY_WAITS
    assert [finding.rule for finding in analysis.findings] == ["late-cta"]
    unjudged = {judgement.rule for judgement in analysis.judgements if judgement.outcome == Outcome.UNJUDGED}
    assert {"low-fill", "few-warps", "small-ctas", "barriers"} <= unjudged

"""Which scopes a launch's change comes of, and whether it comes of scopes at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from buffers import Scope
from known_sides import HEAD_NS, ITER_NS, SCOPES, around, usual, with_rows
from numpy.typing import NDArray
from replacing import replace
from snapshots import check
from timelines import cta_rows

from kprof_inject.analysis.comparison.causes import (
    Explanation,
    ScopeGrowth,
    explain_change,
    explained_by,
    explanation_of,
    parents_of,
)
from kprof_inject.analysis.comparison.verdicts import KernelDiff, diff_captures
from kprof_inject.report.diff.wording import kernel_answer
from kprof_inject.timeline.comparison import Change
from kprof_inject.timeline.timeline import Timeline

NESTED = [-1, 0, 1, 2]
"""The scope around each: a function, its loop, the iterations, and a line."""


def slower(percent: float, error: float = 0.01) -> Change:
    return Change(math.log1p(percent / 100), error)


def of_a_us(around: list[int], grown_ns: list[float], percent: float) -> Explanation:
    """Of a launch of 1000 ns with one CTA at a time."""
    grown = [ScopeGrowth(ns, frozenset({0})) for ns in grown_ns]
    return explain_change(around, grown, slower(percent), 0.1)


def parts(found: Explanation) -> list[float]:
    return [round(part, 3) for part in found.parts]


def test_parts_of_a_change_are_each_scopes_own_and_add_up() -> None:
    assert parts(of_a_us(NESTED, [100.0, 80.0, 75.0, 20.0], 10)) == [0.20, 0.05, 0.55, 0.20]


def test_what_is_in_a_scope_of_one_side_alone_counts_for_the_one_around(tmp_path: Path) -> None:
    """The loop has another name and line in B."""
    renamed = [SCOPES[0], replace(SCOPES[1], name="other", kind="marker"), SCOPES[2]]
    b = usual(tmp_path / "b", 2, iter_ns=1.1 * ITER_NS, scopes=renamed)
    kernel = compared(usual(tmp_path / "a", 1), b)
    assert parents_of(kernel) == [-1, 0]
    assert [scope.b.info.name for scope in kernel.unjudged] == ["func", "iter[0]"]


def test_scopes_explain_no_more_than_they_grew_by() -> None:
    found = of_a_us(NESTED, [100.0, 80.0, 80.0, 0.0], 100)
    assert found.percent == pytest.approx(10)
    assert parts(found) == [0.02, 0.0, 0.08, 0.0]


def test_warps_run_beside_each_other() -> None:
    """Producer and consumer, each in its own warps, and both ten per cent slower."""
    grown = [ScopeGrowth(100.0, frozenset({0})), ScopeGrowth(90.0, frozenset({1, 2}))]
    found = explain_change([-1, -1], grown, slower(10), 0.1)
    assert found.percent == pytest.approx(10)
    assert parts(found) == [1.0, 0.9]


def compared(a: list[Timeline], b: list[Timeline]) -> KernelDiff:
    (kernel,) = diff_captures(a, b).kernels
    return kernel


def sentence_of(a: list[Timeline], b: list[Timeline], case: str) -> str:
    sentence = "\n".join(kernel_answer(compared(a, b)))
    check("report/diff-explanation", sentence, case)
    return sentence


def on_sms(timelines: list[Timeline], ctas: int, sms: int) -> list[Timeline]:
    """The same with as many CTAs, one after another on each SM."""
    placed = []
    for one in timelines:
        rows = one.scopes.copy()
        rows["sm"] = rows["cta"] % sms
        placed.append(with_rows(replace(one, ctas=_placed(one, ctas, sms)), rows))
    return placed


def _placed(timeline: Timeline, ctas: int, sms: int) -> NDArray[np.void]:
    begin, took = 1_000_000, int(timeline.ctas["pre_final_ns"][0] - timeline.ctas["init_ns"][0])
    begins = [begin + (cta // sms) * took for cta in range(ctas)]
    return cta_rows(*((cta, cta % sms, at, at + took, at + took) for cta, at in enumerate(begins)))


def test_half_of_the_sms_are_why_and_not_the_loop(tmp_path: Path) -> None:
    a = on_sms(usual(tmp_path / "a", 1, ctas=8), 8, 8)
    b = on_sms(usual(tmp_path / "b", 2, iter_ns=1.1 * ITER_NS, ctas=8), 8, 4)
    # The loop is 15 of 190 µs slower.
    assert "loop[0]" not in sentence_of(a, b, "half of the SMs")


def test_a_longer_tail_is_told(tmp_path: Path) -> None:
    """One of nine CTAs comes after the others, in B alone."""
    a = on_sms(usual(tmp_path / "a", 1, ctas=8), 8, 8)
    b = on_sms(usual(tmp_path / "b", 2, ctas=8), 9, 8)
    b = [replace(one, launch=replace(one.launch, grid=a[0].launch.grid)) for one in b]
    sentence_of(a, b, "a longer tail")


@pytest.mark.parametrize(
    ("apart", "share", "case"),
    [
        # The second CTA of each SM begins later by as long as a CTA takes; or both of three SMs by twice as long.
        (lambda cta, took: took * (cta >= 4), "33.3 %", "no CTA between two"),
        (lambda cta, took: 2 * took * (cta % 4 > 0), "37.5 %", "no CTA before the first"),
    ],
)
def test_when_sms_have_no_cta_is_told(tmp_path: Path, apart: Callable[[int, int], int], share: str, case: str) -> None:
    a = on_sms(usual(tmp_path / "a", 1, ctas=8), 8, 4)
    b = []
    for one in on_sms(usual(tmp_path / "b", 2, ctas=8), 8, 4):
        ctas = one.ctas.copy()
        took = int(ctas["pre_final_ns"][0] - ctas["init_ns"][0])
        for time in ("init_ns", "pre_final_ns", "post_final_ns"):
            ctas[time] += [apart(cta, took) for cta in range(8)]
        b.append(replace(one, ctas=ctas))
    assert f" 0.0 % → {share} " in sentence_of(a, b, case)


def test_what_shows_no_change_is_not_told_as_one(tmp_path: Path) -> None:
    """The second of two CTAs begins later, in B alone: of those that run at once 1.0 are left."""
    a, b = (on_sms(usual(tmp_path / name, seed, ctas=2), 2, 1) for seed, name in enumerate("ab", 1))
    for launch in b:
        for time in ("init_ns", "pre_final_ns", "post_final_ns"):
            launch.ctas[time][1] += 18_000
    sentence = sentence_of(a, b, "a CTA that begins later")
    assert " alone change the time by -0." in sentence and "at once" not in sentence


def test_scopes_that_change_more_than_the_launch_are_told_of_too(tmp_path: Path) -> None:
    a = on_sms(usual(tmp_path / "a", 1, ctas=8), 8, 8)
    b = on_sms(usual(tmp_path / "b", 2, 0.4 * HEAD_NS, 0.4 * ITER_NS, ctas=8), 8, 4)
    sentence_of(a, b, "scopes change more than the launch")


def test_what_no_scope_covers_is_told(tmp_path: Path) -> None:
    """The function is not recorded, and what stands before the loop takes twice as long."""
    scopes = [Scope("func", "func"), replace(SCOPES[1], parent=-1), SCOPES[2]]

    def without_function(timelines: list[Timeline]) -> list[Timeline]:
        return [with_rows(one, one.scopes[one.scopes["scope"] != 0]) for one in timelines]

    a = without_function(usual(tmp_path / "a", 1, scopes=scopes))
    b = without_function(usual(tmp_path / "b", 2, 2 * HEAD_NS, scopes=scopes))
    assert "outside" in sentence_of(a, b, "what no scope covers")


def test_times_without_records_that_change_otherwise_are_told(tmp_path: Path) -> None:
    clean = around(170_000, 5, 100), around(340_000, 6, 100)
    a = usual(tmp_path / "a", 1, clean_ns=clean[0])
    b = usual(tmp_path / "b", 2, 1.1 * HEAD_NS, clean_ns=clean[1])
    assert " is +2." in sentence_of(a, b, "times without records that change otherwise")


def test_parts_are_of_the_change_with_records_where_that_agrees_with_the_one_without(tmp_path: Path) -> None:
    """The loop is 15 of 190 µs slower, with records: that is all of it, but of few launches."""
    clean = around(170_000, 5, 100), around(187_000, 6, 100)
    kernel = compared(
        usual(tmp_path / "a", 1, launches=8, clean_ns=clean[0]),
        usual(tmp_path / "b", 2, iter_ns=1.1 * ITER_NS, launches=8, clean_ns=clean[1]),
    )
    recorded, change = kernel.recorded.change, kernel.launch.change
    assert kernel.by_clean_times and recorded is not None and change is not None
    explanation = explanation_of(kernel)
    assert explanation is not None and explanation.percent < change.low_percent < recorded.high_percent
    assert sum(explained_by(kernel, scope) or 0.0 for scope in kernel.scopes) == pytest.approx(1, abs=0.05)


def test_a_scope_that_is_new_can_explain_it(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("slow", "marker", 0)]

    def with_slow(timeline: Timeline) -> Timeline:
        rows = timeline.scopes[timeline.scopes["scope"] == 0].copy()
        rows["scope"], rows["depth"], rows["duration_ns"] = len(SCOPES), 1, HEAD_NS
        return with_rows(timeline, np.concatenate([timeline.scopes, rows]))

    a = usual(tmp_path / "a", 1, scopes=scopes)
    b = [with_slow(one) for one in usual(tmp_path / "b", 2, 2 * HEAD_NS, scopes=scopes)]
    assert ": slow (new), " in sentence_of(a, b, "a new scope")
    assert ": slow (gone), " in sentence_of(b, a, "a scope that is gone")

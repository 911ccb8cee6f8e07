"""Prologues, epilogues and first iterations that take much of the CTA's time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from buffers import Scope
from known_kernels import (
    FUNC,
    ITERATIONS,
    LOOP,
    WAIT,
    Known,
    evidence_of,
    launched,
    rules_of,
    sentences_of,
    the_finding,
    the_finding_of,
)
from replacing import replace
from snapshots import check
from timelines import incomplete_rows

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.loops import loop_phases
from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.timeline import Timeline

LOOP_NS = sum(Known().iterations_ns)


def numbered(timeline: Timeline, number: str) -> Timeline:
    """The same launch, its loop being another one of its kernel."""
    func, loop, iteration, *others = timeline.table.scopes
    loops = (replace(scope, label=f"{scope.kind}{number}") for scope in (loop, iteration))
    return replace(timeline, table=replace(timeline.table, scopes=(func, *loops, *others)))


def test_of_warps_that_lost_records_the_first_loop_is_unknown(tmp_path: Path) -> None:
    timeline = launched(tmp_path, Known(before_ns=LOOP_NS), [(0, 0, 2 * LOOP_NS + 80)])
    assert rules_of(timeline) == ["prologue"]
    lost = [{"cta": 0, "warp": warp, "records_written": 50, "records_lost": 10} for warp in range(4)]
    assert rules_of(replace(timeline, incomplete=incomplete_rows(*lost))) == []
    # Of the others nothing is known, so that it may be of little.
    one_lost = the_finding(replace(timeline, incomplete=incomplete_rows(*lost[1:2])))
    assert one_lost.share == pytest.approx(LOOP_NS / (2 * LOOP_NS + 80) * 3 / 4)
    assert rules_of(replace(timeline, incomplete=incomplete_rows(*lost[1:]))) == []


def test_a_wait_for_memory_is_no_epilogue(tmp_path: Path) -> None:
    timeline = launched(tmp_path, Known(after_ns=LOOP_NS))
    summary = summarise(timeline)
    assert summary.phases is not None
    spins = [replace(scope, kind=ScopeKind.SPIN) if scope.index == WAIT else scope for scope in summary.scopes]
    for part, rules in ((0.4, ["epilogue"]), (0.6, [])):
        phases = replace(summary.phases, after_scope=WAIT, after_scope_ns=round(part * summary.phases.after_ns))
        changed = replace(summary, scopes=tuple(spins), phases=phases)
        assert [one.rule for one in loop_phases(evidence_of(timeline, changed)) if isinstance(one, Finding)] == rules


def test_without_a_scope_around_all_neither_is_judged(tmp_path: Path) -> None:
    timeline = launched(tmp_path, Known(before_ns=LOOP_NS, after_ns=LOOP_NS))
    assert rules_of(timeline) == ["prologue", "epilogue"]
    func, *others = timeline.table.scopes
    helper = replace(func, label="setup@7")
    assert rules_of(replace(timeline, table=replace(timeline.table, scopes=(helper, *others)))) == []


@pytest.mark.parametrize(
    ("number", "found"),
    [
        ("[1]", ["epilogue"]),
        ("[0.1]", ["epilogue"]),
        ("[1.0]", ["epilogue"]),
        ("[0]", ["prologue", "epilogue"]),
        ("[0.0]", ["prologue", "epilogue"]),
        (" main", ["prologue", "epilogue"]),
    ],
)
def test_time_in_a_loop_that_was_not_recorded_is_no_prologue(tmp_path: Path, number: str, found: list[str]) -> None:
    timeline = launched(tmp_path, Known(before_ns=LOOP_NS, after_ns=LOOP_NS))
    assert rules_of(numbered(timeline, number)) == found


def test_all_loops_before_it_were_recorded(tmp_path: Path) -> None:
    timeline = numbered(launched(tmp_path, Known(before_ns=LOOP_NS, after_ns=0)), "[1]")
    assert rules_of(timeline) == []
    *others, wait = timeline.table.scopes
    first = replace(wait, kind="iter", label="iter[0]", name="the first", parent=FUNC)
    assert rules_of(replace(timeline, table=replace(timeline.table, scopes=(*others, first)))) == ["prologue"]


@pytest.mark.parametrize(
    ("taken_ns", "case"),
    [(LOOP_NS // 2, "a scope of half the epilogue"), (LOOP_NS // 4, "a scope of a quarter")],
)
def test_a_scope_that_was_recorded_there_is_named(tmp_path: Path, taken_ns: int, case: str) -> None:
    known = Known(before_ns=0, after_ns=LOOP_NS, wait=Scope("store", "marker", FUNC, ("/src/kernel.py", 9)), wait_ns={})
    block = launched(tmp_path / "without", known).scopes
    stores = block[block["scope"] == LOOP]
    stores["scope"], stores["start_ns"] = WAIT, stores["end_ns"]
    stores["end_ns"], stores["duration_ns"] = stores["start_ns"] + taken_ns, taken_ns
    block = np.concatenate([block, stores])
    block = block[np.lexsort((block["start_ns"], block["warp"], block["cta"]))]
    finding = the_finding_of("epilogue", launched(tmp_path, known, _blocks=[block]))
    check("analysis/findings", sentences_of(finding), case)
    assert (finding.figures["longest_scope"], finding.figures["longest_scope_ns"]) == ("store", taken_ns)


def test_a_loop_over_tiles_fills_no_pipeline(tmp_path: Path) -> None:
    timeline = launched(tmp_path, Known(iterations_ns=(900, *(100,) * (ITERATIONS - 1))))
    assert rules_of(timeline) == ["first-iterations"]
    *others, work, wait = timeline.table.scopes
    inner = replace(work, kind="loop", label="loop[0.0]")
    assert rules_of(replace(timeline, table=replace(timeline.table, scopes=(*others, inner, wait)))) == []

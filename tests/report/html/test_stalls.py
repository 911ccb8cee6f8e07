"""What the page shows of the stall reasons of a launch, its scopes and its lines."""

from __future__ import annotations

import json
import subprocess

import pytest
from node import node
from programs.child import REPO
from replacing import replace

from kprof_inject.analysis.limits.stalls import REASONS, LineStalls, Share, Stalls
from kprof_inject.report.html.code import (
    AwaitedLine,
    LaunchStalls,
    launch_stalls,
    stalled_source_lines,
    stalled_ttgir_lines,
)
from kprof_inject.report.html.data import page_values

_BARS = REPO / "kprof_inject/report/html/assets/views/line_evidence.js"
PATH, LIBRARY = "/src/k.py", "/lib/standard.py"
LOAD, ADDRESS, SUM, STORE = 10, 11, 12, 13
"""Lines of the TTGIR."""
STALLS = Stalls(
    samples=1000,
    reasons={"selected": 300, "wait": 100, "long_scoreboard": 500, "short_scoreboard": 60, "barrier": 40},
    scopes={0: {"selected": 300, "wait": 100, "long_scoreboard": 500, "short_scoreboard": 60, "barrier": 40}, 1: {}},
    lines=(
        LineStalls(
            SUM, (PATH, 5), {"long_scoreboard": 500, "selected": 200}, {"long_scoreboard": {LOAD: 400, ADDRESS: 600}}
        ),
        LineStalls(STORE, (PATH, 5), {"short_scoreboard": 60, "barrier": 40}, {"short_scoreboard": {14: 60, 0: 60}}),
        LineStalls(14, (LIBRARY, 2), {"selected": 96, "wait": 96}, {}),
        LineStalls(ADDRESS, (PATH, 4), {"wait": 4}, {}),
        LineStalls(LOAD, (PATH, 4), {}, {}),
    ),
    unknown=4,
    operations={LOAD: "LDG", ADDRESS: "LDC", 14: "SHFL"},
)


def test_what_warps_wait_for_longest_comes_first_and_ready_warps_last() -> None:
    made = launch_stalls(STALLS, [PATH])
    names = ["long_scoreboard", "wait", "short_scoreboard", "barrier", "selected"]
    assert ([*made.meanings], [*made.shares]) == (names, names)
    assert made.meanings["long_scoreboard"] == REASONS["long_scoreboard"]
    assert all(made.meanings.values())
    assert made.shares["long_scoreboard"] == Share.of(500, 1000)


def test_samples_at_lines_that_the_page_does_not_show_are_counted() -> None:
    assert launch_stalls(STALLS, [PATH]).elsewhere == pytest.approx(0.196)
    assert launch_stalls(STALLS, []).elsewhere == 1


def test_a_scope_has_the_first_three_of_its_waits() -> None:
    [scope] = launch_stalls(STALLS, [PATH]).scopes
    assert (scope.scope, scope.share) == (0, 1)
    assert [reason for reason, _ in scope.longest] == ["long_scoreboard", "wait", "short_scoreboard"]
    assert len(scope.shares) == 5


def test_lines_with_few_samples_have_no_bar() -> None:
    assert [line.line for line in stalled_ttgir_lines(STALLS)] == [SUM, STORE, 14]


def test_a_line_has_its_share_of_all_samples_and_whose_results_it_waits_for() -> None:
    line = stalled_ttgir_lines(STALLS)[0]
    assert line.share == Share.of(700, 1000)
    assert [(reason, share.value) for reason, share in line.shares.items()] == [
        ("long_scoreboard", 0.5),
        ("selected", 0.2),
    ]
    # At most all samples of the reason wait for a line, even if they wait for several of its results.
    assert line.awaited == [
        AwaitedLine("long_scoreboard", ADDRESS, (PATH, 4), "LDC", 0.5),
        AwaitedLine("long_scoreboard", LOAD, (PATH, 4), "LDG", 0.4),
    ]


def test_a_result_of_an_unknown_line_is_not_named() -> None:
    store = stalled_ttgir_lines(STALLS)[1]
    assert [awaited.line for awaited in store.awaited] == [14]


def test_a_source_line_has_the_samples_of_all_its_operations() -> None:
    made = stalled_source_lines(STALLS)
    assert {path: [line.line for line in lines] for path, lines in made.items()} == {PATH: [5], LIBRARY: [2]}
    [line] = made[PATH]
    assert line.share.value == pytest.approx(0.8)
    assert [*line.shares] == ["long_scoreboard", "short_scoreboard", "barrier", "selected"]
    # Two operations of one source line are awaited as one.
    assert [(awaited.line, awaited.source) for awaited in line.awaited] == [(ADDRESS, (PATH, 4)), (14, (LIBRARY, 2))]


def test_reasons_and_names_of_a_damaged_capture_do_no_harm() -> None:
    hostile = replace(STALLS, reasons={"x\x1b]0;\u202e": 1000}, operations={LOAD: "\x00"})
    assert page_values(launch_stalls(hostile, [PATH]))["meanings"] == {"x ]0; ": ""}
    empty = Stalls(0, {}, {}, (), 0, {})
    assert launch_stalls(empty, [PATH]) == LaunchStalls(0, {}, {}, [], 0)
    assert (stalled_ttgir_lines(empty), stalled_source_lines(empty)) == ([], {})


def test_each_reason_has_a_colour() -> None:
    program = (
        f'import {{ STALL_COLORS }} from "{_BARS.as_uri()}"; console.log(JSON.stringify(Object.keys(STALL_COLORS)))'
    )
    ended = subprocess.run(
        [node(), "--input-type=module", "--eval", program], capture_output=True, text=True, check=True
    )
    assert {*REASONS, "selected", "not_selected"} <= set(json.loads(ended.stdout))

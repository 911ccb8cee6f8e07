"""Questions and their answers, on launches whose truth is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from async_launches import COMMIT, COPIES, LAST, WAIT, Span, launched
from buffers import Scope
from known_kernels import Known
from known_kernels import launched as looping
from known_launch import known_launch
from known_reports import KINDS, lossy, specialised, with_clock
from programs.child import REPO
from timelines import Ran

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.record_costs import RecordCost
from kprof_inject.errors import KprofError
from kprof_inject.report.explanation.answers import answer
from kprof_inject.report.explanation.budget import answer_text
from kprof_inject.report.explanation.questions import FORMS, parse_question
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline

VALIDATOR = jsonschema.Draft202012Validator(json.loads((REPO / "docs/explain.schema.json").read_text()))
COST = RecordCost(30.0, 34.0, 8.0, "measured")


def asked(text: str, report: LaunchAnalysis) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer_text(answer(parse_question(text), report), 1000))
    VALIDATOR.validate(found)
    return found


def with_cost(timeline: Timeline) -> Timeline:
    return replace(timeline, launch=replace(timeline.launch, kernel=replace(timeline.launch.kernel, record_cost=COST)))


@pytest.fixture
def known(tmp_path: Path) -> LaunchAnalysis:
    """Two CTAs of two warps, of 1,000 ns each; one warp of each runs the loop, for 500 ns."""
    timeline = with_cost(known_launch(tmp_path))
    return LaunchAnalysis.of(replace(timeline, clock=replace(timeline.clock, timer_step_ns=32)))


def test_a_share_with_all_that_it_may_be_off_by(known: LaunchAnalysis) -> None:
    found = asked("share loop[0]", known)
    assert (found["value"], found["unit"], found["samples"]) == (0.25, "share of the warps' time", 2)
    # A clock that is known to 1.25 %, and CTAs of 1,000 ns by a timer with steps of 32.
    assert found["error_from"] == {
        "record cost": 0.0,
        "clock rate": pytest.approx(0.25 * 0.0125, rel=1e-3),
        "clock step": pytest.approx(0.25 * 0.032),
    }
    assert found["error"] == pytest.approx(sum(found["error_from"].values()), rel=1e-3)
    assert (found["what"], found["schema"], found["kernel"], found["launch"]) == ("answer", 1, "kernel", 0)
    assert found["verdict"]["level"] == "unknown"


def test_what_records_cost_is_a_part_of_the_error(tmp_path: Path) -> None:
    """From 1,000 ns of a warp 200 were taken out, of which a quarter may be more or less."""
    rows = [Ran(0, 800, record_ns=200)]
    timeline = with_cost(known_launch(tmp_path, [Scope("kernel")], rows))
    found = asked("share kernel", LaunchAnalysis.of(timeline))
    assert found["error_from"]["record cost"] == pytest.approx(200 * 0.25 / 4000)


def test_without_the_cost_or_a_clock_the_error_is_not_known(tmp_path: Path, known: LaunchAnalysis) -> None:
    no_cost = asked("share loop[0]", LaunchAnalysis.of(known_launch(tmp_path / "no cost")))
    assert (no_cost["value"], no_cost["error"]) == (0.25, None)
    assert "because of the record cost" in no_cost["text"]
    assert set(no_cost["error_from"]) == {"clock rate", "clock step"}
    no_clock = LaunchAnalysis.of(with_clock(with_cost(known_launch(tmp_path / "no clock")), ClockSource.ASSUMED, 0.0))
    found = asked("share loop[0]", no_clock)
    assert (found["value"], found["error"]) == (0.25, None)
    assert "the SM clock is assumed" in found["verdict"]["text"]


def test_with_records_lost_the_answer_says_so(tmp_path: Path) -> None:
    found = asked("share loop[0]", lossy(tmp_path)[0])
    assert found["verdict"]["text"].startswith("40.0 % of the records were lost")


def test_the_share_of_a_scope_in_a_partition_is_of_that_partition(tmp_path: Path) -> None:
    (report,) = specialised(tmp_path)
    shares = {scope.title: scope.share for scope in report.summary.scopes}
    for title in ("func (default partition)", "loop[1]", "iter[2]"):
        assert asked(f"share '{title}'", report)["value"] == pytest.approx(shares[title], rel=1e-3)


def test_scopes_of_one_name_are_taken_together(tmp_path: Path) -> None:
    (report,) = specialised(tmp_path)
    waits = [scope for scope in report.summary.scopes if scope.scope == "ttng.wait_barrier"]
    assert len({scope.partition for scope in waits}) > 1
    found = asked("share ttng.wait_barrier", report)
    whole_ns = sum(partition.whole_ns for partition in report.summary.partitions)
    assert found["value"] == pytest.approx(sum(scope.total_ns or 0 for scope in waits) / whole_ns, rel=1e-3)
    assert found["text"].startswith(f"ttng.wait_barrier ({len(waits)} scopes) takes ")


def test_waits_of_a_loop(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(looping(tmp_path, Known(wait_ns=dict.fromkeys(range(4), 30))))
    found = asked("waits-for loop[0]", report)
    assert (found["value"], found["samples"], found["samples_of"]) == (0.3, 8 * 4 * 20, "waits")
    assert found["text"].startswith("warps spend 30.0 % of loop[0] in ttg.async_wait")
    assert asked("waits-for loop[0] ttg.async_wait", report)["value"] == 0.3
    assert asked("waits-for func", report)["value"] == pytest.approx(600 / 2160, rel=1e-3)


@pytest.mark.parametrize("question", ["waits-for ttg.async_wait", "waits-for ttg.async_wait ttg.async_wait"])
def test_a_wait_is_nothing_but_a_wait(tmp_path: Path, question: str) -> None:
    report = LaunchAnalysis.of(looping(tmp_path, Known(wait_ns=dict.fromkeys(range(4), 30))))
    found = asked(question, report)
    assert (found["text"], found["value"], found["error"]) == ("ttg.async_wait is itself a wait", 1, 0)
    assert (found["error_from"], found["samples"]) == ({}, 8 * 4 * 20)


def copying(folder: Path) -> LaunchAnalysis:
    """A loop of 4,600 ns, in which waits for copies take 1,040; another wait, of 600, stands behind it."""
    spans: list[Span] = [(0, 0, 0, 4600)]
    for number in range(4):
        begin = 1000 * number
        spans += [(1, 0, begin, begin + 10), (2, 0, begin + 100, begin + (600 if number >= 2 else 120))]
    spans.append((3, 0, 5000, 5600))
    scopes = {"loop[0]": 0, "ttg.async_commit_group": COMMIT, "ttg.async_wait": WAIT, "last": LAST}
    timeline = launched(folder, COPIES, scopes, spans)
    loop, *inside, last = timeline.table.scopes
    in_loop = [replace(scope, parent=0) for scope in inside]
    table = replace(timeline.table, scopes=(replace(loop, kind="loop", lines=None), *in_loop, last))
    kernel = replace(timeline.launch.kernel, scopes=table)
    return LaunchAnalysis.of(replace(timeline, table=table, launch=replace(timeline.launch, kernel=kernel)))


def test_waits_for_what_was_asked_for(tmp_path: Path) -> None:
    report = copying(tmp_path)
    found = asked("waits-for loop[0] ttg.async_commit_group", report)
    assert found["value"] == pytest.approx(1040 / 4600, rel=1e-3)
    assert found["text"] == (
        "warps spend 22.6 % of loop[0] in ttg.async_wait, for ttg.async_commit_group; 100.0 % of 2 groups were still "
        "in flight when their wait began; the error is unknown, because of the record cost"
    )
    none = asked("waits-for ttg.async_commit_group last", report)
    assert (none["value"], none["error"]) == (None, None)


def test_what_goes_on_meanwhile(tmp_path: Path) -> None:
    found = asked("overlap last ttg.async_commit_group", copying(tmp_path))
    assert (found["value"], found["samples"], found["unit"]) == (1.0, 1, "share of the time of last")
    assert found["error"] is None and found["error_from"] == {"time of completion": 0.0}


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("waits-for loop[0]", "no wait in loop[0] was recorded; add --at 'op(*wait*)'"),
        ("waits-for loop[0] iter[0]", "what iter[0] issues is unknown: nothing asynchronous was recorded"),
        ("share tail", "tail has no time: it did not run, or its records are missing"),
        ("overlap tail loop[0]", "tail or loop[0] has no time"),
        ("waits-for tail", "tail has no time"),
    ],
)
def test_what_cannot_be_told_has_a_reason_and_no_figure(known: LaunchAnalysis, question: str, text: str) -> None:
    found = asked(question, known)
    assert found["text"].startswith(text)
    assert (found["value"], found["error"], found["samples"]) == (None, None, 0)


def test_of_a_mark_there_is_no_share(tmp_path: Path) -> None:
    (report,) = KINDS["a mark alone"](tmp_path)
    assert asked("share here", report)["text"] == "here has no time: it is a mark"


@pytest.mark.parametrize("kind", ["demo", "partitions", "no CTA", "200 scopes", "copies", "ugly names"])
def test_every_question_on_every_scope_has_an_answer_by_the_schema(tmp_path: Path, kind: str) -> None:
    (report,) = KINDS[kind](tmp_path)
    names = [scope.title for scope in report.summary.scopes][:4]
    for name in names:
        for question in ("share '{0}'", "waits-for '{0}'", "waits-for '{0}' '{0}'", "overlap '{0}' '{1}'"):
            found = asked(question.format(name, names[0]), report)
            assert found["value"] is None or 0 <= found["value"] <= 1.01


def test_a_scope_that_is_not_there_is_an_error_with_those_that_are(known: LaunchAnalysis) -> None:
    with pytest.raises(KprofError, match="kernel has no scope 'lop") as error:
        asked("share lop[0]", known)
    assert error.value.hint == "did you mean loop[0]? there are scopes kernel, loop[0], iter[0], tail"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the question is empty"),
        ("shares loop[0]", "there is no question 'shares'"),
        ("share", "share does not take 0 arguments"),
        ("share a b", "share does not take 2 arguments"),
        ("overlap a", "overlap does not take 1 argument"),
        ("waits-for a b c", "waits-for does not take 3 arguments"),
        ("share 'a", "cannot read the question: no closing quotation"),
    ],
)
def test_a_question_that_cannot_be_read_is_a_usage_error(text: str, what: str) -> None:
    with pytest.raises(KprofError) as error:
        parse_question(text)
    assert (error.value.what, error.value.exit_code) == (what, 2)
    assert error.value.hint


def test_an_unknown_question_lists_all_there_are() -> None:
    with pytest.raises(KprofError) as error:
        parse_question("why")
    assert error.value.hint == "the questions are waits-for SCOPE [WHAT], overlap A B, share SCOPE, changed A B"
    assert len(FORMS) == 4


def test_names_with_blanks_stand_in_quotes() -> None:
    assert parse_question("waits-for loop[0] 'load k'").arguments == ("loop[0]", "load k")


def test_a_budget_that_is_too_small_is_refused(known: LaunchAnalysis) -> None:
    with pytest.raises(KprofError, match="is too small") as error:
        answer_text(answer(parse_question("share loop[0]"), known), 20)
    least = int(error.value.hint.split()[1])
    assert msgspec.json.decode(answer_text(answer(parse_question("share loop[0]"), known), least))

"""What ``explain`` tells of captures of all kinds: within its budget, by its schema, and what matters first."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_launch import known_launch
from known_reports import KINDS, one
from programs.child import REPO
from snapshots import check

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.errors import KprofError
from kprof_inject.report.explanation import explanation
from kprof_inject.report.explanation_schema import (
    DEFAULT_BUDGET,
    Explanation,
    explanation_text,
    json_schema,
    short_name,
    short_text,
    tokens_of,
)
from kprof_inject.report.terminal.screens import answers_text

SCHEMA = REPO / "docs/explain.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
LISTS = ("findings", "tried", "waits", "places", "scopes", "roofs", "overlap", "not_judged", "other_kernels")
FEW, MANY = 1, 100_000


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[LaunchAnalysis]]:
    return {name: made(tmp_path_factory.mktemp("launch")) for name, made in KINDS.items()}


def told(reports: list[LaunchAnalysis], budget: int = DEFAULT_BUDGET) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(explanation_text(explanation(reports), budget))
    return found


def least_budget(reports: list[LaunchAnalysis]) -> int:
    with pytest.raises(KprofError) as error:
        explanation_text(explanation(reports), FEW)
    assert error.value.exit_code == 2
    return int(error.value.hint.split()[1])


def test_there_are_captures_of_many_kinds(known: dict[str, list[LaunchAnalysis]]) -> None:
    assert len(known) >= 20
    rules = {finding.rule for reports in known.values() for finding in reports[0].findings[:1]}
    assert len(rules) >= 8


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_within_its_budget_and_valid_and_has_the_report_s_first_finding(
    known: dict[str, list[LaunchAnalysis]], kind: str
) -> None:
    reports = known[kind]
    screen = answers_text(reports, 10_000)
    for budget in (DEFAULT_BUDGET, least_budget(reports)):
        text = explanation_text(explanation(reports), budget)
        assert (len(text) + 1) / 4 <= budget
        assert "\n" not in text
        VALIDATOR.validate(found := json.loads(text))
        if any(finding.expected for finding in reports[0].findings):
            first = found["findings"][0]
            assert f"TRY    {first['advice']} (worth up to " in screen
            assert first["text"] in screen
        else:
            assert "worth up to" not in screen
        assert found["limit"]["text"] in screen
        assert f"TRUST  {found['verdict']['level']}: {found['verdict']['text']}" in screen


@pytest.mark.parametrize("kind", KINDS)
def test_with_room_for_all_of_it_nothing_is_left_out(known: dict[str, list[LaunchAnalysis]], kind: str) -> None:
    found = told(known[kind], MANY)
    assert found["left_out"] == {}
    report = next(
        one for one in known[kind] if one.summary.variant == found["kernel"]["variant"] or kind == "ugly names"
    )
    assert len(found["findings"]) == len(report.findings)
    assert len(found["not_judged"]) == len(report.unjudged)


@pytest.mark.parametrize(
    "kind", ["demo", "several faults", "delays", "tried edits", "200 scopes", "ugly names", "70 kernels"]
)
@given(budget=st.integers(1, 4000))
@settings(max_examples=60, deadline=None)
def test_any_budget_is_kept_or_refused(known: dict[str, list[LaunchAnalysis]], kind: str, budget: int) -> None:
    made = explanation(known[kind])
    least = least_budget(known[kind])
    if budget < least:
        with pytest.raises(KprofError, match=f"a budget of {budget} tokens"):
            explanation_text(made, budget)
        return
    text = explanation_text(made, budget)
    assert tokens_of(text) <= budget
    found, whole = json.loads(text), told(known[kind], MANY)
    VALIDATOR.validate(found)
    for name in LISTS:
        kept = len(found[name])
        assert found[name] == whole[name][:kept]
        assert kept + found["left_out"].get(name, 0) == len(whole[name])
    # With one token more, no less is told.
    more = json.loads(explanation_text(made, budget + 1))
    assert all(len(more[name]) >= len(found[name]) for name in LISTS)


def test_what_must_be_told_takes_a_quarter_of_the_default_budget(known: dict[str, list[LaunchAnalysis]]) -> None:
    usual = {kind: least_budget(reports) for kind, reports in known.items() if kind != "ugly names"}
    assert max(usual.values()) < DEFAULT_BUDGET / 4, usual
    assert least_budget(known["ugly names"]) < DEFAULT_BUDGET


def test_one_of_each_list_goes_before_a_second_of_any(known: dict[str, list[LaunchAnalysis]]) -> None:
    whole = told(known["200 scopes"], MANY)
    found = told(known["200 scopes"], least_budget(known["200 scopes"]) + 250)
    assert found["left_out"]["scopes"] > 190
    assert all(found[name] for name in LISTS if whole[name])


def test_the_kernel_that_takes_most_of_the_time_is_explained_and_the_others_are_named(
    known: dict[str, list[LaunchAnalysis]],
) -> None:
    found = told(known["70 kernels"], MANY)
    assert found["kernel"]["name"] == "kernel_0"
    assert [one["name"] for one in found["other_kernels"]] == [f"kernel_{number}" for number in range(1, 70)]
    assert found["next"]["command"].startswith("kprof-inject profile --kernel kernel_0 ")


def test_of_many_launches_the_one_in_the_middle_is_explained(known: dict[str, list[LaunchAnalysis]]) -> None:
    kernel = told(known["20 launches"])["kernel"]
    assert (kernel["launch"], kernel["time_ns"], kernel["launches_captured"]) == (9, 1009, 20)


def test_what_is_missing_is_told(known: dict[str, list[LaunchAnalysis]]) -> None:
    found = told(known["lost records"])
    assert found["records"] == {"written": 100, "lost": 40, "damaged": 0, "unpaired": 0}
    assert "40.0 %" in found["verdict"]["text"]
    check("report/lost-verdict", found["verdict"]["text"])
    assert found["next"]["command"] == "kprof-inject profile --fit -- PROG"
    clock = told(known["no clock"])["clock"]
    assert (clock["source"], clock["nominal_mhz"], clock["error_percent"]) == ("assumed", None, None)
    assert told(known["no timer"])["clock"]["error_percent"] == 20


def test_waits_and_what_was_asked_for(known: dict[str, list[LaunchAnalysis]]) -> None:
    (wait,) = told(known["waiting"])["waits"]
    assert (wait["scope"], wait["is_lost"], wait["executions"]) == ("ttg.async_wait", True, 8 * 4 * 20)
    assert wait["share"] == pytest.approx(70 * 20 / (2000 + 160), abs=1e-3)
    (work,) = told(known["copies"])["overlap"]
    assert (work["work"], work["depth"], work["groups"], work["blocked_share"]) == ("copies", 2, 4, 1.0)


def test_places_that_were_delayed_are_ranked(known: dict[str, list[LaunchAnalysis]]) -> None:
    places = told(known["delays"], MANY)["places"]
    assert [place["scope"] for place in places[:2]] == ["place 0", "place 1"]
    assert (places[0]["slope"], places[0]["slope_error"]) == (1.0, 0.1)
    assert (places[-1]["slope"], places[-1]["reason"]) == (None, "it was not timed often enough")


def test_edits_that_were_tried_have_what_was_predicted_and_what_they_won(
    known: dict[str, list[LaunchAnalysis]],
) -> None:
    found = told(known["tried edits"], MANY)
    best, *others = found["tried"]
    assert best == {
        "edits": "num_stages=4",
        "outcome": "faster",
        "is_best": True,
        "won_share": 0.312,
        "won_share_low": 0.306,
        "won_share_high": 0.318,
        "predicted_share": 0.725,
        "finding": "prologue",
        "results": "within",
        "refusal": "",
    }
    assert [(one["edits"], one["won_share"]) for one in others] == [
        ("maxnreg=24", 0.001),
        ("num_warps=2", -0.2),
        ("num_warps=16", None),
        ("env=DISABLE_LLVM_OPT=disable-lsr", None),
    ]
    assert [(one["refusal"], one["finding"]) for one in others[1:3]] == [("", "prologue"), ("its results differ", None)]
    won = {finding["rule"]: finding["won_share"] for finding in found["findings"]}
    assert won.pop("prologue") == 0.312
    assert set(won.values()) <= {None}
    assert told(known["prologue"])["tried"] == []


def test_the_best_edit_outlasts_all_other_lists(known: dict[str, list[LaunchAnalysis]]) -> None:
    found = told(known["tried edits"], least_budget(known["tried edits"]) + 80)
    assert [one["edits"] for one in found["tried"]] == ["num_stages=4"]
    assert found["left_out"]["tried"] == 4
    assert found["scopes"] == []


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("unreliable", "kprof-inject profile --at func --at loop -- PROG"),
        ("prologue", "kprof-inject profile --replay 50 -- PROG"),
        ("demo", "kprof-inject profile --launches 0:20 -- PROG"),
    ],
)
def test_the_next_command(known: dict[str, list[LaunchAnalysis]], kind: str, command: str) -> None:
    assert told(known[kind])["next"]["command"] == command


def test_the_hash_is_what_sha256sum_prints_of_the_source_file(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    texts = {"/src/b.py": "def k():\n    pass\n", "/src/a.py": "# größe\n"}
    for sources in (texts, {"/src/a.py": texts["/src/a.py"]}):
        (timeline.launch.kernel.folder / "sources.json").write_text(json.dumps(sources))
        whole = "".join(text for _, text in sorted(sources.items()))
        assert told(one(timeline))["kernel"]["source_sha256"] == hashlib.sha256(whole.encode()).hexdigest()
    (timeline.launch.kernel.folder / "sources.json").write_text("{")
    assert told(one(timeline))["kernel"]["source_sha256"] is None


def test_the_schema_that_is_shipped_is_that_of_the_records() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(), "run scripts/explain-schema"
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_the_schema_asks_for_every_field_and_allows_later_ones(known: dict[str, list[LaunchAnalysis]]) -> None:
    found = told(known["demo"])
    defined = json_schema()["$defs"]["Explanation"]
    assert {"what", *(field.name for field in msgspec.structs.fields(Explanation))} == {*defined["required"]}
    for change in ({"schema": 2}, {"what": "answer"}, {"findings": [{}]}, {"kernel": None}):
        assert not VALIDATOR.is_valid({**found, **change})
    assert VALIDATOR.is_valid({**found, "later": 1})
    assert not VALIDATOR.is_valid({name: value for name, value in found.items() if name != "limit"})


@given(st.text(max_size=2000))
def test_names_and_sentences_are_short_and_can_be_printed(text: str) -> None:
    for shortened, most in ((short_name(text), 100), (short_text(text), 400)):
        assert len(shortened) <= most
        assert shortened.isprintable()
        assert shortened.encode().decode() == shortened

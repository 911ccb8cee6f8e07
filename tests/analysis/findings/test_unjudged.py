"""Which rules could not judge a launch, why, and what would help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from altered import altered
from buffers import Cta, Scope, end, save_launch, start
from finding_cases import Case
from known_kernels import Known, evidence_of, launched
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.rules import RULES, Outcome, judge_by_rules
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.summary import summarise
from kprof_inject.capture.schema import TTGIR_FILE
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.timeline.trust import Level

OF_CTAS = ("low-fill", "between-ctas", "tail", "uneven-ctas", "few-warps", "small-ctas")
OF_LOOPS = ("prologue", "epilogue", "first-iterations")
OF_WARPS = ("imbalanced-warps",)
OTHERS = ("low-fill", "short-launch", "between-ctas", "tail", "uneven-ctas", *OF_WARPS, *OF_LOOPS)
NAMES = tuple(name for rule in RULES for name in rule.names)
OF_WORK = tuple(name for name in NAMES if name not in OTHERS)
HEALTHY = Known()
LOOP, LOOP_THAT_WAITS = "scf.for %i = ...", "scf.for %i = ...\nttg.async_wait"


def unjudged(timeline: Timeline, **changes: Any) -> dict[str, tuple[str, ...]]:
    summary = replace(summarise(timeline), **changes)
    report = altered(LaunchAnalysis.of(timeline), judgements=judge_by_rules(evidence_of(timeline, summary)))
    return {str(why): rules for why, rules in report.unjudged.items()}


def whole(folder: Path, known: Known = HEALTHY, **changes: Any) -> Timeline:
    return launched(folder, known, kernel={"sm_count": 8}, **changes)


def with_text(timeline: Timeline, text: str) -> Timeline:
    (timeline.launch.kernel.folder / TTGIR_FILE).write_text(text)
    return timeline


def with_scopes(folder: Path, *scopes: str) -> Timeline:
    """A launch of which these scopes, ``name kind``, were recorded."""
    warp = [start(0, 10), end(0, 1990)] if scopes else []
    return decode_launch(save_launch(folder, [Scope(*scope.split()) for scope in scopes], [Cta([warp] * 4)], slots=4))


def test_every_rule_judges_a_whole_launch(tmp_path: Path) -> None:
    timeline = whole(tmp_path)
    assert {one.conclusion.outcome for one in judge_by_rules(evidence_of(timeline))} == {Outcome.NOT_FOUND}


def test_each_rule_says_one_of_three_things(tmp_path: Path) -> None:
    """A third of the SMs has nothing to do at the end, and records were lost."""
    duration_ns = Known().duration_ns
    ctas = [(sm, 0, duration_ns) for sm in range(8)] + [(0, duration_ns, 2 * duration_ns)]
    timeline = launched(tmp_path, ctas=ctas, kernel={"sm_count": 8}, records_lost=74)
    said = {judgement.rule: judgement.conclusion.outcome.value for judgement in judge_by_rules(evidence_of(timeline))}
    assert tuple(said) == NAMES
    assert said == {
        **dict.fromkeys(("low-fill", "short-launch", "between-ctas", "uneven-ctas"), "not found"),
        "tail": "found",
        **dict.fromkeys((*OF_WARPS, *OF_LOOPS), "could not judge"),
        **dict.fromkeys(OF_WORK, "not found"),
    }


@pytest.mark.parametrize(
    ("changes", "rules", "case"),
    [
        ({"records_lost": 74}, (*OF_WARPS, *OF_LOOPS), "lost records"),
        ({"records_lost": 74, "records_damaged": 1}, (*OF_WARPS, *OF_LOOPS), "lost records"),
        (
            {"records_lost": 3, "records_written": 90_000},
            (*OF_WARPS, *OF_LOOPS),
            "3 of 90000 records lost",
        ),
        ({"records_damaged": 2}, (*OF_WARPS, *OF_LOOPS), "damaged records"),
        ({"ctas_never_ran": 2}, OF_CTAS, "CTAs that never ran"),
        ({"ctas_damaged": 1}, OF_CTAS, "a damaged CTA"),
    ],
)
def test_what_is_missing_keeps_rules_from_judging(
    tmp_path: Path, changes: dict[str, int], rules: tuple[str, ...], case: str
) -> None:
    ((why, found),) = unjudged(whole(tmp_path, **changes)).items()
    assert found == rules
    check("analysis/unjudged", why, case)


def test_what_was_found_stays_found_whatever_is_missing(tmp_path: Path) -> None:
    timeline = whole(tmp_path, Known(before_ns=2000), records_lost=1)
    judged = {judgement.rule: judgement.conclusion.outcome for judgement in judge_by_rules(evidence_of(timeline))}
    assert (judged["prologue"], judged["epilogue"]) == (Outcome.FOUND, Outcome.UNJUDGED)


def test_what_rests_on_records_of_which_some_are_missing_is_doubtful(tmp_path: Path) -> None:
    """A third of the SMs idles at the end, whatever was recorded."""
    duration_ns = Known(before_ns=2000).duration_ns
    ctas = [(sm, 0, duration_ns) for sm in range(8)] + [(0, duration_ns, 2 * duration_ns)]
    lacking = launched(tmp_path, Known(before_ns=2000), ctas, kernel={"sm_count": 8}, records_lost=74)
    prologue, tail = LaunchAnalysis.of(lacking).findings
    assert prologue.rule == "prologue"
    assert prologue.doubt.startswith("74.0 %")
    assert prologue.sentence == f"{prologue.text} (doubtful: {prologue.doubt})"
    check("analysis/unjudged", prologue.doubt, "a doubtful finding")
    assert (tail.rule, tail.doubt, tail.sentence) == ("tail", "", tail.text)
    assert [one.doubt for one in LaunchAnalysis.of(replace(lacking, records_lost=0)).findings] == ["", ""]


def test_ctas_that_were_not_chosen(tmp_path: Path) -> None:
    timeline = whole(tmp_path)
    chosen = replace(timeline, launch=replace(timeline.launch, grid=(10, 1, 1)))
    ((why, rules),) = unjudged(chosen).items()
    assert rules == OF_CTAS
    check("analysis/unjudged", why, "CTAs that were not chosen")


def test_the_devices_size_may_be_unknown(tmp_path: Path) -> None:
    ((why, rules),) = unjudged(launched(tmp_path)).items()
    assert rules == ("low-fill",)
    check("analysis/unjudged", why, "a device of unknown size")


def test_without_a_timer_nothing_is_known_of_ctas(tmp_path: Path) -> None:
    ((why, rules),) = unjudged(whole(tmp_path), waves=None).items()
    assert rules == OF_CTAS
    check("analysis/unjudged", why, "no timer readings")


def test_a_launch_within_a_step_of_the_timer_has_no_end(tmp_path: Path) -> None:
    ((why, rules),) = unjudged(whole(tmp_path), ending=None).items()
    assert rules == ("between-ctas", "tail", "uneven-ctas")
    check("analysis/unjudged", why, "a launch too short to time")


def test_where_no_cta_ran_no_rule_judges(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, [Scope("func")], [None, None], slots=4))
    assert unjudged(timeline) == {"no CTA ran": NAMES}


def test_a_disturbed_kernel_may_be_limited_by_its_records(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(whole(tmp_path))
    assert report.doubts == ()
    (doubt,) = altered(report, verdict=replace(report.verdict, level=Level.UNRELIABLE)).doubts
    check("analysis/unjudged", doubt, "a disturbed kernel")


@pytest.mark.parametrize(
    ("scopes", "text", "expected"),
    [
        (["func func"], "module {}", {}),
        (["func func"], LOOP, {"--at loop --at iter": OF_LOOPS}),
        (["func func"], LOOP_THAT_WAITS, {"--at loop --at iter": OF_LOOPS}),
        (["func func"], "", {"--at loop --at iter": OF_LOOPS}),
        (
            ["loop[0] loop"],
            LOOP_THAT_WAITS,
            {"--at func": OF_LOOPS[:2], "--at iter": OF_LOOPS[2:]},
        ),
        (["iter[0] iter"], "scf.while\nttng.warp_group_dot_wait", {"--at func": OF_LOOPS[:2]}),
        ([], LOOP, {"--at func --at loop": OF_WARPS, "--at loop --at iter": OF_LOOPS}),
    ],
    ids=["no loop", "a loop", "waits", "an unknown text", "no func", "waits for tensor cores", "nothing"],
)
def test_what_was_not_recorded_keeps_rules_from_judging_kernels_that_have_it(
    tmp_path: Path, scopes: list[str], text: str, expected: dict[str, tuple[str, ...]]
) -> None:
    timeline = with_text(with_scopes(tmp_path, *scopes), text)
    found = {why: rules for why, rules in unjudged(timeline).items() if rules != ("low-fill",)}
    assert {why.partition("; add ")[2]: rules for why, rules in found.items()} == expected


def test_what_was_not_recorded_is_said_with_what_to_record(tmp_path: Path) -> None:
    lacking = [with_text(with_scopes(tmp_path / "nothing"), LOOP)]
    lacking.append(with_text(with_scopes(tmp_path / "a loop", "loop[0] loop"), LOOP_THAT_WAITS))
    check("analysis/unjudged", "\n".join(why for timeline in lacking for why in unjudged(timeline)), "no records")


def test_a_loop_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    timeline = whole(tmp_path)
    func, loop, iteration, *others = timeline.table.scopes
    second = (func, replace(loop, name="main", label="loop[2]"), replace(iteration, label="iter[2]"), *others)
    found = unjudged(replace(timeline, table=replace(timeline.table, scopes=second)))
    ((why, rules),) = found.items()
    assert rules == ("prologue",)
    check("analysis/unjudged", why, "a loop without records")


def test_of_warps_that_were_not_recorded_nothing_is_known(tmp_path: Path) -> None:
    timeline = whole(tmp_path, Known(warps=3))
    kernel = timeline.launch.kernel
    some = replace(kernel, num_warps=8, mode=replace(kernel.mode, warps=(0, 1, 2)))
    found = unjudged(replace(timeline, launch=replace(timeline.launch, kernel=some)))
    (why,) = [why for why, rules in found.items() if rules == ("imbalanced-warps",)]
    check("analysis/unjudged", why, "only some warps")


def test_records_without_a_partner_may_hide_something(tmp_path: Path) -> None:
    timeline = whole(tmp_path, open_starts=np.array([2, 0, 1, 0, 0]), stray_ends=np.zeros(5, dtype=np.int64))
    assert unjudged(timeline) == {"3 records have no matching start or end": (*OF_WARPS, *OF_LOOPS)}


def test_where_records_take_the_room_of_a_cta_gaps_tell_nothing(tmp_path: Path) -> None:
    room = Case.of("--room 1\n--clean-room 2\n--ctas 0-7 0 D\n--ctas 0-7 2*D 3*D\n--ctas 0-7 4*D 5*D\n")
    (why,) = [why for why, rules in unjudged(room.launched(tmp_path)).items() if "between-ctas" in rules]
    check("analysis/unjudged", why, "fewer CTAs fit with records")

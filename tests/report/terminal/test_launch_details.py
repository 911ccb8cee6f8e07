"""What is told of a launch in detail, as a file and as terminals get it."""

from __future__ import annotations

from pathlib import Path

import pytest
from altered import altered, answer_of
from buffers import Scope
from known_edits import known_edits
from known_launch import FUNC, SCOPES, known_launch
from replacing import replace
from screens import WIDE, coloured, lines_shown
from snapshots import check
from timelines import Ran

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.resources import KernelResources
from kprof_inject.report.terminal.screens import findings_shown, print_details
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level

TITLES = ["scope", "source", "count", "total", "self", "mean", "p50", "p99", "share", "█ self ░ in it"]
TARGET = {"target": {"backend": "cuda", "arch": 90, "warp_size": 32}}
CLEAN = KernelResources(128, 0, shared_bytes=49152, ctas_per_sm=4, times_ns=(10_000.0,) * 9)
RECORDED = KernelResources(136, 2, shared_bytes=57344, ctas_per_sm=3, times_ns=(10_100.0,) * 9)
FINDINGS = (
    Finding("tail", None, 0.47, "wave of [8] CTAs", "make it a full one", {}),
    Finding("prologue", "loop\x1b[0]", 0.2, "slow before loop\x1b[0]", "look at it", {}),
)


def printed(timeline: Timeline, width: int = WIDE, encoding: str = "utf-8") -> list[str]:
    return lines_shown(lambda console: print_details(answer_of(LaunchAnalysis.of(timeline)), console), width, encoding)


def table(lines: list[str]) -> list[str]:
    """From the line of its titles on."""
    return lines[next(number for number, line in enumerate(lines) if "count" in line and "p50" in line) :]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_of_a_launch_within_one_step_of_the_timer_there_are_no_shares(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path)
    ctas = timeline.ctas.copy()
    ctas["pre_final_ns"] = ctas["post_final_ns"] = ctas["init_ns"]
    lines = printed(replace(timeline, ctas=ctas))
    assert [cells(line)[8:] for line in table(lines)[2:6]] == [["-", ""]] * 4
    assert not any("of the warps' time" in line for line in lines)


def test_all_of_it(tmp_path: Path) -> None:
    check("report/launch-details", "\n".join(printed(known_launch(tmp_path), width=160)), "a known launch")


def test_a_terminal_of_100_columns_needs_no_second_line_for_a_row(tmp_path: Path) -> None:
    lines = printed(known_launch(tmp_path), width=100)
    assert all(len(line) <= 100 for line in lines)
    lines = table(lines)
    assert [line.split()[0] for line in lines[2:6]] == ["kernel", "loop[0]", "iter[0]", "tail"]
    assert lines[0].split() == " ".join(TITLES).split()
    assert lines[2].split()[-3:-1] == ["85.0", "%"]


def test_bars_are_narrower_before_there_are_none(tmp_path: Path) -> None:
    lines = table(printed(known_launch(tmp_path), width=90))
    assert lines[0].endswith("share █ self")
    assert lines[2].endswith("85.0 % █████░░")


def test_an_instant_has_a_count_and_no_times(tmp_path: Path) -> None:
    scopes = [Scope("before_store", "mark"), *SCOPES[1:]]
    lines = table(printed(known_launch(tmp_path, scopes, [Ran(FUNC, 0, sm=3), Ran(FUNC, 0, sm=3, start_record=2)])))
    assert cells(lines[2]) == ["before_store", "-", "2", *["-"] * 6, ""]


def test_nothing_is_cut_in_a_pipe(tmp_path: Path) -> None:
    name = "triton_per_fused__to_copy_add_mean_mul_pow_rsqrt_" + "x" * 30
    source = "a_file_with_a_rather_long_name.py"
    lines = printed(known_launch(tmp_path, [Scope(name, source=(f"/deep/{source}", 1234)), *SCOPES[1:]]))
    assert any(name in line and f"{source}:1234" in line and "85.0 %" in line for line in lines)
    assert not any("…" in line for line in lines)


def test_no_name_gives_the_terminal_orders(tmp_path: Path) -> None:
    evil = "a\x1b[31mb\nc\u202e[b]"
    rows = [Ran(0, ns, warp=warp, sm=3) for warp, ns in enumerate((100, 900))]
    timeline = known_launch(tmp_path, [Scope(evil, source=(f"/src/{evil}.py", 3))], rows, kernel={"name": evil})
    text = "\n".join(printed(timeline))
    assert not {"\x1b", "\u202e"} & set(text)
    shown = "a [31mb c [b]"
    assert f"│ {shown} │" in text and f"{shown}.py:3" in text
    assert f"spread of {shown}: " in text


@pytest.fixture
def report(tmp_path: Path) -> LaunchAnalysis:
    """Every rule judged it, and found nothing."""
    return altered(LaunchAnalysis.of(known_launch(tmp_path)), judgements=(Judgement("tail", (), None),))


def with_findings(report: LaunchAnalysis) -> LaunchAnalysis:
    return altered(report, judgements=tuple(Judgement(finding.rule, (finding,), None) for finding in FINDINGS))


def built(report: LaunchAnalysis, clean: KernelResources, recorded: KernelResources) -> list[str]:
    kernel = replace(report.launch.kernel, clean=clean, with_records=recorded, metadata=TARGET)
    timeline = replace(report.timeline, launch=replace(report.launch, kernel=kernel))
    return [line for line in printed(timeline) if line.startswith("  build ")]


def findings(report: LaunchAnalysis, width: int = WIDE) -> list[str]:
    return lines_shown(lambda console: console.print(findings_shown(answer_of(report), console)), width)


@pytest.mark.parametrize(
    ("case", "clean", "recorded"),
    [
        ("resources without records", CLEAN, RECORDED),
        ("resources with records", KernelResources(), replace(RECORDED, ctas_per_sm=None)),
        ("room that nothing explains", KernelResources(), replace(RECORDED, ctas_per_sm=7)),
    ],
)
def test_what_the_kernel_takes(
    report: LaunchAnalysis, case: str, clean: KernelResources, recorded: KernelResources
) -> None:
    (line,) = built(report, clean, recorded)
    check("report/launch-details", line, case)


def test_of_a_kernel_of_which_nothing_is_known_nothing_is_said(report: LaunchAnalysis) -> None:
    assert built(report, KernelResources(), KernelResources()) == []


def test_findings_are_numbered_with_what_to_do_next(report: LaunchAnalysis) -> None:
    check("report/launch-details", "\n".join(findings(with_findings(report))), "findings")
    assert findings(report) == ["findings: none"]


def test_on_a_narrow_terminal_a_finding_goes_on_under_itself(report: LaunchAnalysis) -> None:
    lines = findings(with_findings(report), width=24)
    assert all(len(line) <= 24 for line in lines)
    assert lines[1:3] == ["  1. 47.0 % wave of [8]", "            CTAs"]


def test_what_could_not_be_judged_is_said(report: LaunchAnalysis) -> None:
    lost = Unjudged("74.0 % lost", "use --fit")
    judgements = (Judgement("tail", (), None), Judgement("prologue", (), lost), Judgement("epilogue", (), lost))
    doubtful = altered(report, judgements=judgements)
    (doubt,) = doubtful.doubts
    assert "prologue, epilogue" in doubt and doubt.endswith(f"{lost.reason}; {lost.remedy}")
    lines = findings(doubtful)
    assert lines[1:] == [f"  {doubt}"]
    check("report/launch-details", "\n".join(lines), "no finding, but doubts")
    found = with_findings(report)
    assert findings(altered(found, judgements=(*found.judgements, *judgements)))[-1] == f"  {doubt}"
    assert [*json_values(answer_of(doubtful))["rules"]] == [
        {"rule": "tail", "outcome": "not found", "reason": None, "remedy": None},
        {"rule": "prologue", "outcome": "could not judge", "reason": lost.reason, "remedy": "use --fit"},
        {"rule": "epilogue", "outcome": "could not judge", "reason": lost.reason, "remedy": "use --fit"},
    ]


def test_a_launch_is_green_only_if_every_rule_judged_it(report: LaunchAnalysis) -> None:
    def codes(report: LaunchAnalysis) -> str:
        return coloured(lambda console: console.print(findings_shown(answer_of(report), console)))

    green, yellow = "\x1b[32m", "\x1b[33m"
    assert green in codes(report)
    unjudged = altered(report, judgements=(Judgement("tail", (), Unjudged("no timer was read", "")),))
    disturbed = altered(report, verdict=replace(report.verdict, level=Level.UNRELIABLE))
    for doubtful in (unjudged, disturbed):
        assert green not in codes(doubtful)
        assert yellow in codes(doubtful)


def test_edits_that_were_tried_are_shown_with_their_findings_and_in_a_table(report: LaunchAnalysis) -> None:
    tried = altered(with_findings(report), edits=known_edits())
    lines = findings(tried)
    assert lines[-1].strip() == "tried: num_stages=4 won 31.2 % ± 0.6 (predicted at most 72.5 %)"
    assert sum("tried:" in line for line in lines) == 1
    shown = lines_shown(lambda console: print_details(answer_of(tried), console), 160)
    begin = next(number for number, line in enumerate(shown) if line.startswith("num_stages=4 makes kernel"))
    check("report/launch-details", "\n".join(shown[begin:]), "edits that were tried")
    values = json_values(answer_of(tried))["edits"]
    assert [one["outcome"] for one in values["tried"]] == ["slower", "refused", "faster", "same code", "no difference"]
    assert answer_of(report).edits is None

"""What stands over a launch's table: the kernel, what limits it, and how far to trust that."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from known_launch import known_launch
from rich.console import Console

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch_report import LaunchReport, report_on
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import KernelResources
from kprof_inject.report.terminal.launch_table import findings_shown, header_lines
from kprof_inject.timeline.trust import Level

TARGET = {"target": {"backend": "cuda", "arch": 90, "warp_size": 32}}
CLEAN = KernelResources(128, 0, 49152, 4, (10_000.0,) * 9)
RECORDED = KernelResources(136, 2, 57344, 3, (10_100.0,) * 9)
FINDINGS = (
    Finding("tail", None, 0.47, "the last wave is [8] CTAs", "make it a full one", {}),
    Finding("prologue", "loop\x1b[0]", 0.2, "slow prologue: before loop\x1b[0] begins", "look at it", {}),
)


@pytest.fixture
def report(tmp_path: Path) -> LaunchReport:
    """Every rule judged it, and found nothing."""
    return replace(report_on(known_launch(tmp_path)), judgements=(Judgement("tail", (), None),))


def with_findings(report: LaunchReport) -> LaunchReport:
    return replace(report, judgements=tuple(Judgement(finding.rule, (finding,), None) for finding in FINDINGS))


def built(report: LaunchReport, clean: KernelResources, recorded: KernelResources) -> list[str]:
    kernel = replace(report.launch.kernel, clean=clean, with_records=recorded, metadata=TARGET)
    timeline = replace(report.timeline, launch=replace(report.launch, kernel=kernel))
    lines = header_lines(replace(report, timeline=timeline), "kernel", "")
    return [line for line in lines if line.startswith("  kernel")]


def shown(report: LaunchReport, width: int = 200) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(findings_shown(report, console))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_what_the_kernel_takes_by_itself(report: LaunchReport) -> None:
    assert built(report, CLEAN, RECORDED) == [
        "  kernel by itself: 128 registers, no spills, 49152 bytes of shared memory, "
        "room for 4 CTAs on an SM (by shared memory and registers)"
    ]


def test_what_it_takes_with_records_if_no_more_is_known(report: LaunchReport) -> None:
    assert built(report, KernelResources(), replace(RECORDED, ctas_per_sm=None)) == [
        "  kernel with records: 136 registers, 2 spills, 57344 bytes of shared memory"
    ]


def test_of_a_kernel_of_which_nothing_is_known_nothing_is_said(report: LaunchReport) -> None:
    assert built(report, KernelResources(), KernelResources()) == []


def test_what_limits_the_room_is_told_only_if_the_driver_agrees(report: LaunchReport) -> None:
    (line,) = built(report, KernelResources(), replace(RECORDED, ctas_per_sm=7))
    assert line.endswith("room for 7 CTAs on an SM")


def test_the_place_comes_first(report: LaunchReport) -> None:
    title = next(iter(header_lines(report, "k-1 (num_stages 2)", "rank 1, device 3")))
    assert title.startswith("rank 1, device 3: k-1 (num_stages 2), launch 0: grid")


def test_no_findings(report: LaunchReport) -> None:
    assert shown(report) == ["findings: none"]


def test_findings_are_numbered_with_what_to_do_next(report: LaunchReport) -> None:
    assert shown(with_findings(report)) == [
        "findings:",
        "  1. 47.0 % the last wave is [8] CTAs",
        "      next: make it a full one",
        "  2. 20.0 % slow prologue: before loop [0] begins",
        "      next: look at it",
    ]


def test_on_a_narrow_terminal_a_finding_goes_on_under_itself(report: LaunchReport) -> None:
    lines = shown(with_findings(report), width=30)
    assert all(len(line) <= 30 for line in lines)
    assert lines[1:3] == ["  1. 47.0 % the last wave is", "            [8] CTAs"]


def test_what_could_not_be_judged_is_said(report: LaunchReport) -> None:
    lost = Unjudged("74.0 % of the records were lost", "use --fit")
    judgements = (Judgement("tail", (), None), Judgement("prologue", (), lost), Judgement("waiting", (), lost))
    doubt = "could not judge prologue, waiting: 74.0 % of the records were lost; use --fit"
    doubtful = replace(report, judgements=judgements)
    assert shown(doubtful) == ["findings: none, but not every rule could judge", f"  {doubt}"]
    found = with_findings(report)
    assert shown(replace(found, judgements=(*found.judgements, *judgements)))[-1] == f"  {doubt}"
    assert doubtful.to_json()["doubts"] == [doubt]
    assert doubtful.to_json()["rules"] == [
        {"rule": "tail", "outcome": "not found", "reason": None, "remedy": None},
        {"rule": "prologue", "outcome": "could not judge", "reason": lost.reason, "remedy": "use --fit"},
        {"rule": "waiting", "outcome": "could not judge", "reason": lost.reason, "remedy": "use --fit"},
    ]


def test_a_launch_is_green_only_if_every_rule_judged_it(report: LaunchReport) -> None:
    def codes(report: LaunchReport) -> str:
        out = io.StringIO()
        console = Console(file=out, width=200, force_terminal=True, color_system="standard")
        console.print(findings_shown(report, console))
        return out.getvalue()

    green, yellow = "\x1b[32m", "\x1b[33m"
    assert green in codes(report)
    unjudged = replace(report, judgements=(Judgement("tail", (), Unjudged("no timer was read", "")),))
    disturbed = replace(report, verdict=replace(report.verdict, level=Level.UNRELIABLE))
    for doubtful in (unjudged, disturbed):
        assert green not in codes(doubtful)
        assert yellow in codes(doubtful)


def test_the_json_form_has_findings_and_trust(report: LaunchReport) -> None:
    values = with_findings(report).to_json()
    assert [finding["rule"] for finding in values["findings"]] == ["tail", "prologue"]
    assert values["trust"]["level"] == "unknown"
    assert values["kernel"] == "kernel"

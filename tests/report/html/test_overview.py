"""The facts of a launch as the page tells them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from altered import altered, answer_of, report_of
from buffers import Scope
from figures_in import figures_in
from known_edits import known_edits
from programs.child import REPO
from replacing import replace
from snapshots import check
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.evidence.units import UnitEvidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.record_costs import RecordCost
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.schema import ProcessRecord
from kprof_inject.report.html.overview_tab import kernel_rows, launch_overview
from kprof_inject.report.html.page_schema import Overview
from kprof_inject.timeline.timeline import Timeline, decode_launch

SCOPES = [Scope("func"), Scope("loop[0]", "loop", 0)]
METADATA = {"num_warps": 4, "num_stages": 3, "num_ctas": 2, "target": {"backend": "cuda", "arch": 90}}
CLEAN = KernelResources(200, 0, 98_304, 2, (1000.0,) * 6)
WITH_RECORDS = KernelResources(210, 0, 106_496, 2, (1010.0,) * 6)


def launch_of(folder: Path, **kernel: Any) -> Timeline:
    rows = scope_rows([Ran(0, 900), Ran(1, 600)])
    return made_timeline(folder, SCOPES, [rows], cta_rows((0, 0, 0, 1000, 1000)), kernel=kernel)


def overview_of(report: LaunchAnalysis) -> Overview:
    return launch_overview(report, answer_of(report))


def builtins_of(timeline: Timeline) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(overview_of(LaunchAnalysis.of(timeline)))
    return made


def facts_of(timeline: Timeline) -> dict[str, str]:
    return {label: value for group in builtins_of(timeline)["facts"] for label, value in group["rows"]}


def test_the_facts_of_a_launch(tmp_path: Path) -> None:
    cost = RecordCost(30.0, 34.0, 8.0)
    facts = facts_of(launch_of(tmp_path, num_warps=4, metadata=METADATA, record_cost=cost))
    check("report/overview", "\n".join(f"{label}: {value}" for label, value in facts.items()), "facts of a launch")


def test_what_is_unknown_is_not_told(tmp_path: Path) -> None:
    made = builtins_of(launch_of(tmp_path))
    facts = {label for group in made["facts"] for label, _ in group["rows"]}
    assert not facts & {"stages", "target", "CTAs in a cluster", "subtracted"}
    assert all(group["rows"] for group in made["facts"])
    assert {row[0]: list(row[1:]) for row in made["builds"]}["registers per thread"] == ["-", "-"]


def test_versions_and_command_are_the_process_s_own(tmp_path: Path) -> None:
    timeline = launch_of(tmp_path)
    process = ProcessRecord(pid=7, argv=("a.py", "--n", "5"), triton="3.6.0")
    facts = facts_of(replace(timeline, launch=replace(timeline.launch, process=process)))
    assert (facts["command"], facts["Triton"]) == ("a.py --n 5", "3.6.0")
    assert "PyTorch" not in facts


def test_the_build_without_records_stands_beside_that_with_them(tmp_path: Path) -> None:
    kernel = {"num_warps": 4, "metadata": METADATA, "clean": CLEAN, "with_records": WITH_RECORDS}
    builds = {row[0]: list(row[1:]) for row in builtins_of(launch_of(tmp_path, **kernel))["builds"]}
    assert builds["run time (median)"] == ["1.00 µs", "1.01 µs"]
    assert builds["registers per thread"] == ["200", "210"]
    assert builds["shared memory"] == ["98\u202f304 bytes", "106\u202f496 bytes"]
    assert builds["limited by"] == ["shared memory and registers", "shared memory and registers"]


def test_the_verdict_is_that_of_the_terminal(tmp_path: Path) -> None:
    timeline = launch_of(tmp_path, clean=CLEAN, with_records=replace(WITH_RECORDS, spills=8))
    verdict = builtins_of(timeline)["verdict"]
    assert verdict == {"level": "unreliable", "text": trust_in(LaunchAnalysis.of(timeline)).text}
    check("report/overview", verdict["text"], "the verdict on spills")


def test_findings_know_their_scope(tmp_path: Path) -> None:
    found = (
        Finding("a", "loop[0]", 0.4, "slow\x1b[1m", "look", {}, index=1),
        Finding("b", None, 0.2, "tail", "look", {}),
        Finding("c", "gone", 0.1, "gone", "look", {}),
    )
    timeline = launch_of(tmp_path)
    report = altered(LaunchAnalysis.of(timeline), judgements=(Judgement("a rule", found, None),))
    findings = overview_of(report).findings
    assert [finding.scope for finding in findings] == [1, None, None]
    assert (findings[0].text, findings[0].share) == ("slow [1m", 0.4)


def test_hostile_names_are_no_commands(tmp_path: Path) -> None:
    facts = facts_of(launch_of(tmp_path, name="k\x1b]0;x\x07\u202e"))
    assert facts["kernel"] == "k ]0;x  "


def test_what_limits_a_launch_and_its_roofs_are_told() -> None:
    (launch,) = read_capture(REPO / "tests" / "captures" / "matmul").launches
    made = builtins_of(decode_launch(launch))
    assert "tensor cores" in made["limit"] and figures_in(made["limit"])[:2] == ["75.0", "85.8"]
    check("report/overview", made["limit"], "the limit of a matmul")
    assert [(roof["scope"], roof["unit"], round(roof["part"], 3)) for roof in made["roofs"]] == [
        (0, "tensor cores", 0.75),
        (1, "tensor cores", 0.858),
        (2, "tensor cores", 0.893),
    ]


def test_the_evidence_of_a_limit_is_named(tmp_path: Path) -> None:
    (launch,) = read_capture(REPO / "tests" / "captures" / "matmul").launches
    report = LaunchAnalysis.of(decode_launch(launch))
    measured = altered(report, limit=replace(report.limit, evidence="measured"))
    assert [overview_of(one).limit_evidence for one in (report, measured)] == ["computed", "measured"]
    whole = report_of(measured)
    assert [row.limit_evidence for row in kernel_rows(whole.program, whole)] == ["measured"]
    unknown = LaunchAnalysis.of(launch_of(tmp_path))
    assert not unknown.limit.is_known
    assert overview_of(unknown).limit_evidence == ""


def test_a_unit_has_the_larger_lower_bound_and_all_figures_in_words(tmp_path: Path) -> None:
    units = (
        UnitEvidence("ALU", 0.06, 0.25, 0.26),
        UnitEvidence("L2", None, None, 0.13),
        UnitEvidence("DRAM", 0.1, None, None),
    )
    made = overview_of(altered(LaunchAnalysis.of(launch_of(tmp_path)), units=units))
    assert [(unit.lower_bound, unit.measured) for unit in made.units] == [(0.25, 0.26), (None, 0.13), (0.1, None)]
    first, *figures = made.units[0].text.splitlines()
    assert (first, figures_in(" ".join(figures))) == ("ALU", ["6.0", "25.0", "26.0"])
    assert [len(unit.text.splitlines()) for unit in made.units] == [4, 2, 2]
    assert made.well_utilized == 0.6


def test_without_evidence_there_are_no_units(tmp_path: Path) -> None:
    assert builtins_of(launch_of(tmp_path))["units"] == ()


def test_the_notes_begin_with_the_edits_that_were_tried(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(launch_of(tmp_path))
    plain = overview_of(report)
    made = overview_of(altered(report, edits=known_edits()))
    assert made.notes[0].startswith("num_stages=4 makes kernel 31.2 % ± 0.6 faster")
    assert made.notes[1:] == plain.notes

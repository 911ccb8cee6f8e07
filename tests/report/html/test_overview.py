"""The facts of a launch as the page tells them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from altered import altered, answer_of, report_of
from buffers import Scope
from figures_in import figures_in
from known_edits import known_edits
from programs.child import REPO
from replacing import replace
from snapshots import check
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.mode import RecordCost
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.resources import KernelResources
from kprof_inject.report.html.data import kernel_rows, launch_overview, page_values
from kprof_inject.timeline.timeline import Timeline, decode_launch

SEVERAL = REPO / "kprof_inject/demo/captures/one-stage"
SCOPES = [Scope("func"), Scope("loop[0]", "loop", 0)]
METADATA = {"num_warps": 4, "num_stages": 3, "num_ctas": 2, "target": {"backend": "cuda", "arch": 90}}
CLEAN = KernelResources(200, 0, shared_bytes=98_304, ctas_per_sm=2, times_ns=(1000.0,) * 6)
WITH_RECORDS = KernelResources(210, 0, shared_bytes=106_496, ctas_per_sm=2, times_ns=(1010.0,) * 6)


def launch_of(folder: Path, **kernel: Any) -> Timeline:
    rows = scope_rows([Ran(0, 900), Ran(1, 600)])
    return made_timeline(folder, SCOPES, [rows], cta_rows((0, 0, 0, 1000, 1000)), kernel=kernel)


def overview_of(report: LaunchAnalysis) -> dict[str, Any]:
    """The answer on a launch, and what the overview has beyond it."""
    made: dict[str, Any] = page_values(answer_of(report)) | page_values(launch_overview(report))
    return made


def builtins_of(timeline: Timeline) -> dict[str, Any]:
    return overview_of(LaunchAnalysis.of(timeline))


def facts_of(timeline: Timeline) -> dict[str, str]:
    return {label: value for rows in builtins_of(timeline)["facts"].values() for label, value in rows}


def test_the_facts_of_a_launch(tmp_path: Path) -> None:
    cost = RecordCost(30.0, 34.0, 8.0)
    facts = facts_of(launch_of(tmp_path, num_warps=4, metadata=METADATA, record_cost=cost))
    check("report/overview", "\n".join(f"{label}: {value}" for label, value in facts.items()), "facts of a launch")


def test_what_is_unknown_is_not_told(tmp_path: Path) -> None:
    made = builtins_of(launch_of(tmp_path))
    facts = {label for rows in made["facts"].values() for label, _ in rows}
    assert not facts & {"stages", "target", "CTAs in a cluster", "subtracted"}
    assert all(made["facts"].values())
    assert (made["clean"]["registers"], made["with_records"]["registers"]) == (None, None)


def test_versions_and_command_are_the_process_s_own(tmp_path: Path) -> None:
    timeline = launch_of(tmp_path)
    process = replace(timeline.launch.process, argv=("a.py", "--n", "5"), triton="3.6.0")
    facts = facts_of(replace(timeline, launch=replace(timeline.launch, process=process)))
    assert (facts["command"], facts["Triton"]) == ("a.py --n 5", "3.6.0")
    assert "PyTorch" not in facts


def test_the_build_without_records_stands_beside_that_with_them(tmp_path: Path) -> None:
    kernel = {"num_warps": 4, "metadata": METADATA, "clean": CLEAN, "with_records": WITH_RECORDS}
    made = builtins_of(launch_of(tmp_path, **kernel))
    assert [made["run_times"][f"{which}_records_ns"] for which in ("without", "with")] == [1000, 1010]
    builds = made["clean"], made["with_records"]
    assert [(one["registers"], one["shared_bytes"]) for one in builds] == [(200, 98_304), (210, 106_496)]
    assert {one["limited_by"] for one in builds} == {"shared memory and registers"}


def test_the_verdict_is_that_of_the_terminal(tmp_path: Path) -> None:
    timeline = launch_of(tmp_path, clean=CLEAN, with_records=replace(WITH_RECORDS, spills=8))
    verdict = builtins_of(timeline)["trust"]
    assert (verdict["level"], verdict["text"]) == ("unreliable", trust_in(LaunchAnalysis.of(timeline)).text)
    check("report/overview", verdict["text"], "the verdict on spills")


def test_findings_know_their_scope(tmp_path: Path) -> None:
    found = (
        Finding("a", "loop[0]", 0.4, "slow\x1b[1m", "look", {}, index=1),
        Finding("b", None, 0.2, "tail", "look", {}),
        Finding("c", "gone", 0.1, "gone", "look", {}),
    )
    timeline = launch_of(tmp_path)
    report = altered(LaunchAnalysis.of(timeline), judgements=(Judgement("a rule", found, None),))
    findings = overview_of(report)["findings"]
    assert [finding["index"] for finding in findings] == [1, None, None]
    assert (findings[0]["sentence"], findings[0]["share"]) == ("slow [1m", 0.4)


def test_hostile_names_are_no_commands(tmp_path: Path) -> None:
    facts = facts_of(launch_of(tmp_path, name="k\x1b]0;x\x07\u202e"))
    assert facts["kernel"] == "k ]0;x  "


def test_what_limits_a_launch_and_its_roofs_are_told() -> None:
    (launch,) = read_capture(REPO / "tests" / "captures" / "matmul").launches
    made = builtins_of(decode_launch(launch))
    limit = made["limit"]["answer"]
    assert "tensor cores" in limit and figures_in(limit)[:2] == ["75.0", "85.8"]
    check("report/overview", limit, "the limit of a matmul")
    assert [(scope, unit, round(part, 3)) for scope, unit, part in made["roofs"]] == [
        (0, "tensor cores", 0.75),
        (1, "tensor cores", 0.858),
        (2, "tensor cores", 0.893),
    ]


def test_the_evidence_of_a_limit_is_named(tmp_path: Path) -> None:
    (launch,) = read_capture(REPO / "tests" / "captures" / "matmul").launches
    report = LaunchAnalysis.of(decode_launch(launch))
    measured = altered(report, limit=replace(report.limit, evidence="measured"))
    assert [overview_of(one)["limit"]["evidence"] for one in (report, measured)] == ["computed", "measured"]
    assert not builtins_of(launch_of(tmp_path))["limit"]["is_known"]


def test_a_kernel_s_row_has_its_launches() -> None:
    """Slowest first; that of median duration is shown first."""
    reports = [LaunchAnalysis.of(decode_launch(launch)) for launch in read_capture(SEVERAL).launches[:3]]
    report = report_of(*reports)
    [row] = kernel_rows(report.program, report)
    durations = [report.launches[index].duration_ns for index in row.launches]
    assert durations == sorted(durations, reverse=True)
    assert row.launch == row.launches[1]


def test_without_evidence_there_are_no_units(tmp_path: Path) -> None:
    assert builtins_of(launch_of(tmp_path))["units"] == []


def test_the_edits_that_were_tried_are_told(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(launch_of(tmp_path))
    assert overview_of(report)["tried"] == []
    [tried] = overview_of(altered(report, edits=known_edits()))["tried"]
    assert tried.startswith("num_stages=4 makes kernel 31.2 % ± 0.6 faster")

"""Loops that ask for their data too late, and clocks that are held down."""

from __future__ import annotations

from pathlib import Path

import pytest
from finding_cases import CASES, cases_of
from known_kernels import sentences_of
from known_loops import found, launched
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.in_flight import pipelining
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.limit import Measured
from kprof_inject.analysis.limits.memory import DramBound
from kprof_inject.analysis.limits.stalls import LineStalls, Stalls
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline

CASES_OF_LOOPS = cases_of(CASES / "pipelining.txt")
WAITS = CASES_OF_LOOPS["waits that take a tenth of the loop need a stage"]
LOADS = CASES_OF_LOOPS["loads of operands in the loop that multiplies them"]


@pytest.mark.parametrize(("free_bytes", "more"), [(2 * 8192, 2), (8191, 0)])
def test_no_more_stages_are_advised_than_there_is_room_for(tmp_path: Path, free_bytes: int, more: int) -> None:
    timeline = launched(tmp_path, WAITS.ttgir, 5_400)
    clean = KernelResources(shared_bytes=227 * 1024 - free_bytes)
    kernel = replace(timeline.launch.kernel, clean=clean)
    finding = found(replace(timeline, launch=replace(timeline.launch, kernel=kernel)))["too-few-stages"]
    assert finding.figures["more_stages"] == more
    if not more:
        check("analysis/findings", sentences_of(finding), "no room for more stages")


@pytest.mark.parametrize(("access_bytes", "expected"), [(16, ["not-pipelined"]), (4, ["not-pipelined"]), (2, [])])
def test_only_loads_that_may_become_copies_can_be_pipelined(
    tmp_path: Path, access_bytes: int, expected: list[str]
) -> None:
    report = LaunchAnalysis.of(LOADS.launched(tmp_path))
    ran = report.executed
    assert isinstance(ran, ExecutedKernel)
    (line,) = (one.line for one in ran.operations if one.operation.name == "tt.load")
    request = Requests(line, "load", access_bytes, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    evidence = Evidence(report.timeline, report.summary, report.speed_of_light, ran, requests=(request,))
    assert [one.rule for one in pipelining(evidence) if isinstance(one, Finding)] == expected


def test_a_launch_at_the_roof_of_dram_needs_no_stages(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(WAITS.launched(tmp_path))
    ran = report.executed
    assert isinstance(ran, ExecutedKernel)

    def rules(dram_part: float) -> list[str]:
        moved = round(1000 * dram_part * report.summary.duration_ns)
        dram = DramBound(moved, 0, moved, moved, fits_l2=False, unknown=0, unknown_bytes=0, bytes_per_s=1e12)
        light = replace(report.speed_of_light, dram=dram)
        found = pipelining(Evidence(report.timeline, report.summary, light, ran))
        return [one.rule for one in found if isinstance(one, Finding)]

    assert rules(0.5) == ["too-few-stages"]
    assert not rules(0.9)


BRANCH = """\
      %is = arith.cmpi sge, %i, %c0 : i32
      scf.if %is {
        %d = tt.dot %x, %x, %z : tensor<64x64xf16, #x> * tensor<64x64xf16, #x> -> tensor<64x64xf32, #mma>
      } loc(unknown)
"""


@pytest.mark.parametrize(
    ("num_stages", "in_branch", "way"),
    [
        (None, False, "set num_stages to 3 or more, and let pointers"),
        (1, False, "set num_stages to 3 or more; if that does not suffice, let pointers"),
        (3, False, "let pointers advance by a constant and read at least 4 contiguous bytes (num_stages is 3 already)"),
        (3, True, "take the dot that uses the loads out of its branch"),
    ],
)
def test_what_keeps_loads_from_becoming_copies(
    tmp_path: Path, num_stages: int | None, in_branch: bool, way: str
) -> None:
    text = LOADS.ttgir
    if in_branch:
        (dot,) = (line for line in text.splitlines(keepends=True) if "tt.dot" in line)
        text = text.replace(dot, BRANCH)
    timeline = launched(tmp_path, text, 10)
    metadata = {**timeline.launch.kernel.metadata, "num_stages": num_stages}
    kernel = replace(timeline.launch.kernel, metadata=metadata)
    advice = found(replace(timeline, launch=replace(timeline.launch, kernel=kernel)))["not-pipelined"].advice
    assert f"pipeline the loop: {way}" in advice


@pytest.mark.parametrize(("waits", "rules"), [(60, ["too-few-stages"]), (5, [])])
def test_samples_show_waits_for_copies_that_were_not_recorded(
    tmp_path: Path, waits: int, rules: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = LaunchAnalysis.of(WAITS.launched(tmp_path))
    ran = report.executed
    assert isinstance(ran, ExecutedKernel)
    text = ran.module.text.splitlines()
    (wait,) = (number for number, line in enumerate(text, 1) if "ttg.async_wait" in line)
    (dot,) = (number for number, line in enumerate(text, 1) if "dot" in line and "=" in line)
    lines = (
        LineStalls(wait, None, {"long_scoreboard": waits, "wait": 3}, {}),
        LineStalls(dot, None, {"long_scoreboard": 5, "selected": 92 - waits}, {}),
    )
    stalls = Stalls(100, {}, {}, lines, 0, {})
    counted = CountersRecord(metrics={}, passes=1)
    measured = Measured(report.timeline.launch.kernel, counted, stalls, None)
    evidence = Evidence(report.timeline, report.summary, report.speed_of_light, ran, measured=measured, stalls=stalls)
    monkeypatch.setattr(ScopeMap, "exact_scopes", lambda *_: [])
    findings = [one for one in pipelining(evidence) if isinstance(one, Finding)]
    assert [one.rule for one in findings] == rules
    assert all(one.figures["waiting"] == waits / 100 for one in findings)
    with_barriers = replace(stalls, lines=(*lines, LineStalls(dot, None, {"barrier": 10}, {}, for_tensor_cores=4)))
    evidence = replace(evidence, measured=replace(measured, stalls=with_barriers), stalls=with_barriers)
    for before, now in zip(findings, pipelining(evidence), strict=True):
        assert isinstance(now, Finding) and now.expected < now.share
        assert before.share == before.expected, "no warp waits at a barrier for others' copies"


def clocked(timeline: Timeline, mhz: float, source: ClockSource = ClockSource.FITTED) -> Timeline:
    clock = replace(timeline.clock, rate_ns=1e3 / mhz, source=source, rate_error=0.001)
    kernel = replace(timeline.launch.kernel, sm_clock_hz=1.98e9)
    return replace(timeline, clock=clock, launch=replace(timeline.launch, kernel=kernel))


def test_a_clock_that_is_held_down_is_told_with_its_share(tmp_path: Path) -> None:
    timeline = WAITS.launched(tmp_path)
    finding = found(clocked(timeline, 1_485))["throttled"]
    assert finding.share == pytest.approx(0.25)
    check("analysis/findings", sentences_of(finding), "throttled SMs")
    assert "throttled" not in found(clocked(timeline, 1_900))
    assert "throttled" not in found(clocked(timeline, 1_485, ClockSource.ASSUMED))

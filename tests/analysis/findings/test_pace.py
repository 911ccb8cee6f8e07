from __future__ import annotations

from pathlib import Path

import pytest
from known_kernels import sentences_of
from known_launch import SCOPES, known_launch
from replacing import replace
from snapshots import check

from kprof_inject.analysis.causal.response import Interval, Response
from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import judge_by_rules
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.experiments import ExperimentRecord
from kprof_inject.capture.scopes import PointRecord, Scope, ScopeTable

EXPERIMENT = ExperimentRecord(name="k", variant="k-0", pid=1, scopes=ScopeTable(), grid=(1, 1, 1), delays=())


def place(name: str, slope: float, error: float = 0.02, slack: float | None = None, share: float = 0.3) -> PlaceSlope:
    info = Scope(record=name, name=name, kind="part", place=PointRecord("k.py", 3), label=name)
    found = Response(
        Interval(slope, slope - error, slope + error),
        400,
        None if slack is None else Interval(slack, slack - 10, slack + 10),
        None if slack is None else 1.0,
    )
    return PlaceSlope(info, 1.0, 1.0, None, (), found, time_share=share)


def found_of(folder: Path, *places: PlaceSlope) -> Finding | None:
    report = LaunchAnalysis.of(known_launch(folder, SCOPES))
    slopes = KernelSlopes(EXPERIMENT, 1000.0, 1e9, 1.0, places)
    evidence = Evidence(report.timeline, report.summary, report.speed_of_light, None, slopes)
    (judgement,) = [one for one in judge_by_rules(evidence) if one.rule == "pace"]
    return next(iter(judgement.findings), None)


def test_who_sets_the_pace_and_who_has_time(tmp_path: Path) -> None:
    found = found_of(
        tmp_path,
        place("copies@28", 0.01, slack=300),
        place("reduce@33", 0.95),
        place("exp2@34", 0.8),
        place("dot@29", 0.3),
    )
    assert found is not None
    check("analysis/findings", sentences_of(found), "scopes that set the pace")
    assert found.share == pytest.approx(0.3 * 0.95 + 0.3 * 0.8)


def test_copies_are_hidden_only_if_all_of_them_are(tmp_path: Path) -> None:
    copies = [place("copies@28", 1.0), place("copies@29", 0.01, slack=300)]
    found = found_of(tmp_path, place("wait@28", 0.0, slack=400), *copies, place("dot@29", 1.0), place("wait@29", 0.9))
    assert found is not None
    assert "copies are hidden" not in found.advice
    check("analysis/findings", sentences_of(found), "copies that set the pace")


def test_nothing_is_said_of_copies_that_nobody_is_sure_of(tmp_path: Path) -> None:
    copies = [place("copies@28", 0.3), place("copies@29", 0.01, slack=300)]
    found = found_of(tmp_path, *copies, place("dot@29", 1.0))
    assert found is not None
    assert found.advice == "shorten dot@29"


def test_a_slope_that_is_not_known_well_enough_says_nothing(tmp_path: Path) -> None:
    assert found_of(tmp_path, place("reduce@33", 0.9, error=0.5)) is None


def test_nobody_is_asked_of_a_kernel_that_was_not_delayed(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(known_launch(tmp_path, SCOPES))
    assert "pace" not in {judgement.rule for judgement in report.judgements}
    assert report.slopes is None
    assert report.slopes is None


def test_an_experiment_with_another_grid_is_not_this_launches(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path, SCOPES)
    other = replace(timeline, launch=replace(timeline.launch, grid=(7, 1, 1)))
    variant = timeline.launch.kernel.variant
    mine = ExperimentRecord(
        name="k", variant=variant, pid=1, scopes=EXPERIMENT.scopes, grid=timeline.launch.grid, delays=()
    )
    assert LaunchAnalysis.of(timeline, [mine]).slopes is not None
    assert LaunchAnalysis.of(other, [mine]).slopes is None

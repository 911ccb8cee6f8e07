"""Evidence on units side by side, and where it contradicts itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from replacing import replace

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.limit import Measured
from kprof_inject.analysis.limits.rates import ALU, FP32, ISSUE, SHARED, TENSOR
from kprof_inject.analysis.limits.unit_evidence import disagreements, unit_evidence
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.resources import GridTimesRecord
from kprof_inject.timeline.timeline import decode_launch

DEMO = Path(__file__).parents[3] / "tests/captures"


def counted(**metrics: float) -> CountersRecord:
    return CountersRecord(metrics={getattr(counters, name): value for name, value in metrics.items()}, passes=1)


def test_the_busier_part_of_a_unit_counts() -> None:
    (launch,) = read_capture(DEMO / "matmul-one-stage").launches
    measured = Measured(launch.kernel, counted(FMA=20.0, FMA_HEAVY=35.0, ALU=10.0), None, None)
    assert measured.shares == {ALU: 0.1, FP32: 0.35}


def test_lower_bounds_refer_to_the_cycles_of_the_measurement() -> None:
    (alu,) = unit_evidence({ALU: 0.5}, {ALU: 0.8}, {ALU: 0.42}, 0.5)
    assert (alu.computed, alu.code, alu.measured) == (0.25, 0.4, 0.42)
    assert alu.best == 0.42
    (issue,) = unit_evidence({ISSUE: 0.5, TENSOR: 0.0}, {ISSUE: 0.8}, {}, 1.0)
    assert issue.best == issue.lower_bound == 0.8


def test_a_lower_bound_above_the_measurement_is_our_mistake() -> None:
    agreeing = unit_evidence({SHARED: 0.4}, {}, {SHARED: 0.39}, 1.0)
    assert disagreements(agreeing) == []
    (sentence,) = disagreements(unit_evidence({SHARED: 0.6}, {}, {SHARED: 0.3}, 1.0))
    assert sentence.startswith(
        "kprof-inject contradicts itself: shared memory and L1 would be busy for at least 60.0 %"
    )


@pytest.mark.parametrize("name", ["matmul-one-stage", "matmul-three-stages"])
def test_all_evidence_on_the_demo_agrees(name: str) -> None:
    """Its machine code has a known number of executions, so that it must give what the hardware counted."""
    (launch,) = read_capture(DEMO / name).launches
    report = LaunchAnalysis.of(decode_launch(launch))
    assert report.limit.evidence == "measured"
    units = {one.unit: one for one in report.units}
    for unit, error in ((ISSUE, 0.01), (ALU, 0.005)):
        assert units[unit].code == pytest.approx(units[unit].measured, abs=error)
    assert units[TENSOR].computed == pytest.approx(units[TENSOR].measured, abs=0.01)
    assert report.disagreements == []
    wrong = replace(report, units=unit_evidence({SHARED: 0.6}, {}, {SHARED: 0.3}, 1.0))
    assert len(wrong.disagreements) == 1
    grids = tuple(GridTimesRecord(grid=(size, 1, 1), launches=1) for size in (1, 2))
    timeline = replace(report.timeline, launch=replace(launch, kernel=replace(launch.kernel, grids=grids)))
    assert replace(wrong, timeline=timeline).disagreements == [], "counters may be those of another grid"
    assert report.stalls is not None
    assert report.stalls.samples > 10_000
    assert report.stalls.unknown < 0.05 * report.stalls.samples

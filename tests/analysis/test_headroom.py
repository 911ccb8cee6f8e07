"""What the necessary work of a launch leaves to win."""

from __future__ import annotations

from pathlib import Path

import pytest
from altered import altered
from known_kernels import DRAM_BOUND, MOST_DRAM, MOST_TENSOR
from known_launch import known_launch
from replacing import replace

from kprof_inject.analysis.advice import headroom_of
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.rules import Judgement
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.limit import Measured
from kprof_inject.analysis.limits.memory import DramBound
from kprof_inject.capture.measurements import CountersRecord


def launch(
    folder: Path, moved: float, parts: dict[str, float], dram: DramBound | None = DRAM_BOUND, **removed: float
) -> LaunchAnalysis:
    """A launch that moves these bytes, with counters, and a finding on what it need not do."""
    report = LaunchAnalysis.of(known_launch(folder))
    found = Finding("loaded-again", None, 0.3, "again", "once", {}, removed=removed)
    light = replace(report.speed_of_light, dram=dram)
    counted = CountersRecord(metrics={"dram__bytes_read.sum": moved, "dram__bytes_write.sum": 0.0}, passes=1)
    return altered(
        report,
        speed_of_light=light,
        measured=Measured(report.kernel, counted, None, None),
        limit=replace(report.limit, parts=parts, evidence="measured"),
        judgements=(Judgement("loaded-again", (found,), None),),
    )


@pytest.mark.parametrize(
    ("moved", "removed", "part"),
    [(60e6, 0.0, 0.9), (120e6, 0.0, 0.45), (60e6, 0.25, 0.9 * 0.75), (120e6, 0.25, 0.45)],
    ids=["all bytes once", "each byte twice", "some in vain", "twice, of which a finding names some"],
)
def test_bytes_that_are_necessary(tmp_path: Path, moved: float, removed: float, part: float) -> None:
    """60 MB suffice at the part of DRAM's peak that nothing exceeds."""
    found = headroom_of(launch(tmp_path, moved, {"DRAM": 0.9, "L2": 0.95}, DRAM=removed))
    assert (found.unit, found.necessary) == ("DRAM", pytest.approx(part / MOST_DRAM))
    assert found.is_small is (part / MOST_DRAM >= 0.8)


def test_dots_that_are_necessary(tmp_path: Path) -> None:
    parts = {"tensor cores": 0.8, "DRAM": 0.3, "ALU": 0.9}
    assert headroom_of(launch(tmp_path, 60e6, parts)).necessary == pytest.approx(0.8 / MOST_TENSOR)
    halved = headroom_of(launch(tmp_path, 60e6, parts, **{"tensor cores": 0.5}))
    assert halved.necessary == pytest.approx(0.4 / MOST_TENSOR)


def test_what_is_not_known_to_be_necessary(tmp_path: Path) -> None:
    """At unknown addresses, all that is moved may be needed: no launch is at its roof by that."""
    parts = {"DRAM": 0.9, "ALU": 0.95}
    nothing = headroom_of(launch(tmp_path, 60e6, parts, None))
    assert (nothing.unit, nothing.share) == ("", 1.0)
    unknown = headroom_of(launch(tmp_path, 120e6, parts, replace(DRAM_BOUND, unknown=1)))
    assert unknown.necessary == pytest.approx(0.9 / MOST_DRAM)
    assert not unknown.is_small

"""Accesses to shared memory that take its banks longer than their bytes would."""

from __future__ import annotations

from pathlib import Path

import pytest
from finding_cases import CASES, cases_of

from kprof_inject.analysis.launch import LaunchAnalysis


def test_the_roof_has_them(tmp_path: Path) -> None:
    launch = cases_of(CASES / "bank_conflicts.txt")["stores that turn a tile around are named"]
    func = LaunchAnalysis.of(launch.launched(tmp_path)).speed_of_light.roofs[0]
    assert func.work.conflict_cycles == 2 * (4 * 1024 - 64)
    assert func.parts["shared memory and L1"] == pytest.approx(
        (func.work.shared_bytes / 128 + func.work.conflict_cycles) / 10_000
    )

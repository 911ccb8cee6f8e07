"""The launches in ``cases``: which rules find something, of which scope and share (see ``finding_cases``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from finding_cases import CASES, Case, cases_of

from kprof_inject.analysis.launch import LaunchAnalysis

ALL = {f"{path.stem}: {name}": case for path in sorted(CASES.glob("*.txt")) for name, case in cases_of(path).items()}


@pytest.mark.parametrize("case", ALL.values(), ids=ALL)
def test_case(case: Case, tmp_path: Path) -> None:
    case.check(tmp_path)


def test_the_roof_has_bank_conflicts(tmp_path: Path) -> None:
    launch = cases_of(CASES / "bank_conflicts.txt")["stores that turn a tile around are named"]
    func = LaunchAnalysis.of(launch.launched(tmp_path)).speed_of_light.roofs[0]
    assert func.work.conflict_cycles == 2 * (4 * 1024 - 64)
    assert func.parts["shared memory and L1"] == pytest.approx(
        (func.work.shared_bytes / 128 + func.work.conflict_cycles) / 10_000
    )

from __future__ import annotations

import shutil
from dataclasses import astuple
from pathlib import Path

import pytest
import triton
from fake_runs import FakeRuns

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.record_costs import CostKey, MeasuredCost, write_costs
from kprof_inject.workspace import Workspace

_COST = MeasuredCost(
    *astuple(CostKey.of("Fake H200", triton.__version__, Mode())), 34.0, 34.0, 34.0, 34.0, 34.0, 34.0, 0.0, 1
)


@pytest.fixture(scope="session")
def planned_once(tmp_path_factory: pytest.TempPathFactory) -> FakeRuns:
    """``fake_launches.py`` dumped, with records planned for all its kernels. Not to be changed."""
    folder = tmp_path_factory.mktemp("planned")
    runs = FakeRuns(folder, folder / "workspace")
    runs.dump()
    # Else each test that runs the program would measure it.
    write_costs(Workspace(runs.workspace).calibration_folder / "record_costs.json", [_COST])
    return runs


@pytest.fixture
def fake_runs(planned_once: FakeRuns, tmp_path: Path) -> FakeRuns:
    """A workspace of that kind for one test."""
    ignored = shutil.ignore_patterns("captures")
    return FakeRuns(tmp_path, Path(shutil.copytree(planned_once.workspace, tmp_path / "workspace", ignore=ignored)))

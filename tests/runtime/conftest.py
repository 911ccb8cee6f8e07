from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fake_runs import FakeRuns


@pytest.fixture(scope="session")
def planned_once(tmp_path_factory: pytest.TempPathFactory) -> FakeRuns:
    """``fake_launches.py`` dumped, with records planned for all its kernels. Not to be changed."""
    folder = tmp_path_factory.mktemp("planned")
    runs = FakeRuns(folder, folder / "workspace")
    runs.dump()
    return runs


@pytest.fixture
def fake_runs(planned_once: FakeRuns, tmp_path: Path) -> FakeRuns:
    """A workspace of that kind for one test."""
    ignored = shutil.ignore_patterns("captures")
    return FakeRuns(tmp_path, Path(shutil.copytree(planned_once.workspace, tmp_path / "workspace", ignore=ignored)))

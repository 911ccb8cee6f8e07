from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gpu.repeating import WorkerHere, worker_here
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
    return planned_once.copied_to(tmp_path)


@pytest.fixture
def process() -> Iterator[WorkerHere]:
    """A worker's tasks, done in this process."""
    with worker_here() as made:
        yield made

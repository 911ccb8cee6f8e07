"""These tests need a GPU; scripts/gpu-test runs them. Elsewhere they are skipped, and say so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_support import Kprof
from program_runs import ProgramRuns


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not Path("/dev/nvidia0").exists():
        folder = f"{Path(__file__).parent}{os.sep}"
        for item in items:
            if str(item.path).startswith(folder):
                item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write each result to ``$OUT`` at once: a run may be cut off."""
    folder = os.environ.get("OUT")
    if folder and "PYTEST_XDIST_WORKER" not in os.environ and (report.when == "call" or not report.passed):
        with Path(folder, "gpu-results.txt").open("a") as file:
            file.write(f"{report.outcome} {report.duration:.0f} s {report.nodeid}\n")
            file.write(f"{report.longreprtext[-3000:]}\n" if report.failed else "")


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ProgramRuns]:
    """Starts programs by themselves and with us."""
    with ProgramRuns(tmp_path) as runs:
        yield runs


@pytest.fixture
def kprof(runs: ProgramRuns) -> Kprof:
    """Runs the command line as a user would; a non-zero exit code is an error."""
    return lambda *arguments: runs.start_kprof(*arguments).wait()

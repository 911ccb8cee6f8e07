"""These tests need a GPU; scripts/gpu-test runs them. Elsewhere they are skipped, and say so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_support import ROOT, Kprof
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
def environment(tmp_path: Path) -> dict[str, str]:
    """A user of one's own: nothing of ~/.triton is there beforehand."""
    home = tmp_path / "home"
    home.mkdir()
    path = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, "HOME": str(home), "PYTHONPATH": path}


@pytest.fixture
def kprof(environment: dict[str, str], tmp_path: Path) -> Kprof:
    """Runs the command line as a user would; a non-zero exit code is an error."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", "kprof_inject", *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise AssertionError(f"exit code {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
        return ended

    return run


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ProgramRuns]:
    """Starts programs by themselves and with us."""
    with ProgramRuns(tmp_path) as runs:
        yield runs

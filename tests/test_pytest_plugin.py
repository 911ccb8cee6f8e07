"""The pytest plugin, as a user's test suite has it: on the fake GPU, in a child."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from programs.child import clean_environment, fake_gpu_path, run_child
from snapshots import check

SUITE = """
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import pytest
import torch
from fake_gpu.kernels import scale

from kprof_inject import KprofError

X = torch.arange(1, 17, dtype=torch.float32)
RUNS = []


def launch(longer=0):
    for n in range(4, 12):
        scale[(16,)](X, torch.zeros_like(X), n + longer)


def test_missing(kprof_baseline):
    with kprof_baseline("gone", replay=0):
        launch()


def test_loop(kprof_baseline, request):
    stores = request.config.getoption("--kprof-store")
    with kprof_baseline("stored", at=["func", "loop"], launches="all", replay=0):
        launch(longer=0 if stores else 2000)


def test_as_fast(kprof_baseline):
    with kprof_baseline("stored", at=["func", "loop"], launches="all", replay=0):
        launch()


def test_few(kprof_baseline):
    with kprof_baseline("stored", kernel="other", replay=0):
        launch()


def test_options(kprof_baseline):
    for options in ({"fail_above": 5}, {"fail_above": "five"}, {"folder": "here"}):
        with pytest.raises(KprofError, match="read|folder") as refused, kprof_baseline("stored", **options):
            raise AssertionError
        assert refused.value.hint
    with kprof_baseline("stored", at=["func", "loop"], launches="all", replay=0, fail_above=0.05):
        launch()


def test_wrong(kprof_profile):
    with kprof_profile(replay=0) as prof:
        launch()
    raise ValueError(len(prof.timelines))
"""
RUN = """
import sys, pytest
options = ["-p", "no:cacheprovider", "-q", "--tb=line", "-rA", "test_suite.py", "--rootdir=."]
pytest.main([*options, "--kprof-store", "-k", "loop"])
print("STORED", flush=True)
sys.exit(pytest.main([*options, "--kprof-pages", "pages"]))
"""


def test_a_stored_baseline_gates_later_runs_and_failures_leave_pages(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    environment = {**clean_environment(tmp_path), "PYTHONPATH": fake_gpu_path()}
    ended = run_child([sys.executable, "-c", RUN], tmp_path, env=environment)
    stored, _, later = ended.stdout.partition("STORED")
    assert "1 passed" in stored
    assert "4 failed, 2 passed" in later
    assert "PASSED test_suite.py::test_as_fast" in later
    assert "PASSED test_suite.py::test_options" in later
    failures = {"slower": "scale is slower ", "no launch": "'other'", "no baseline": "pytest --kprof-store"}
    for case, words in failures.items():
        said = next(line for line in later.splitlines() if words in line).removeprefix("E ").strip()
        check("pytest_plugin/failures", re.sub(r"[+-]?\d+\.\d+", "N", said), case)
    pages = sorted(path.name for path in (tmp_path / "pages").iterdir())
    assert pages == ["test_suite.py-test_loop-1.html", "test_suite.py-test_wrong-1.html"]
    assert "wrote pages/test_suite.py-test_wrong-1.html" in later

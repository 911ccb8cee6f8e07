"""The pytest plugin, as a user's test suite has it: on the fake GPU, in a child."""

from __future__ import annotations

import sys
from pathlib import Path

from programs.child import clean_environment, fake_gpu_path, run_child

SUITE = """
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale

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
    assert "3 failed, 1 passed" in later
    assert "PASSED test_suite.py::test_as_fast" in later
    assert "scale is slower by more than 5 %" in later
    assert f"{tmp_path / 'gone'} does not exist; store it: pytest --kprof-store" in later
    pages = sorted(path.name for path in (tmp_path / "pages").iterdir())
    assert pages == ["test_suite.py-test_loop-1.html", "test_suite.py-test_wrong-1.html"]
    assert "wrote pages/test_suite.py-test_wrong-1.html" in later

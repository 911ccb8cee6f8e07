"""A program's signal handlers are its own when we have compiled: LLVM takes some of them."""

from __future__ import annotations

import sys

import pytest
from fake_runs import FakeRuns
from programs.child import run_child

PROGRAM = """
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import os
import signal
import torch
from fake_gpu.kernels import scale

signal.signal(signal.SIGUSR1, lambda *_: print("handled"))
x = torch.arange(1, 17, dtype=torch.float32)
for n in range(3):
    scale[(16,)](x, torch.zeros_like(x), n)
os.kill(os.getpid(), signal.SIGUSR1)
"""


@pytest.mark.triton
def test_a_handler_that_the_program_has_without_us_it_has_with_us(fake_runs: FakeRuns) -> None:
    """The program finds its kernel in its cache, so that only we compile."""
    (fake_runs.folder / "program.py").write_text(PROGRAM)
    cache = {"TRITON_CACHE_DIR": str(fake_runs.folder / "cache")}
    environment = {**fake_runs.environment(), **cache}
    for _ in range(2):
        plain = run_child([sys.executable, "program.py"], fake_runs.folder, env=environment)
    assert plain.stdout == "handled\n", plain.stderr
    ended = fake_runs.kprof("profile", "-o", "own", "--replay", "none", "--", "program.py", env=cache)
    assert ended.stdout.startswith("handled\n"), ended.stderr

"""How deep a program may recurse and still launch a kernel."""

from __future__ import annotations

import sys

from fake_runs import FakeRuns
from programs.child import PROGRAMS, run_child


def test_a_program_may_recurse_as_deep_as_without_us(fake_runs: FakeRuns) -> None:
    program = PROGRAMS / "deep_launches.py"
    plain = run_child([sys.executable, program], fake_runs.folder, env=fake_runs.environment())
    assert plain.exit_code == 0, plain.stderr
    dumped = fake_runs.kprof("dump", "-o", "deep", program)
    assert dumped.stdout == plain.stdout, dumped.stderr
    assert fake_runs.kprof("insert", "deep").exit_code == 0
    ran = fake_runs.kprof("run", "deep", "--no-replay", "--launches", "all", program)
    assert ran.stdout == plain.stdout, ran.stderr

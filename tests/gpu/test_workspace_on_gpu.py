"""A workspace belongs to one command at a time, and selectors that find nothing do not end a profile."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from gpu_support import Kprof
from program_runs import PROGRAMS, ProgramRuns, Run

PROGRAM = PROGRAMS / "from_stdin.py"
NUMBERS = " ".join(str(number) for number in range(1000))
SUM = "1000 numbers, sum 1498500.0"


def test_a_selector_that_no_kernel_has_does_not_end_the_profile(kprof: Kprof, tmp_path: Path) -> None:
    ended = kprof("profile", "--at", "loop", "--at", "func", "--", PROGRAM, "--save", "out.npy", stdin=NUMBERS)
    print(ended.stderr)
    assert ended.stdout.count(SUM) == 1, ended.stderr
    assert np.array_equal(np.load(tmp_path / "out.npy"), 3 * np.arange(1000, dtype=np.float32))
    scopes = [scope.name for launch in Run(tmp_path / "kprof_out").launches for scope in launch.kernel.scopes.scopes]
    assert scopes == ["func"]


def test_if_no_selector_finds_anything_the_program_runs_once(kprof: Kprof) -> None:
    ended = kprof("profile", "--at", "loop", "--", PROGRAM, stdin=NUMBERS, check=False)
    print(ended.stderr)
    assert (ended.returncode, ended.stdout.count(SUM)) == (1, 1)


@pytest.mark.parametrize("second", ["profile", "dump", "run"])
def test_a_second_command_in_one_workspace_is_refused(tmp_path: Path, second: str) -> None:
    with ProgramRuns(tmp_path) as runs:
        program = (PROGRAMS / "ending.py", "--pause", "6")
        first = runs.start_kprof("profile", "--", *program)
        deadline = time.monotonic() + 60
        while not (tmp_path / "kprof_out" / "workspace.json").exists():
            assert time.monotonic() < deadline and not first.ended(), first.wait(exit_code=None)
            time.sleep(0.02)
        where = ("kprof_out",) if second == "run" else ()
        refused = runs.start_kprof(second, *where, "--", *program).wait(exit_code=None)
        print(refused)
        went_on = first.wait()
    assert refused.exit_code == 1
    assert "Traceback" not in refused.stderr
    assert "sum" not in refused.stdout  # its program did not run
    assert went_on.stdout.count("sum ") == 1
    assert len(list((tmp_path / "kprof_out" / "captures").iterdir())) == 1

"""Programs that fail, or in which nothing is to be found: one diagnostic, the right exit code, no traceback of ours."""

from __future__ import annotations

import sys

import pytest
from command_line import REAL_TORCH, CommandLine, diagnosis
from programs.child import ENDING, PROGRAMS, python_path
from snapshots import check


@pytest.mark.parametrize(
    ("ending", "exit_code"), [("raise", 1), ("kill", 137), ("interrupt", 130)], ids=["raise", "kill", "interrupt"]
)
def test_what_a_program_compiled_before_it_failed_is_kept(kprof: CommandLine, ending: str, exit_code: int) -> None:
    ended = kprof("dump", ENDING, ending)
    assert ended.exit_code == exit_code
    assert ended.stdout == ending
    assert "kprof-inject: dumped 1 kernel to kprof_out" in ended.stderr
    assert len(list(kprof.folder.glob("kprof_out/kernels/scale-*/kernel.json"))) == 1
    assert "kprof_inject/" not in ended.stderr  # no file of ours in a traceback


NOTHING_TO_SAVE = {
    "no Triton": (
        [sys.executable, "-c", "print('hello')"],
        1,
    ),
    "no kernel": (
        [sys.executable, "-c", "import triton"],
        1,
    ),
    "out of reach": (
        [sys.executable, "-I", "-c", "print('hello')"],
        1,
    ),
    "not Python": (
        ["/bin/echo", "hello"],
        1,
    ),
    "not Python, and failing": (
        ["/bin/sh", "-c", "exit 9"],
        9,
    ),
    "no such command": (
        ["./gone"],
        1,
    ),
    "a folder": (
        ["/"],
        1,
    ),
    "no such script": (
        ["gone.py"],
        1,
    ),
    "own exit code": (
        [sys.executable, "-c", "import triton, sys; sys.exit(3)"],
        3,
    ),
    "killed early": (
        [sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"],
        143,
    ),
    "no GPU": (
        [PROGRAMS / "launch.py"],
        1,
    ),
}


@pytest.mark.parametrize("case", NOTHING_TO_SAVE)
def test_a_program_that_leaves_nothing_to_save(kprof: CommandLine, case: str) -> None:
    program, exit_code = NOTHING_TO_SAVE[case]
    ended = kprof("dump", "--", *program, env=REAL_TORCH if case == "no GPU" else None)
    assert ended.exit_code == exit_code
    assert len(ended.errors()) == 1
    check("cli/program_endings", diagnosis(ended), case)
    assert "kprof_inject/" not in ended.stderr


def test_a_triton_that_we_cannot_join_is_told_of(kprof: CommandLine) -> None:
    (kprof.folder / "triton").mkdir()
    kprof.write("triton/__init__.py", '__version__ = "1.0"\n')
    kprof.write("prog.py", "import triton\nprint('works')\n")
    ended = CommandLine(kprof.folder, python_path(kprof.folder))("dump", "prog.py")
    assert (ended.exit_code, ended.stdout) == (1, "works\n")
    (error,) = ended.errors()
    assert "joining Triton: " in error
    assert "Traceback" not in ended.stderr


def test_a_program_of_two_processes_counts_as_one(kprof: CommandLine) -> None:
    ended = kprof("dump", PROGRAMS / "children.py", "subprocess")
    assert ended.exit_code == 0
    assert len(list(kprof.folder.glob("kprof_out/kernels/*"))) == 1

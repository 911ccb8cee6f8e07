"""``profile`` where it cannot come to its end: no GPU, or options that are wrong."""

from __future__ import annotations

import os
import sys

import pytest
from command_line import CommandLine
from programs.child import CROSS_COMPILE, PROGRAMS


def test_without_a_gpu_it_says_so_and_writes_no_trace(kprof: CommandLine) -> None:
    ended = kprof("profile", "--at", "scale/func", "--trace", "trace.json", "--", CROSS_COMPILE)
    assert ended.exit_code == 1
    assert ended.errors() == ["error: the program launched no kernel with records: torch sees no GPU on this machine"]
    assert (
        ended.stderr.splitlines()[-1] == "hint: run it on a machine with a GPU; 'kprof-inject demo' works without one"
    )
    # The program's own lines, of the clean run and of the one with records, and no table.
    assert [values["records"] for values in ended.json_lines()] == [[], [], [], [], [], ["func"]]
    assert sorted(os.listdir(kprof.folder)) == ["home", "kprof_out"]
    assert not list(kprof.folder.glob("kprof_out/**/trace*"))


COMPILES = f"""
import os, signal, subprocess, sys, time
sys.path.insert(0, {str(PROGRAMS)!r})
from kernels import compile_for_h200, scale
compile_for_h200(scale, 4)
"""
READS = """
print(sys.stdin.read())
if not os.path.exists("ran"):
    open("ran", "w").close()
    subprocess.run([sys.executable, "-I", "-c", "pass"])
    for command in ("insert", "list"):
        ended = subprocess.run([sys.executable, "-m", "kprof_inject", command, "kprof_out"], capture_output=True)
        print(command, ended.returncode, ended.stderr.decode().split(" since ")[0], len(ended.stdout) > 0, flush=True)
"""
STOPPED = """
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append("stops"))
os.kill(os.getppid(), signal.SIGTERM)
while not told:
    time.sleep(0.01)
print(told.pop())
"""


def test_both_runs_read_the_same_and_have_the_workspace_to_themselves(kprof: CommandLine) -> None:
    kprof.write("prog.py", COMPILES + READS)
    ended = kprof("profile", "prog.py", stdin=b"some words")
    first, refused, listed, _, second = ended.stdout.splitlines()
    assert first == second == "some words"
    assert refused.startswith("insert 1 error: kprof_out is in use by process ")
    assert listed == "list 0 kprof-inject: next: kprof-inject insert --at SELECTOR"
    unreached = f"a Python process could not be reached, so its launches are missing: {sys.executable} -I"
    assert ended.stderr.count(unreached) == 1


def test_a_program_that_somebody_stopped_is_not_run_again(kprof: CommandLine) -> None:
    kprof.write("prog.py", COMPILES + STOPPED)
    ended = kprof("profile", "prog.py")
    assert (ended.exit_code, ended.stdout) == (143, "stops\n")
    assert ended.stderr.splitlines()[-1] == (
        "kprof-inject: stopped by SIGTERM: not rerunning the program; continue with insert and run"
    )
    assert len(list(kprof.folder.glob("kprof_out/kernels/*/kernel.json"))) == 1


def test_a_selector_that_finds_nothing_beside_one_that_does_is_a_warning(kprof: CommandLine) -> None:
    ended = kprof("profile", "--at", "scale/func", "--at", "scale/loop", "--", CROSS_COMPILE)
    assert ended.errors() == ["error: the program launched no kernel with records: torch sees no GPU on this machine"]
    warnings = [line for line in ended.stderr.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "kprof-inject: warning: the selector 'scale/loop' matches nothing in scale; you can select"
    )


def test_of_many_scopes_only_their_number_is_told(kprof: CommandLine) -> None:
    ended = kprof("profile", "--at", "op(*)", "--", CROSS_COMPILE)
    told = [line for line in ended.stderr.splitlines() if line.startswith("kprof-inject: ")]
    (where,) = (line for line in told if "scopes stand: " in line)
    assert where.endswith("kprof-inject insert --dry-run, with the same --at")
    assert " selector " not in ended.stderr and len(ended.stderr.splitlines()) < 24


def test_where_no_selector_finds_anything_the_program_is_run_once(kprof: CommandLine) -> None:
    ended = kprof("profile", "--at", "scale/loop", "--at", "other/func", "--", CROSS_COMPILE)
    assert ended.exit_code == 1
    assert ended.errors() == ["error: the selector 'scale/loop' matches nothing in scale"]
    assert len(ended.json_lines()) == 3


def test_a_program_that_compiles_nothing_is_run_once(kprof: CommandLine) -> None:
    kprof.write("prog.py", "print('ran')\nraise SystemExit(3)\n")
    assert kprof("demo", "-o", "kprof_out").exit_code == 0
    ended = kprof("profile", "prog.py")
    assert (ended.exit_code, ended.stdout) == (3, "ran\n")
    assert ended.errors() == ["error: the program compiled no kernel: it ended with exit code 3"]
    # What was there stays, and is not taken for this program's.
    assert "report shows what was there: kprof_out/captures/002: examples/matmul.py --repeat 30 " in ended.stderr
    assert "matmul_kernel" in kprof("list").stdout


def test_a_layout_is_for_drawings(kprof: CommandLine) -> None:
    ended = kprof("profile", "--trace", "scopes.csv", "--layout", "cta", "--", CROSS_COMPILE)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[0] == "error: --layout is for timelines, and a .csv file is not one"
    assert os.listdir(kprof.folder) == ["home"]


def test_a_layout_of_the_settings_stops_no_table(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", '[tool.kprof-inject]\nlayout = "cta"\n')
    kprof.write("prog.py", "")
    ended = kprof("profile", "--trace", "scopes.csv", "prog.py")
    assert ended.errors() == ["error: the program never imported Triton"]


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("--at", "lop", "--at:1:1: error: cannot read the selector 'lop'"),
        ("--launches", "-1", "--launches:1:1: error: there is no launch -1"),
        ("--warps", "x", "--warps:1:1: error: 'x' is not a warp number"),
        ("--trace", "trace.txt", "error: the name trace.txt does not say which format to write"),
    ],
)
def test_a_wrong_option_is_found_before_the_program_starts(
    kprof: CommandLine, option: str, value: str, error: str
) -> None:
    ended = kprof("profile", option, value, "--", CROSS_COMPILE)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[0] == error
    assert os.listdir(kprof.folder) == ["home"]

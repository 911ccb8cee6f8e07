"""``profile`` where it cannot come to its end: no GPU, or options that are wrong."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, diagnosis
from programs.child import CROSS_COMPILE, PROGRAMS
from snapshots import check


def test_without_a_gpu_it_says_so_and_writes_no_trace(kprof: CommandLine) -> None:
    words = ("--at", "scale/func", "--at", "scale/loop", "--trace", "trace.json")
    ended = kprof("profile", *words, "--", CROSS_COMPILE)
    assert ended.exit_code == 1
    assert len(ended.errors()) == 1
    (warning,) = [line for line in ended.stderr.splitlines() if "warning" in line]
    check("cli/profile", warning, "scale/loop beside scale/func")
    check("cli/profile", diagnosis(ended), "no GPU")
    # The program's own lines, and no table.
    assert [values["records"] for values in ended.json_lines()] == [[], [], ["func"]]
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


@pytest.mark.parametrize("command", ["causal", "try"])
def test_input_that_can_be_read_only_once_is_refused_before_the_first_run(kprof: CommandLine, command: str) -> None:
    ended = kprof(command, "--", "touch", "ran", stdin=b"some words")
    assert ended.exit_code == 1
    check("cli/profile", diagnosis(ended).replace(command, "COMMAND"), "piped input")
    assert not (kprof.folder / "ran").exists()


def test_the_program_reads_its_input_and_has_the_workspace_to_itself(kprof: CommandLine) -> None:
    kprof.write("prog.py", COMPILES + READS)
    ended = kprof("dump", "prog.py", stdin=b"some words")
    words, refused, listed, _ = ended.stdout.splitlines()
    assert words == "some words"
    assert refused.startswith("insert 1 error: kprof_out is ")
    assert listed.startswith("list 0 ") and "kprof-inject insert --at SELECTOR" in listed
    (unreached,) = (line for line in ended.stderr.splitlines() if f"{sys.executable} -I" in line)
    check("cli/profile", unreached.replace(sys.executable, "PYTHON"), "a process out of reach")


def test_a_program_that_somebody_stopped_ends_as_it_does_alone(kprof: CommandLine) -> None:
    kprof.write("prog.py", COMPILES + STOPPED)
    ended = kprof("profile", "prog.py")
    assert (ended.exit_code, ended.stdout) == (143, "stops\n")
    check("cli/profile", diagnosis(ended), "SIGTERM in the only run")


def test_of_many_scopes_only_their_number_is_told(kprof: CommandLine) -> None:
    ended = kprof("profile", "--at", "op(*)", "--", CROSS_COMPILE)
    told = [line for line in ended.stderr.splitlines() if line.startswith("kprof-inject: ")]
    (where,) = (line for line in told if "--dry-run" in line)
    check("cli/profile", where, "op(*)")
    assert " selector " not in ended.stderr and len(ended.stderr.splitlines()) < 24


def test_where_no_selector_finds_anything_the_program_is_run_once(kprof: CommandLine) -> None:
    ended = kprof("profile", "--at", "scale/loop", "--at", "other/func", "--", CROSS_COMPILE)
    assert ended.exit_code == 1
    check("cli/profile", diagnosis(ended), "scale/loop and other/func")
    assert len(ended.json_lines()) == 3


def test_a_program_that_compiles_nothing_is_run_once(kprof: CommandLine, captured_once: Path) -> None:
    kprof.write("prog.py", "print('ran')\nraise SystemExit(3)\n")
    shutil.copytree(captured_once, kprof.folder / "kprof_out")
    ended = kprof("profile", "prog.py")
    assert (ended.exit_code, ended.stdout) == (3, "ran\n")
    # What was there stays, and is not taken for this program's.
    assert "kprof_out/captures/002" in ended.stderr
    check("cli/profile", diagnosis(ended), "no kernel compiled")
    assert "matmul_kernel" in kprof("list").stdout


def test_a_layout_of_the_settings_stops_no_table(kprof: CommandLine) -> None:
    kprof.write("pyproject.toml", '[tool.kprof-inject]\nlayout = "cta"\n')
    kprof.write("prog.py", "")
    ended = kprof("profile", "--trace", "scopes.csv", "prog.py")
    check("cli/profile", diagnosis(ended), "Triton not imported")

"""``run`` without a GPU: the program cross-compiles its kernels, and says itself what it got."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import REAL_TORCH, CommandLine, diagnosis
from programs.child import CROSS_COMPILE, PROGRAMS
from snapshots import check

from kprof_inject.runtime.versions import installed_version

ALL_RECORDS = ["func", "loop[0]", "iter[0]"]


def reported(workspace: Path) -> dict[tuple[str, str], int]:
    """How many variants of each kernel the last run left in each state."""
    counts: dict[tuple[str, str], int] = {}
    for path in workspace.glob("reports/run/*.json"):
        for kernel in json.loads(path.read_text())["kernels"].values():
            key = (kernel["name"], kernel["state"])
            counts[key] = counts.get(key, 0) + 1
    return counts


def got(values: dict[str, Any]) -> tuple[str, int, list[str], bool, bool]:
    """A line of ``cross_compile.py``, once it is sure that the module is the variant's own."""
    assert values["ttgir_num_warps"] == values["num_warps"]
    return (
        values["kernel"],
        values["num_warps"],
        values["records"],
        values["reads_clock"],
        values["scratch_bytes"] > 0,
    )


@pytest.mark.triton
def test_each_run_has_the_records_of_its_own_plan(kprof: CommandLine, workspace: Path) -> None:
    user_cache = {"TRITON_CACHE_DIR": str(kprof.folder / "user_cache")}

    kprof("insert", workspace)
    first = kprof("run", workspace, CROSS_COMPILE, env=user_cache)
    assert [got(values) for values in first.json_lines()] == [
        ("accumulate", 4, ALL_RECORDS, True, True),
        ("accumulate", 8, ALL_RECORDS, True, True),
        ("scale", 4, ["func"], True, True),
    ]
    assert reported(workspace) == {("accumulate", "instrumented"): 2, ("scale", "instrumented"): 1}

    # What the first run compiled is of another plan now, and scale has none.
    kprof("insert", workspace, "--at", "accumulate/loop=sum")
    second = kprof("run", workspace, CROSS_COMPILE)
    assert [got(values) for values in second.json_lines()] == [
        ("accumulate", 4, ["kernel body", "sum"], True, True),
        ("accumulate", 8, ["kernel body", "sum"], True, True),
        ("scale", 4, [], False, False),
    ]
    assert reported(workspace) == {("accumulate", "instrumented"): 2}

    # Nor has the next dump, without whose plan nothing runs.
    dumped = kprof("dump", "-o", workspace, CROSS_COMPILE)
    assert [got(values)[2:] for values in dumped.json_lines()] == [([], False, False)] * 3
    refused = kprof("run", workspace, CROSS_COMPILE)
    assert (refused.exit_code, refused.stdout) == (1, "")
    check("cli/run", diagnosis(refused), "no records")

    # Neither run, nor a dump, used a cache of the user's: one that is named, or the one at home.
    assert sorted(os.listdir(kprof.folder)) == ["home", "workspace"]
    assert os.listdir(kprof.folder / "home") == []


@pytest.mark.triton
@pytest.mark.skipif(not installed_version().global_buffer_on, reason="no records in global memory")
def test_the_mode_reaches_the_compiler(kprof: CommandLine, workspace: Path) -> None:
    kprof("insert", workspace, "--at", "scale/func", "--at", "accumulate/iter", "--iter-records", "two")
    ended = kprof(
        *("run", workspace, "--buffer-type", "global", "--buffer-size", "20000", "--warps", "1,6", "--clock32"),
        *("--sched-stores", CROSS_COMPILE),
    )
    # One ring of 16384 bytes for each warp that there is to record, then of half of that for both.
    assert [values["scratch_bytes"] for values in ended.json_lines()] == [16384 + 128, 16384 + 128, 16384 + 128]
    # With two records of each iteration, stores may be moved.
    assert [got(values)[2] for values in ended.json_lines()] == [["kernel body", "iter[0]"]] * 2 + [["func"]]


def test_moved_stores_and_one_record_of_each_iteration_are_refused(kprof: CommandLine, workspace: Path) -> None:
    kprof("insert", workspace, "--at", "accumulate/iter")
    refused = kprof("run", workspace, "--sched-stores", CROSS_COMPILE)
    assert [got(values)[2] for values in refused.json_lines()] == [[], [], []]
    check("cli/run", diagnosis(refused), "--sched-stores with one record an iteration")


def test_scheduling_barriers_are_refused_before_a_program_for_nvidia_runs(kprof: CommandLine, workspace: Path) -> None:
    kprof("insert", workspace, "--at", "scale/func")
    refused = kprof("run", workspace, "--sched-barriers", CROSS_COMPILE)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "error: --sched-barriers needs an AMD GPU" in refused.stderr


def test_nothing_launched_is_an_error_that_says_why(kprof: CommandLine, workspace: Path) -> None:
    kprof("insert", workspace, "--at", "scale/func")
    ended = kprof("run", workspace, CROSS_COMPILE, env=REAL_TORCH)
    assert ended.exit_code == 1
    check("cli/run", diagnosis(ended), "no GPU")
    assert "Traceback" not in ended.stderr
    assert not (workspace / "captures").exists()


def test_a_kernel_whose_source_changed_runs_plain_and_a_long_name_makes_no_difference(kprof: CommandLine) -> None:
    """The name is longer than Triton's file names."""
    program = Path(shutil.copytree(PROGRAMS, kprof.folder / "program")) / "cross_compile.py"
    long = "scale_" + "x" * 194
    for name in ("kernels.py", "cross_compile.py"):
        kprof.write(f"program/{name}", kprof.read(f"program/{name}").replace("scale", long))
    kprof("dump", program)
    assert kprof("insert", "kprof_out", "--at", "func").exit_code == 0
    kernels = kprof.read("program/kernels.py")
    kprof.write("program/kernels.py", kernels.replace("total += tl.load", "total -= tl.load"))

    ended = kprof("run", "kprof_out", program)
    assert [got(values)[:3] for values in ended.json_lines()] == [
        ("accumulate", 4, []),
        ("accumulate", 8, []),
        (long, 4, ["func"]),
    ]
    assert reported(kprof.folder / "kprof_out") == {(long, "instrumented"): 1}


def test_kernels_that_cannot_take_their_records_are_left_alone(kprof: CommandLine, workspace: Path) -> None:
    kprof("insert", workspace, "--at", "func")
    broken, sound = sorted(workspace.glob("override/accumulate-*/*/accumulate.ttgir"))
    broken.write_text("this is no module")
    (path,) = workspace.glob("kernels/scale-*/kernel.json")
    kernel = path.read_text()
    path.write_text(json.dumps({**json.loads(kernel), "triton_version": "2.0.0"}))
    ended = kprof("run", workspace, CROSS_COMPILE)
    assert sorted(values["records"] for values in ended.json_lines()) == [[], [], ["func"]]
    assert reported(workspace) == {
        ("accumulate", "instrumented"): 1,
        ("accumulate", "left alone"): 1,
        ("scale", "left alone"): 1,
    }
    (error,) = ended.errors()
    assert "accumulate: this is not TTGIR as Triton prints it" in error and "scale: Triton 2.0.0 dumped it, " in error
    assert ended.exit_code == 1
    assert "Traceback" not in ended.stderr

    path.write_text(kernel)
    sound.unlink()
    gone = kprof("run", workspace, "--kernel", "accumulate", CROSS_COMPILE)
    assert "accumulate: cannot read " in gone.stderr and "Traceback" not in gone.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["workspace", "--", "program.py"],
        ["workspace", "--launches", "first", "program.py"],
        ["--launches", "first", "workspace", "--", "program.py"],
    ],
    ids=["--", "option", "option first --"],
)
def test_the_program_may_stand_after_dashes_and_options(kprof: CommandLine, workspace: Path, words: list[str]) -> None:
    kprof("insert", workspace, "--at", "scale/func")
    kprof.write("program.py", "import sys\nprint(sys.argv)\n")
    ended = kprof("run", *words, "--launches", "7")
    assert ended.stdout == "['program.py', '--launches', '7']\n"
    assert len(ended.errors()) == 1 and "never imported Triton" in ended.stderr

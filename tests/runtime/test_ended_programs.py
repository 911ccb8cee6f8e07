"""Programs on the fake GPU that end in all ways, and those of several processes: what they saved is readable."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gpu.captured import ends_of, left_out, numbers_in
from fake_runs import FakeRuns
from programs.child import GUARD_S, Ended, run_child
from snapshots import check

Endings = dict[str, tuple[Ended, Path]]
OPTIONS = {"killed": ["--launches", "all"], "children": ["--launches", "all"]}
ENDINGS = ["exit", "raise", "os-exit", "killed", "killed-later", "children", "workers", "own-caches"]


@pytest.fixture(scope="module")
def endings(planned_once: FakeRuns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endings]:
    """Each ending, and the capture that it left. Two run at a time."""
    ended = {}
    for pair in zip(ENDINGS[::2], ENDINGS[1::2], strict=True):
        runs = {ending: planned_once.copied_to(tmp_path_factory.mktemp(ending)) for ending in pair}
        processes = {ending: run.start(*OPTIONS.get(ending, []), ending=ending) for ending, run in runs.items()}
        for ending, process in processes.items():
            stdout, stderr = process.communicate(timeout=GUARD_S)
            ended[ending] = (Ended(process.returncode, stdout, stderr), runs[ending].capture)
    return ended


@pytest.mark.parametrize(("ending", "exit_code"), [("exit", 3), ("raise", 1), ("os-exit", 4)])
def test_an_ended_program_leaves_its_last_launch(endings: Endings, ending: str, exit_code: int) -> None:
    ended, capture = endings[ending]
    assert (ended.exit_code, ended.stdout) == (exit_code, f"{[4.0 * x for x in range(1, 17)]}\n")
    assert numbers_in(capture) == [(4, 4)]
    assert (len(ends_of(capture)), left_out(capture)) == (1, {})
    assert ("ValueError: the program's own fault" in ended.stderr) == (ending == "raise")
    assert "kprof_inject/" not in ended.stderr


def test_all_that_a_killed_program_had_written_is_decoded(endings: Endings) -> None:
    ended, capture = endings["killed"]
    assert ended.exit_code == 137
    saved = numbers_in(capture)
    assert saved == [(index, 100 + index) for index in range(len(saved))]
    assert len(saved) >= 100  # of 300: the thread that writes keeps up, more or less
    assert ends_of(capture) == []


def test_a_program_that_is_killed_after_a_while_leaves_its_last_launch(endings: Endings) -> None:
    ended, capture = endings["killed-later"]
    assert ended.exit_code == 137
    assert numbers_in(capture) == [(1, 101)]


def test_each_process_that_launches_has_files_of_its_own(endings: Endings) -> None:
    ended, capture = endings["children"]
    assert (ended.exit_code, ended.stdout) == (0, "fork 0\nos.fork 5\nspawn 0\nforkserver 0\n")
    by_process = [numbers_in(folder) for folder in _one_by_one(capture)]
    assert sorted(by_process) == sorted(
        [[(0, 1), (1, 2)], *([(number, first + number) for number in range(3)] for first in (10, 20, 30)), [(0, 50)]]
    )
    assert (len(ends_of(capture)), left_out(capture)) == (5, {})


def test_a_process_that_becomes_another_program_saves_before_that(endings: Endings) -> None:
    """Not what it launches when that failed."""
    ended, capture = endings["workers"]
    assert "exec 0\n" in ended.stdout
    by_process = [numbers_in(folder) for folder in _one_by_one(capture)]
    assert [(1, 61)] in by_process and [(2, 62)] not in by_process


def test_of_a_process_that_was_terminated_it_is_said_what_is_missing(endings: Endings) -> None:
    ended, capture = endings["workers"]
    assert "terminated -15\n" in ended.stdout
    (said,) = [line for line in ended.stderr.splitlines() if "killed before it had saved" in line]
    # It reports now and then: what it launched last it may not have said.
    found = re.search(r"1 of at least ([123] launch(es)?)", said)
    assert found
    said = re.sub(r"(?<=process )\d+", "N", said).replace(found[1], "N launches")
    check("runtime/ended_programs", said)
    assert [(0, 70)] in [numbers_in(folder) for folder in _one_by_one(capture)]


def test_of_a_process_that_goes_on_it_is_said_that_it_does(endings: Endings) -> None:
    ended, capture = endings["workers"]
    pid = re.findall(r"^detached (\d+)$", ended.stdout, re.MULTILINE)[0]
    (said,) = [line for line in ended.stderr.splitlines() if "is still running" in line]
    assert f"process {pid} is still running" in said
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [(1, 81)] in [numbers_in(folder) for folder in _one_by_one(capture)]


def test_children_that_are_forked_while_another_thread_compiles_launch_and_speak(endings: Endings) -> None:
    ended, capture = endings["workers"]
    assert f"while compiling {[0] * 8}\n" in ended.stdout
    assert sorted(re.findall(r"^child \d+$", ended.stderr, re.MULTILINE)) == [f"child {n}" for n in range(90, 98)]
    saved = Counter(n for folder in _one_by_one(capture) for _, n in numbers_in(folder))
    assert all(saved[n] == 1 for n in range(90, 98))


def test_a_program_finds_the_same_in_a_cache_that_it_names_itself(planned_once: FakeRuns, endings: Endings) -> None:
    ended, capture = endings["own-caches"]
    alone = planned_once.plain("own-caches")
    assert "scale.cubin" in alone.stdout and "power.cubin" in alone.stdout
    assert (ended.exit_code, ended.stdout) == (0, alone.stdout)
    assert len(list(capture.glob("*/kernels/*"))) == 2


def test_binaries_with_records_are_removed(endings: Endings) -> None:
    """Those of processes that could do it; what the killed ones left, the next run removes."""
    for ending in ("exit", "os-exit", "children"):
        workspace = endings[ending][1].parents[1]
        assert list((workspace / "cache").glob("instrumented-*")) == []


def _one_by_one(capture: Path) -> Iterator[Path]:
    """A capture of each process alone, as it is now: one of them goes on for a while."""
    with tempfile.TemporaryDirectory() as folder:
        for process in sorted(path.parent for path in capture.glob("*/process.json")):
            yield Path(shutil.copytree(process, Path(folder, process.name, process.name))).parent


# A program's signal handlers are its own when we have compiled

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

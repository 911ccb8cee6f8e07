"""However a program ends, it ends as it does without us, and what it had launched by then can be read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from program_runs import PROGRAMS, Ended, ProgramRuns, Run, Running, counts

LAUNCHES = 5
FUNC = {"func": 16 * 4}
SMALL_BUFFER = ("--buffer-type", "shared", "--buffer-size", "512")
PROGRAM = PROGRAMS / "ending.py"

KILLED_BY_SIGNAL = ("terminate", "kill", "segfault")
ENDINGS = (*("return", "exit", "os-exit", "exception", "interrupt", "out-of-memory", "device-fault"), *KILLED_BY_SIGNAL)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProgramRuns, Path]]:
    with ProgramRuns(tmp_path_factory.mktemp("endings")) as runs:
        workspace = runs.folder / "prepared"
        runs.start_kprof("dump", "-o", workspace, "--", PROGRAM, "--pause", "0").wait()
        runs.start_kprof("insert", workspace, "--at", "func").wait()
        yield runs, workspace


def start(prepared: tuple[ProgramRuns, Path], workspace: Path, *arguments: str) -> Running:
    runs, original = prepared
    # The workspace again, without the compilers' caches.
    shutil.copytree(original, workspace, ignore=shutil.ignore_patterns("cache"))
    return runs.start_kprof("run", workspace, "--launches", "all", *SMALL_BUFFER, "--", PROGRAM, *arguments)


@pytest.fixture(scope="module")
def ended(prepared: tuple[ProgramRuns, Path]) -> dict[str, tuple[Ended, Ended, Path]]:
    """How each ending went without us and with us, and the workspace. They run all at once."""
    folder = prepared[0].folder
    arguments = {ending: ("--ending", ending, "--launches", str(LAUNCHES)) for ending in ENDINGS}
    plain = {ending: prepared[0].start(PROGRAM, *arguments[ending]) for ending in ENDINGS}
    started = {ending: start(prepared, folder / ending, *arguments[ending]) for ending in ENDINGS}
    return {
        ending: (plain[ending].wait(exit_code=None), started[ending].wait(exit_code=None), folder / ending)
        for ending in ENDINGS
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_does_alone_and_its_launches_can_be_read(
    ended: dict[str, tuple[Ended, Ended, Path]], ending: str
) -> None:
    alone, process, workspace = ended[ending]
    print(f"{ending}: exit code {alone.exit_code} alone, {process.exit_code} with us\n{process.stderr}")

    # As a shell has it: 128 and the signal's number.
    assert process.exit_code == (alone.exit_code if alone.exit_code >= 0 else 128 - alone.exit_code), process
    assert said(process) == said(alone), f"{process}\n{alone}"
    run = Run(workspace)
    assert [launch.index for launch in run.launches] == list(range(LAUNCHES)), process
    assert [counts(launch) for launch in run.launches] == [FUNC] * LAUNCHES
    assert run.capture.processes[0].end is not None or ending in KILLED_BY_SIGNAL, process
    # The program's own fault is told as often as without us, and none of ours with it.
    assert process.stderr.count("Traceback") == alone.stderr.count("Traceback"), f"{process}\n{alone}"


def said(process: Ended) -> str:
    return re.sub(r"pid \d+", "pid", process.stdout)

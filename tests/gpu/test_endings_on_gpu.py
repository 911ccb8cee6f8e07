"""However a program ends, it ends as it does without us, and what it had launched by then can be read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program_runs import LIMIT_S, PROGRAMS, Ended, ProgramRuns, Run, Running, copy_of, counts

LAUNCHES = 5
FUNC = {"func": 16 * 4}
SMALL_BUFFER = ("--buffer", "shared", "--buffer-bytes", "512")
PROGRAM = PROGRAMS / "ending.py"

ENDINGS = (
    "return",
    "exit",
    "os-exit",
    "exception",
    "interrupt",
    "terminate",
    "segfault",
    "out-of-memory",
    "device-fault",
)
KILLED_BY_SIGNAL = {"terminate", "segfault"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ProgramRuns, Path]]:
    with ProgramRuns(tmp_path_factory.mktemp("endings")) as runs:
        yield runs, runs.prepare("ending", "func", arguments=("--pause", "0"))


def start(prepared: tuple[ProgramRuns, Path], workspace: Path, launches: str, *arguments: str) -> Running:
    runs, original = prepared
    copy_of(original, workspace)
    return runs.start_kprof("run", workspace, "--launches", launches, *SMALL_BUFFER, "--", PROGRAM, *arguments)


@pytest.fixture(scope="module")
def ended(prepared: tuple[ProgramRuns, Path]) -> dict[str, tuple[Ended, Ended, Path]]:
    """How each ending went without us and with us, and the workspace. They run all at once."""
    folder = prepared[0].folder
    arguments = {ending: ("--ending", ending, "--launches", str(LAUNCHES)) for ending in ENDINGS}
    plain = {ending: prepared[0].start(PROGRAM, *arguments[ending]) for ending in ENDINGS}
    started = {ending: start(prepared, folder / ending, "all", *arguments[ending]) for ending in ENDINGS}
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
    assert run.capture.processes[0].ended or ending in KILLED_BY_SIGNAL, process
    # The program's own fault is told as often as without us, and none of ours with it.
    assert process.stderr.count("Traceback") == alone.stderr.count("Traceback"), f"{process}\n{alone}"


def said(process: Ended) -> str:
    return re.sub(r"pid \d+", "pid", process.stdout)


@pytest.mark.parametrize("launches", ["all", "last"])
def test_a_program_killed_while_it_launches_leaves_what_was_complete(
    prepared: tuple[ProgramRuns, Path], launches: str
) -> None:
    runs = prepared[0]
    workspace = runs.folder / f"killed-{launches}"
    running = start(prepared, workspace, launches, "--ending", "never", "--pause", "0")
    pid = wait_for_pid(running)
    # The last launch so far is saved now and then; of all, a few dozen are a middle as good as any.
    wait_until(lambda: saved_lines(workspace) >= (50 if launches == "all" else 1), running)
    if launches == "last":
        time.sleep(2.5)
    os.kill(pid, signal.SIGKILL)
    killed = running.wait(exit_code=128 + signal.SIGKILL)

    run = Run(workspace)
    indices = [launch.index for launch in run.launches]
    print(f"--launches {launches}: {len(indices)} launches, {indices[:3]} … {indices[-1:]}")
    assert len(indices) >= (50 if launches == "all" else 1), killed
    assert indices == sorted(set(indices))
    assert all(counts(launch) == FUNC for launch in run.launches)
    assert len(run.lines()) == len(indices)
    assert not run.capture.processes[0].ended
    assert launches == "all" or indices[-1] > LAUNCHES, "only the first launches were saved"
    traced = runs.start_kprof("trace", workspace).wait()
    assert f": {len(indices)} launch" in traced.stderr, traced
    assert f", {len(indices) * 64} scopes" in traced.stderr, traced


def wait_until(happened, running: Running) -> None:
    deadline = time.monotonic() + LIMIT_S / 2
    while not happened():
        assert not running.ended(), f"it ended by itself: {running.wait(exit_code=None)}"
        assert time.monotonic() < deadline, f"waited too long; so far: {running.stdout()}"
        time.sleep(0.02)


def wait_for_pid(running: Running) -> int:
    wait_until(lambda: "sum " in running.stdout(), running)
    return int(re.findall(r"^pid (\d+)$", running.stdout(), re.MULTILINE)[0])


def saved_lines(workspace: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in workspace.glob("captures/*/*/launches.jsonl"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 10 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=10m", "kprof-test", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_ends_the_capture_and_not_the_program(prepared: tuple[ProgramRuns, Path], small_disk: Path) -> None:
    runs = prepared[0]
    workspace = small_disk / "workspace"
    ended = start(prepared, workspace, "all", "--launches", "4000", "--pause", "0").wait()
    plain = runs.start(PROGRAM, "--launches", "4000", "--pause", "0").wait()

    assert ended.last(r"sum \S+")[0] == plain.last(r"sum \S+")[0], ended
    run = Run(workspace)
    indices = [launch.index for launch in run.launches]
    print(f"{len(indices)} of 4000 launches fit; {run.capture.processes[0].left_out}\n{ended.stderr}")
    assert 50 < len(indices) < 4000, ended
    assert indices == list(range(len(indices))), "launches are missing in between"
    assert all(counts(launch) == FUNC for launch in run.launches)
    assert re.search("disk|space", ended.stderr, re.IGNORECASE), f"no word of the disk: {ended}"
    assert "Traceback" not in ended.stderr, ended
    runs.start_kprof("trace", workspace, "-o", runs.folder / "full-disk.json").wait()

"""Tasks are done by processes that may die, hang, or find their addresses taken; others' results are still there."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kprof_inject.pipeline import programs, workers
from kprof_inject.pipeline.programs import Program
from kprof_inject.pipeline.workers import worker_process
from kprof_inject.runtime.program import ProgramInput
from kprof_inject.runtime.worker.tasks import CountLaunch, TaskResult
from kprof_inject.workspace import Workspace, is_running

# In place of the process that repeats launches: the name of a launch says what becomes of it.
STAND_IN = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from kprof_inject.runtime.child_process import serve
from kprof_inject.runtime.program import ProgramInput
from kprof_inject.runtime.worker.tasks import ADDRESS_TAKEN, TaskResult

log = Path(__file__).with_name("log")

def do(task, _):
    number, how, rest = int(task.metrics[0]), *task.launch.partition(" ")[::2]
    with log.open("a") as file:
        file.write(json.dumps([number, how, os.getpid(), sys.executable, dict(os.environ)]) + "\\n")
    tries = sum(json.loads(line)[0] == number for line in log.read_text().splitlines())
    if how == "exit":
        print("on its way out")
        sys.stderr.write(rest and "\\n  at last\\n\\n")
        sys.exit(int(rest or 0))
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        child = subprocess.Popen(["sleep", "60"])
        log.with_name("child").write_text(str(child.pid))
        time.sleep(60)
    if how == "taken" and tries <= int(rest):
        return TaskResult(refusal=ADDRESS_TAKEN)
    return TaskResult(seconds=number, refusal=rest if how == "refused" else "", is_last=how == "last")

serve(do)
"""

Log = Callable[[], list[list[Any]]]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Have the stand-in do tasks; returns what it did so far: number, kind, pid, executable and environment."""
    (tmp_path / "stand_in_process.py").write_text(STAND_IN)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(workers, "_MODULE", "stand_in_process")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines = tmp_path / "log"
    return lambda: [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


def tasks(*kinds: str) -> list[CountLaunch]:
    return [CountLaunch(launch=kind, metrics=(str(number),)) for number, kind in enumerate(kinds)]


def do_tasks(given: list[CountLaunch], executable: str = "") -> list[TaskResult]:
    with worker_process(executable) as worker:
        return worker.do_all(given)


def done(number: int, refusal: str = "") -> TaskResult:
    return TaskResult(seconds=number, refusal=refusal)


def ended(how: str) -> TaskResult:
    return TaskResult(refusal=f"the process that repeated it ended with {how}")


def test_one_process_does_all_tasks(log: Log, tmp_path: Path) -> None:
    assert do_tasks(tasks("ok", "refused for a reason", "ok")) == [done(0), done(1, "for a reason"), done(2)]
    assert [number for number, *_ in log()] == [0, 1, 2]
    assert len({pid for _, _, pid, *_ in log()}) == 1
    assert list((tmp_path / "temporary").iterdir()) == [], "its files are left"


def test_a_process_that_dies_takes_only_its_task_with_it(log: Log) -> None:
    found = do_tasks(tasks("killed", "ok", "killed", "ok", "exit 3", "ok", "exit 0"))
    assert found[:4] == [ended("signal SIGKILL"), done(1), ended("signal SIGKILL"), done(3)]
    assert found[4:] == [ended("exit code 3:   at last"), done(5), ended("exit code 0:   at last")]


def test_a_task_that_others_may_have_spoilt_has_a_process_for_itself(log: Log) -> None:
    """It is tried once more, but not if it was the first of its process."""
    assert do_tasks(tasks("ok", "killed", "killed")) == [done(0), ended("signal SIGKILL"), ended("signal SIGKILL")]
    assert [number for number, *_ in log()] == [0, 1, 1, 2]


def test_a_process_that_dies_behind_a_task_has_done_it(log: Log) -> None:
    """After an error of the device, nothing more works in a process."""
    last = [replace(done(number), is_last=True) for number in range(2)]
    assert do_tasks(tasks("last", "last", "ok")) == [*last, done(2)]
    assert len({pid for _, _, pid, *_ in log()}) == 3


def test_a_process_that_hangs_ends_with_its_children(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MAX_TASK_SECONDS", 1.0)
    begun = time.monotonic()
    assert do_tasks(tasks("ok", "hangs", "ok")) == [done(0), TaskResult(refusal="it took longer than 1 s"), done(2)]
    assert [number for number, *_ in log()] == [0, 1, 2], "what hangs is not tried once more"
    assert time.monotonic() - begun < 20
    assert not any(is_running(pid) for _, _, pid, *_ in log())
    assert not is_running(int((tmp_path / "child").read_text()))


def test_another_process_may_have_the_addresses_free(log: Log) -> None:
    assert do_tasks(tasks("ok", "taken 4", "ok")) == [done(0), done(1), done(2)]
    assert [number for number, *_ in log()] == [0, *[1] * 5, 2]


def test_addresses_that_are_always_taken_are_given_up(log: Log) -> None:
    taken = TaskResult(refusal="something else is at its addresses")
    assert do_tasks(tasks("taken 99", "ok", "taken 99")) == [taken, done(1), taken]
    tries = [number for number, *_ in log()]
    assert (tries.count(0), tries.count(1), tries.count(2)) == (5, 1, 6)


def test_processes_have_own_caches_and_this_package(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRITON_KERNEL_OVERRIDE", "TRITON_DUMP_DIR", "KPROF_INJECT_SESSION"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HERE", "mine")
    do_tasks(tasks("ok"))
    ((_, _, _, executable, environment),) = log()
    assert executable == sys.executable
    assert environment["HERE"] == "mine"
    assert not {"TRITON_KERNEL_OVERRIDE", "TRITON_DUMP_DIR", "KPROF_INJECT_SESSION"} & environment.keys()
    assert Path(environment["TRITON_CACHE_DIR"]).is_relative_to(tmp_path / "temporary")
    first, second = environment["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "kprof_inject" / "__init__.py").exists()
    assert second == str(tmp_path)


def test_a_worker_that_was_started_early_does_the_tasks(log: Log, tmp_path: Path) -> None:
    """A link in the same folder leads to the same packages; another Python needs another process."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    with worker_process(sys.executable) as worker:
        worker.start()
        assert worker.do_all(tasks("ok")) == [done(0)]
        worker.use(str(Path(sys.executable).with_name("python3")))
        assert worker.do_all(tasks("ok")) == [done(0)]
        worker.use(str(other))
        assert worker.do_all(tasks("ok")) == [done(0)]
    first, second, third = (pid for _, _, pid, *_ in log())
    assert first == second != third


@pytest.mark.parametrize(
    ("has_driver", "repeats", "is_early"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_it_starts_with_the_program_where_launches_are_repeated(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_driver: bool, repeats: bool, is_early: bool
) -> None:
    monkeypatch.setattr(programs, "has_nvidia_module", lambda: has_driver)
    program = Program(Workspace(tmp_path / "ws"), [sys.executable, "train.py"], ProgramInput(), lambda _: None)

    with program._worker(tmp_path / "cache", starts=repeats) as worker:
        assert (worker._process is not None) == is_early
        assert worker.do_all(tasks("ok")) == [done(0)]

    ((_, _, pid, python, environment),) = log()
    assert not is_running(pid)
    assert python == sys.executable
    assert environment["TRITON_CACHE_DIR"] == str(tmp_path / "cache" / "triton")


def test_the_programs_python_repeats_its_launches(log: Log, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport THROUGH="$0"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    do_tasks(tasks("ok"), str(python))
    assert log()[-1][4]["THROUGH"] == str(python)


@pytest.mark.parametrize("executable", ["", "/no/such/python", "python", "x.launch/python"])
def test_other_names_are_our_python(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    """A launch from elsewhere must not choose a file that came with it."""
    for path in (tmp_path / "python", tmp_path / "x.launch" / "python"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\nexit 1\n")
        path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert do_tasks(tasks("ok"), executable) == [done(0)]
    assert log()[-1][3] == sys.executable


def test_a_signal_leaves_neither_process_nor_folder(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            do_tasks(tasks("hangs"))
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        finally:
            os._exit(code)
    child = tmp_path / "child"
    while not (child.exists() and child.read_text()):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("kprof-process-*"))
    ((_, _, worker, *_),) = log()
    while is_running(worker) or is_running(int(child.read_text())):
        time.sleep(0.01)

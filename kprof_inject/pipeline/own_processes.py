"""Have tasks with saved launches done by processes of ours, one after another.

A kernel may end or block its process, and something of a process may be at an address that a launch needs. Then the
next process goes on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kprof_inject.runtime.experiments.tasks import ADDRESS_TAKEN, Task, TaskResult, read_result, write_tasks
from kprof_inject.runtime.own_python import finding_this_package, own_python
from kprof_inject.runtime.program import process_environment

_MODULE = "kprof_inject.runtime.experiments.own_process"
# Some 1 % of processes were seen to have something at the addresses of a launch.
_MAX_TRIES = 5
_MAX_TASK_SECONDS = 300.0
_LOOKS_PER_S = 50.0


def do_tasks(tasks: Sequence[Task], executable: str = "", cache: Path | None = None) -> list[TaskResult]:
    """Return the result of each task, which is a refusal if its process ended.

    ``executable`` is the Python of a program that the user has just run, ours if it is empty or absent; that in the
    record of another capture may be a stranger's. ``cache`` is a folder for Triton's compiler, such as the program's,
    where the launchers are; by default it is temporary.
    """
    python = executable if os.path.isabs(executable) and shutil.which(executable) else ""
    with _leaving_by_exception(), tempfile.TemporaryDirectory(prefix="kprof-tasks-") as name:
        folder = Path(name)
        write_tasks(folder, tuple(tasks))
        results: list[TaskResult] = []
        tries = 0
        while len(results) < len(tasks):
            code, messages = _run(python, folder, tasks, len(results), cache or folder / "cache")
            before = len(results)
            while len(results) < len(tasks) and (result := read_result(folder, len(results))) is not None:
                results.append(result)
            if done := len(results) > before:
                tries = 0
            if len(results) == len(tasks):
                break
            if code is None:
                results.append(TaskResult(refusal=f"it took longer than {_limit_s(tasks[len(results)]):.0f} s"))
            elif done:
                continue  # what was done before may have spoilt the next task: it gets a process for itself
            elif code != ADDRESS_TAKEN:
                how = ": ".join([f"exit code {code}" if code >= 0 else f"signal {-code}", *messages[-1:]])
                results.append(TaskResult(refusal=f"the process that repeated it ended with {how}"))
            elif (tries := tries + 1) == _MAX_TRIES:
                results.append(TaskResult(refusal="something else is at its addresses"))
                tries = 0
    return results


@contextmanager
def _leaving_by_exception() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which would kill us at once, remove the folder and end its process."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if is_main and signal.getsignal(one) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _run(python: str, folder: Path, tasks: Sequence[Task], first: int, cache: Path) -> tuple[int | None, list[str]]:
    """Run a process from task ``first`` on; return its exit code, and its messages.

    The code is ``None`` if a task took too long, for which the process was ended.
    """
    messages = folder / "messages"
    with messages.open("wb") as log:
        process = subprocess.Popen(
            own_python(["-m", _MODULE, str(folder), str(first)], python),
            env=finding_this_package(process_environment(dict(os.environ), cache)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # leads a group, so that a compiler that it waits for ends with it
        )
    try:
        is_in_time = _has_ended(process, folder, tasks, first)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = messages.read_bytes().decode(errors="replace").splitlines()
    return process.returncode if is_in_time else None, [line for line in lines if line.strip()]


def _has_ended(process: subprocess.Popen[bytes], folder: Path, tasks: Sequence[Task], first: int) -> bool:
    """Wait until the process ends, or takes too long for a task; return whether it ended."""
    done, until_s = first, time.monotonic() + _limit_s(tasks[first])
    while process.poll() is None and time.monotonic() < until_s:
        with suppress(subprocess.TimeoutExpired):
            process.wait(1 / _LOOKS_PER_S)
        if done < len(tasks) and read_result(folder, done) is not None:
            done += 1
            until_s = time.monotonic() + (_limit_s(tasks[done]) if done < len(tasks) else _MAX_TASK_SECONDS)
    return process.poll() is not None


def _limit_s(task: Task) -> float:
    """Return the time limit of a task: experiments take as long as the user lets them."""
    return _MAX_TASK_SECONDS + getattr(task, "seconds", 0.0)

"""Run tasks on saved launches in worker processes, one at a time.

A kernel can crash or hang its worker, or an address it needs can be taken; a fresh worker then continues.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kprof_inject.runtime.child_process import ChildProcess, ProcessDiedError, ProcessOverdueError
from kprof_inject.runtime.program import handling, process_environment
from kprof_inject.runtime.worker.tasks import ADDRESS_TAKEN, Task, TaskResult

_MODULE = "kprof_inject.runtime.worker.worker"
# Some 1 % of processes were seen to have something at the addresses of a launch.
_MAX_TRIES = 5
_MAX_TASK_SECONDS = 300.0


class WorkerProcess(ChildProcess):
    """Worker process for tasks with saved launches, one at a time; a fresh one follows when it dies.

    It starts with the first task, or earlier with ``start``: importing Triton takes a second. ``executable`` is its
    Python, see ``use``. ``cache`` is a folder for Triton's compiler, such as the program's, where the launchers are; by
    default it is temporary.
    """

    def __init__(self, executable: str = "", cache: Path | None = None) -> None:
        super().__init__(_MODULE)
        self.use(executable)
        self._cache = cache or self.folder / "cache"
        self._done = 0

    def use(self, executable: str) -> None:
        """Run with the Python of a program that the user has just run, ours if it is empty or absent.

        A Python in the record of another capture may be a stranger's. A worker that runs with another Python ends.
        """
        python = executable if os.path.isabs(executable) and shutil.which(executable) else sys.executable
        # Links in the same folder find the same packages.
        now, wanted = ((os.path.dirname(path), os.path.realpath(path)) for path in (self.python, python))
        if now != wanted:
            self.stop()
            self.python = python

    def environment(self) -> Mapping[str, str]:
        """Return an environment with Triton's caches in the folder."""
        return process_environment(dict(os.environ), self._cache)

    def stop(self, after_s: float = 0.0) -> int:
        """Kill the process; the next task gets a fresh one."""
        self._done = 0
        return super().stop(after_s)

    def begin_task(self, task: Task, time_limit_s: float) -> None:
        """Begin with a task."""
        self._task, self._limit_s, self._tries = task, time_limit_s, 0
        self.begin(task, time_limit_s)

    def result(self) -> TaskResult | None:
        """Wait for the task's result, which is a refusal if it ended the process; None if a fresh one does it again."""
        is_fresh = not self._done
        try:
            result: TaskResult = self.answer()
            self._done += 1
        except ProcessOverdueError:
            return TaskResult(refusal=f"it took longer than {self._limit_s:.0f} s")
        except ProcessDiedError as error:
            how = ": ".join([error.how, *error.lines[-1:]])
            result = TaskResult(refusal=f"the process that repeated it ended with {how}")
            is_given_up = is_fresh
        else:
            if result.is_last:
                self.stop()
            if result.refusal != ADDRESS_TAKEN:
                return result
            self.stop()
            self._tries += is_fresh
            is_given_up = self._tries == _MAX_TRIES
        if is_given_up:
            return result
        # What was done before may have spoilt this task.
        self.begin(self._task, self.until_s - time.monotonic())
        return None

    def do(self, task: Task, time_limit_s: float) -> TaskResult:
        """Return the result of a task."""
        self.begin_task(task, time_limit_s)
        while (result := self.result()) is None:
            pass
        return result

    def do_all(self, tasks: Sequence[Task]) -> list[TaskResult]:
        """Return the result of each task, which is a refusal if its process ended."""
        # Experiments take as long as the user lets them.
        return [self.do(task, _MAX_TASK_SECONDS + getattr(task, "seconds", 0.0)) for task in tasks]


@contextmanager
def worker_process(executable: str = "", cache: Path | None = None) -> Iterator[WorkerProcess]:
    """Lend a worker, which ends with the context, and with us by SIGTERM and SIGHUP; see ``WorkerProcess``."""
    with leaving_by_exception(), WorkerProcess(executable, cache) as worker:
        yield worker


@contextmanager
def leaving_by_exception() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which would kill us at once, leave all contexts, which end their processes."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if is_main and signal.getsignal(one) == signal.SIG_DFL]
    with handling(dict.fromkeys(numbers, leave)):
        yield

"""Run jobs in forked processes, so that several processor cores work on them.

A fork has everything that its parent had, so a job may be any function; its results are pickled.
``concurrent.futures`` would not do: it pickles the jobs too, keeps all results until they are taken, and gives up when
a worker is killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kprof_inject.errors import KprofError

if TYPE_CHECKING:  # every command imports this module, and few of them fork
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

T = TypeVar("T")

Job = Callable[[], Iterable[T]]
"""A function that returns some values, and the same values if it is called again."""


class JobRunner(Protocol):
    """A function that runs independent jobs and yields their values in the order of the jobs."""

    def __call__(self, jobs: Sequence[Job[T]], /) -> Iterator[T]:
        """Run the jobs."""
        ...


def in_turn(jobs: Sequence[Job[T]]) -> Iterator[T]:
    """Run jobs one after the other in this process."""
    return chain.from_iterable(job() for job in jobs)


def forked(count: int) -> JobRunner:
    """Return a runner with ``count`` forks of this process, 64 at most.

    The results of at most ``count + 1`` jobs are in memory. If ``count`` is less than 2 or nothing can be forked
    (outside Linux, or in a daemon of ``multiprocessing``), the runner is ``in_turn``. This process runs the jobs of a
    fork that failed or was killed itself, so an error of a job is raised here.
    """
    if count < 2 or sys.platform != "linux" or _is_daemon():
        return in_turn
    return partial(_forked, min(count, _MAX_FORKS))


def _is_daemon() -> bool:
    multiprocessing = sys.modules.get("multiprocessing.process")  # each of its processes has imported it
    return multiprocessing is not None and multiprocessing.current_process().daemon


def usable_cores() -> int:
    """Return the number of cores that this process may use; in a container, limited by its share of processor time."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return max(1, min(len(os.sched_getaffinity(0)), _cores_of_container(_CONTAINER_QUOTA)))


def _cores_of_container(quota: Path) -> int:
    """Return the number of cores by the file with allowed microseconds ("max" or a number) and their period.

    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, "cpu.max".
    """
    try:
        allowed, period = quota.read_text().split()
        return sys.maxsize if allowed == "max" else int(allowed) // int(period)
    except (OSError, ValueError):
        return sys.maxsize


def _forked(count: int, jobs: Sequence[Job[T]]) -> Iterator[T]:
    if len(jobs) < 2:
        # There is no other job to run meanwhile.
        yield from in_turn(jobs)
        return
    try:
        # An import needs files, of which the forks may leave none.
        from multiprocessing import connection, reduction  # noqa: F401
    except (ImportError, OSError):
        yield from in_turn(jobs)
        return
    forks = _Forks(jobs, min(count, len(jobs)))
    try:
        forks.start()
        for number in range(len(jobs)):
            yield from forks.results_of(number)
    finally:
        forks.end()


# Each fork takes a few files of this process, which may have no more than a thousand.
_MAX_FORKS = 64

_CONTAINER_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of a job, pickled one after another in a file that only exists in memory."""

    lengths: list[int]
    descriptor: int

    def load(self) -> Iterator[Any]:
        """Yield the results, once: then the file is closed."""
        with open(self.descriptor, "rb") as file:
            for length in self.lengths:
                yield pickle.loads(file.read(length))


class _Forks(Generic[T]):
    """Forks, each with a connection through which it gets a job's number and sends its results."""

    def __init__(self, jobs: Sequence[Job[T]], count: int) -> None:
        """Prepare to run the jobs in ``count`` forks."""
        self._jobs = jobs
        self._count = count
        self._processes: list[BaseProcess] = []
        # The job that each living fork works on, if any.
        self._job_of: dict[Connection, int | None] = {}
        self._done: dict[int, _Results] = {}
        # Only this process can write to this pipe, so its readers see its end when this process ends.
        self._lifeline: tuple[int, ...] = ()
        # The next job to assign, and the first job that waits until the results of an earlier one are taken.
        self._next_job, self._first_waiting = 0, count + 1

    def start(self) -> None:
        """Start the forks. Call ``end`` afterwards, whatever happens."""
        with suppress(OSError):  # if no more files can be opened, nothing is forked
            self._lifeline = os.pipe()
        while self._lifeline and len(self._job_of) < self._count and self._fork():
            self._assign()

    def results_of(self, number: int) -> Iterator[T]:
        """Yield the results of a job; call this for the jobs in their order."""
        from multiprocessing.connection import wait

        while number in self._job_of.values():
            working = [fork for fork, job in self._job_of.items() if job is not None]
            ready = wait(working)
            for fork in working:
                if fork in ready:
                    self._receive(fork)
            self._assign()
        if number in self._done:
            yield from self._done.pop(number).load()
        else:
            self._next_job = max(self._next_job, number + 1)
            yield from self._jobs[number]()
        self._first_waiting += 1
        self._assign()

    def end(self) -> None:
        """Kill the forks and close all files."""
        for fork in self._job_of:
            fork.close()
        for process in self._processes:
            process.kill()
            process.join()
            # A program that ignores SIGCHLD never learns that a process has ended.
            with suppress(ValueError):
                process.close()
        for results in self._done.values():
            os.close(results.descriptor)
        for end in self._lifeline:
            os.close(end)

    def _fork(self) -> bool:
        """Start a fork; return False if there are no more processes or files."""
        from multiprocessing import get_context

        context = get_context("fork")
        try:
            own_end, fork_end = context.Pipe()
        except OSError:
            return False
        process = context.Process(target=self._work, args=(fork_end, [own_end, *self._job_of]), daemon=True)
        with fork_end, warnings.catch_warnings(), _uninterrupted():
            # From Python 3.12 on, this warns about any thread, even numpy's, which handle forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                process.start()
            except OSError:
                own_end.close()
                return False
            self._processes.append(process)
            self._job_of[own_end] = None
        return True

    def _work(self, parent: Connection, inherited: Sequence[Connection]) -> None:
        """Run jobs in a fork until the parent has no more."""
        from multiprocessing.reduction import send_handle

        # Ctrl-C reaches all processes of a terminal, but the parent ends its forks itself.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(self._lifeline[1])
        threading.Thread(target=_exit_with_parent, args=(self._lifeline[0],), daemon=True).start()
        for connection in inherited:
            connection.close()
        try:
            while True:
                job = self._jobs[parent.recv()]
                with _file_in_memory() as file:
                    parent.send([file.write(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in job()])
                    # The parent shares the offset, and reads from here.
                    file.seek(0)
                    send_handle(parent, file.fileno(), None)
        except (KprofError, EOFError, OSError, MemoryError):
            pass  # the parent finds out, too, unless there just are no more jobs

    def _assign(self) -> None:
        """Give the next jobs to the forks that have none."""
        free = [fork for fork, job in self._job_of.items() if job is None]
        for fork in free[: max(0, min(self._first_waiting, len(self._jobs)) - self._next_job)]:
            self._job_of[fork] = self._next_job
            self._next_job += 1
            try:
                fork.send(self._job_of[fork])
            except OSError:
                self._forget(fork)

    def _receive(self, fork: Connection) -> None:
        from multiprocessing.reduction import recv_handle

        try:
            results = _Results(fork.recv(), recv_handle(fork))
        except (EOFError, OSError, RuntimeError):  # the last: no more files
            self._forget(fork)
        else:
            job, self._job_of[fork] = self._job_of[fork], None
            if job is not None:
                self._done[job] = results

    def _forget(self, fork: Connection) -> None:
        del self._job_of[fork]
        fork.close()


def _exit_with_parent(lifeline: int) -> None:
    """End this process when its parent has ended, for whatever reason and even during a job."""
    while os.read(lifeline, 1):
        pass
    os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block; a fork made in it also delays it, until it ignores it."""
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)


def _file_in_memory() -> IO[bytes]:
    # Pythons built for an old Linux lack this; then the file is on disk.
    return open(os.memfd_create("kprof-inject"), "w+b") if hasattr(os, "memfd_create") else TemporaryFile()

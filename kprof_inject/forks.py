"""Jobs in forked processes, so that several processor cores work on them.

A fork has all that its parent had, so a job may be any function; what comes back is pickled.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Generic, Protocol, TypeVar

from kprof_inject.errors import KprofError

T = TypeVar("T")

Job = Callable[[], Iterable[T]]
"""Gives some values; called again, the same once more."""


class Run(Protocol):
    """Does jobs that need nothing of each other; what they give comes in their order."""

    def __call__(self, jobs: Sequence[Job[T]], /) -> Iterator[T]: ...


def in_turn(jobs: Sequence[Job[T]]) -> Iterator[T]:
    """Do them one after the other, in this process."""
    return chain.from_iterable(job() for job in jobs)


def forked(count: int) -> Run:
    """Do them in ``count`` forks of this process. What ``count + 1`` jobs give is in memory at a time. Where nothing
    can be forked (Linux alone), or ``count`` is less than 2, it is ``in_turn``.

    The jobs of a fork that failed, or was killed, are done here: what one raises is raised here."""
    if count < 2 or sys.platform != "linux":
        return in_turn
    return partial(_forked, count)


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _forked(count: int, jobs: Sequence[Job[T]]) -> Iterator[T]:
    forks = _Forks(jobs, min(count, len(jobs)))
    try:
        for number in range(len(jobs)):
            yield from forks.given(number)
    finally:
        forks.end()


@dataclass(frozen=True, slots=True)
class _Values:
    """What a job gave, pickled one behind the other: the lengths, in a file that is in memory alone."""

    lengths: list[int]
    file: int

    def load(self) -> Iterator[Any]:
        """Once: then the file is closed."""
        with open(self.file, "rb") as file:
            for length in self.lengths:
                yield pickle.loads(file.read(length))


class _Forks(Generic[T]):
    """Forks, each with a connection: by it a fork is told a job's number, and tells of the values, in turns."""

    def __init__(self, jobs: Sequence[Job[T]], count: int) -> None:
        self._jobs = jobs
        self._processes: list[BaseProcess] = []
        # The job that each living fork has, if any.
        self._has: dict[Connection, int | None] = {}
        self._done: dict[int, _Values] = {}
        # The first job that no fork has had, and the first that has to wait for those before it to be taken.
        self._next, self._stop = 0, count + 1
        while len(self._has) < count and self._fork():
            self._assign()

    def given(self, number: int) -> Iterator[T]:
        """What a job gave; the next one is to be asked for next."""
        while number in self._has.values():
            working = [fork for fork, job in self._has.items() if job is not None]
            heard = wait(working)
            for fork in working:
                if fork in heard:
                    self._hear(fork)
            self._assign()
        if number in self._done:
            yield from self._done.pop(number).load()
        else:
            self._next = max(self._next, number + 1)
            yield from self._jobs[number]()
        self._stop += 1
        self._assign()

    def end(self) -> None:
        for fork in self._has:
            fork.close()
        for process in self._processes:
            process.terminate()
            process.join()
            process.close()
        for values in self._done.values():
            os.close(values.file)

    def _fork(self) -> bool:
        """False if there may be no more processes."""
        ours, theirs = get_context("fork").Pipe()
        process = get_context("fork").Process(target=self._do, args=(theirs, [ours, *self._has]), daemon=True)
        with theirs, warnings.catch_warnings():
            # From Python 3.12 on, of any thread there is: numpy's linear algebra has some, which know of forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                process.start()
            except OSError:
                ours.close()
                return False
        self._processes.append(process)
        self._has[ours] = None
        return True

    def _do(self, parent: Connection, not_ours: Sequence[Connection]) -> None:
        """A fork's life."""
        # Ctrl-C reaches all processes of a terminal: the parent ends its forks.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for connection in not_ours:
            connection.close()
        try:
            while True:
                job = self._jobs[parent.recv()]
                with open(os.memfd_create("kprof-inject"), "wb") as file:
                    parent.send([file.write(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in job()])
                    # This is where the parent begins to read, too.
                    file.seek(0)
                    send_handle(parent, file.fileno(), None)
        except (KprofError, EOFError, OSError):
            pass  # the parent comes upon it too, unless it is that there is nothing more to do

    def _assign(self) -> None:
        """Give the next jobs to those who have none."""
        free = [fork for fork, job in self._has.items() if job is None]
        for fork in free[: max(0, min(self._stop, len(self._jobs)) - self._next)]:
            self._has[fork] = self._next
            self._next += 1
            try:
                fork.send(self._has[fork])
            except OSError:
                self._forget(fork)

    def _hear(self, fork: Connection) -> None:
        """Take what a fork has done, or that it is no more."""
        try:
            values = _Values(fork.recv(), recv_handle(fork))
        except (EOFError, OSError):
            self._forget(fork)
        else:
            job, self._has[fork] = self._has[fork], None
            if job is not None:
                self._done[job] = values

    def _forget(self, fork: Connection) -> None:
        del self._has[fork]
        fork.close()

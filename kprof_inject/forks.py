"""Run jobs in forked processes, so that several processor cores work on them."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kprof_inject.errors import KprofError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

Job = Callable[[], Iterable[T]]

JobRunner = Callable[[Sequence[Job[Any]]], Iterator[Any]]
"""A function that runs independent jobs and yields their values in the order of the jobs."""


def in_turn(jobs: Sequence[Job[T]]) -> Iterator[T]:
    """Run jobs one after the other in this process."""
    return chain.from_iterable(job() for job in jobs)


def forked(count: int, max_at_once: int = 1) -> JobRunner:
    """Return a runner with ``count`` forks of this process; ``in_turn`` for fewer than 2, and outside Linux.

    A fork gets at most ``max_at_once`` jobs together. The results of at most ``count + 1`` times as many are in memory.
    """
    return partial(_forked, count, max_at_once) if count > 1 and sys.platform == "linux" else in_turn


def usable_cores() -> int:
    """Return the number of cores that this process may use; in a container, limited by its share of processor time."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return max(1, min(len(os.sched_getaffinity(0)), _cores_of_container(_CONTAINER_QUOTA)))


_CONTAINER_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def _cores_of_container(quota: Path) -> int:
    # Allowed microseconds and their period: https://docs.kernel.org/admin-guide/cgroup-v2.html, "cpu.max".
    try:
        allowed, period = quota.read_text().split()
        return sys.maxsize if allowed == "max" else int(allowed) // int(period)
    except (OSError, ValueError):
        return sys.maxsize


_jobs: Sequence[Job[Any]] = ()  # the jobs in a fork, which inherits them: they need not be picklable

_MIN_BATCHES = 4  # batches for each fork: with fewer, forks would wait for the last one


def _forked(count: int, max_at_once: int, jobs: Sequence[Job[T]]) -> Iterator[T]:
    # Every command imports this module, and few of them fork.
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
    from multiprocessing import current_process, get_context

    if len(jobs) < 2 or current_process().daemon:
        yield from in_turn(jobs)
        return
    at_once = max(1, min(max_at_once, len(jobs) // (_MIN_BATCHES * count)))
    batches = [slice(first, first + at_once) for first in range(0, len(jobs), at_once)]
    results: deque[Future[list[T]]] = deque()
    try:
        with ProcessPoolExecutor(min(count, len(jobs)), get_context("fork"), _begin, (jobs,)) as pool:
            for number in range(len(batches) + count):
                if number < len(batches):
                    with warnings.catch_warnings():
                        # From Python 3.12 on, this warns about any thread, even numpy's, which handle forks.
                        warnings.simplefilter("ignore", DeprecationWarning)
                        results.append(pool.submit(_values, batches[number]))
                if number >= count:
                    yield from results.popleft().result()
    except BrokenProcessPool:
        raise KprofError("a process that read launches was killed", hint="free some memory, and try again") from None


def _begin(jobs: Sequence[Job[Any]]) -> None:
    import threading
    from multiprocessing import parent_process

    def end_with_parent() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    global _jobs
    _jobs = jobs
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its forks
    threading.Thread(target=end_with_parent, daemon=True).start()


def _values(batch: slice) -> list[Any]:
    return list(in_turn(_jobs[batch]))

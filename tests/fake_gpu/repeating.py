"""Repeats saved launches as a process of ours does, but in the process of a test, and on a fake GPU of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fake_gpu.device import FakeDevice
from fake_gpu.driver import install
from fake_gpu.gpu import FakeGpu
from fake_gpu.kernels import HOST_KERNELS
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.runtime.worker import worker
from kprof_inject.runtime.worker.loaded_launch import loaded_launch
from kprof_inject.runtime.worker.paired_launches import Watchdog
from kprof_inject.runtime.worker.tasks import ADDRESS_TAKEN, Task, TaskResult, TimeEdit


class Unwatched(Watchdog):
    """Never kills the process, which is the test's."""

    def watch(self, event: object, seconds: float, what: str) -> None:
        pass


@dataclass(frozen=True)
class WorkerHere:
    """What a process of ours does, in this one. ``gpu`` is its device."""

    gpu: FakeGpu

    def do(self, *tasks: Task) -> list[TaskResult]:
        """Return the results of tasks, up to one after which nothing works any more."""
        process, results = worker.Worker(), list[TaskResult]()
        for task in tasks:
            results.append(process.do(task))
            if results[-1].is_last or results[-1].refusal == ADDRESS_TAKEN:
                break
        process.forget_edited()
        return results

    def time(self, launch: Path) -> TaskResult:
        """Repeat a saved launch; a refusal is empty if that was possible."""
        (result,) = self.do(timed(launch))
        return result

    def differences(self, launch: Path) -> list[int]:
        """Repeat a saved launch; return the addresses of memory whose contents then differ from the program's."""
        device, saved = FakeDevice(self.gpu), read_saved_launch(launch)
        with loaded_launch(device, saved) as loaded:
            loaded.launch(worker.clean_kernel(saved))
            digests = loaded.digest()
        assert digests is not None
        return [
            memory.address
            for memory, digest in zip(saved.record.memory, digests, strict=True)
            if memory.after is None or int(memory.after, 16) != digest
        ]


def timed(launch: Path | str) -> TimeEdit:
    """Return the task to time a saved launch, without any edit."""
    return TimeEdit(launch=str(launch), seconds=0.0)


@contextmanager
def worker_here() -> Iterator[WorkerHere]:
    """Do the tasks of processes of ours in this one. No watchdog kills it."""
    gpu = FakeGpu()
    gpu.host_kernels = HOST_KERNELS
    uninstall = install(gpu)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker, "worker_device", lambda name, uuid: FakeDevice(gpu))
            patch.setattr(worker, "Watchdog", Unwatched)
            yield WorkerHere(gpu)
    finally:
        uninstall()

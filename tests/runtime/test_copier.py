"""The thread that saves launches keeps no buffer longer than it must."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kprof_inject.capture.capture_files import LaunchRecord
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.launch.copier import BufferCopier
from kprof_inject.runtime.launch.launch_buffers import RecordedLaunch
from kprof_inject.runtime.process_report import ProcessReport

BUILD: Any = SimpleNamespace(
    variant="v",
    record=SimpleNamespace(layout="timed", program_variant="v"),
    ttgir="",
    sources={},
)


def recorded_launch(index: int) -> RecordedLaunch:
    record = LaunchRecord(
        variant="v",
        index=index,
        grid=(1, 1, 1),
        device=0,
        stream=0,
        host_ns=time.time_ns(),
        buffer_bytes=128,
        file="",
    )
    return RecordedLaunch(BUILD, True, record)


class Memory:
    """A buffer of the device."""

    def data_ptr(self) -> int:
        return 0


class Setup:
    """A copier that keeps the newest launch, with a device whose copies wait until ``fetched`` is set."""

    def __init__(self, folder: Path) -> None:
        self.written: list[int] = []
        self.fetching, self.fetched = threading.Event(), threading.Event()
        self.left_out: Counter[str] = Counter()
        self.errors: list[Exception] = []
        device: Any = SimpleNamespace(fetch=self.fetch, read_clock=lambda device: None)
        writer: Any = SimpleNamespace(
            add_kernel=lambda *_: None, add_launch=self.add_launch, drop_launch=lambda name: None
        )
        self.copier = BufferCopier(
            device, writer, ProcessReport(str(folder)), self.left_out, 1 << 20, True, lambda saved: None
        )

    def fetch(self, memory: Memory, size_bytes: int, device: int, done: Any) -> memoryview:
        self.fetching.set()
        self.fetched.wait()
        if self.errors:
            raise self.errors.pop()
        return memoryview(bytes(size_bytes))

    def add_launch(self, launch: Any, data: memoryview) -> str:
        self.written.append(launch.index)
        return f"launch-{launch.index}.bin"

    def put(self, index: int) -> weakref.ref[Memory]:
        launch = recorded_launch(index)
        launch.memory = Memory()
        self.copier.put(launch)
        return weakref.ref(launch.memory)


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path)
    yield made
    made.fetched.set()
    assert made.copier.close(lambda: None, 10)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_launch_that_is_saved_frees_its_buffer(setup: Setup) -> None:
    setup.fetched.set()
    memory = setup.put(0)
    wait_for(lambda: memory() is None)
    assert setup.written == [0]


def test_a_launch_that_could_not_be_copied_may_be_put_again(setup: Setup) -> None:
    """As the last launch of a process is, at its end."""
    setup.errors.append(NoDeviceMemory("none"))
    setup.fetched.set()
    launch = recorded_launch(0)
    launch.memory = Memory()
    setup.copier.put(launch)
    wait_for(lambda: bool(setup.left_out))
    setup.copier.put(launch)
    wait_for(lambda: setup.written == [0])
    assert setup.left_out == {"the host has no memory to copy them to": 1}

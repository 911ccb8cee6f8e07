"""Ctrl-C or a time-out in the midst of a launch, at every line of ours."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from fake_gpu.captured import ends_of, left_out, numbers_in
from fake_gpu.device import FakeDevice
from fake_gpu.driver import install
from fake_gpu.gpu import FakeGpu
from fake_gpu.kernels import HOST_KERNELS, scale
from fake_runs import EIGHT_KIB, FakeRuns
from triton import knobs

from kprof_inject.capture.recording import Recording
from kprof_inject.runtime.compiling.compiler import wrap_compiler
from kprof_inject.runtime.compiling.triton_caches import fresh_jit_caches
from kprof_inject.runtime.launch.launcher import CapturingLauncher
from kprof_inject.runtime.plans import WorkspacePlans
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.step import LiveCapture, Step, _install_once

X = torch.arange(1, 17, dtype=torch.float32)
LAUNCH_BYTES = 16 * (8192 + 128)
AT_ONCE_S = 2.0
TRACED = ("kprof_inject/runtime/launch/", "kprof_inject/runtime/worker/")
FIRST, CUT, THREAD = 1, 2, 3


class Interrupted(BaseException):
    """What a handler of the program's raises."""


@dataclass
class Captures:
    """One launcher, and captures of its launches one after the other."""

    gpu: FakeGpu
    capture: LiveCapture
    launcher: CapturingLauncher
    path: str

    def launch(self, n: int) -> None:
        if self.path == "graph":
            with self.gpu.captured() as graph:
                scale[(16,)](X, torch.zeros(16), n)
            graph.replay()
        else:
            scale[(16,)](X, torch.zeros(16), n)

    def take(self) -> Path:
        begun = time.monotonic()
        folder = self.capture.take()
        assert time.monotonic() - begun < AT_ONCE_S
        return folder

    def prepare(self) -> None:
        """Have the next launch go the whole way of its path."""
        self.launcher._of_grid, self.launcher._given_up = {}, False
        self.launcher._max_bytes = 1 << 30


@contextmanager
def captures(runs: FakeRuns, path: str) -> Iterator[Captures]:
    gpu = FakeGpu()
    gpu.host_kernels = HOST_KERNELS
    if path == "smaller":
        gpu.largest_block_bytes = LAUNCH_BYTES - 1
    launches = "all" if path in ("all", "smaller") else "last"
    folder = runs.folder / path
    session = Session("run", str(runs.workspace), str(folder), Recording(launches=launches, mode=EIGHT_KIB))
    report, device = ProcessReport(session.reports), FakeDevice(gpu)
    uninstall = install(gpu)
    capture = LiveCapture(session, report, device)
    _install_once()
    unwrap = wrap_compiler(
        Step(session, report, WorkspacePlans(session, report).plan_of, device, capture.current).compile
    )
    try:
        with fresh_jit_caches(), knobs.cache.scope():
            knobs.cache.dir = str(runs.workspace / "cache" / "here")
            kernel: Any = scale[(16,)](X, torch.zeros(16), FIRST)
            found = Captures(gpu, capture, kernel.run, path)
            found.take()
            yield found
    finally:
        unwrap()
        uninstall()


def interrupted(number: int, launch: Callable[[], None]) -> bool:
    """Make a launch, and raise when it comes to a line of ours that is new to it, counted from 0; false if it has not
    so many."""
    lines: set[tuple[str, int]] = set()

    def of_frame(frame: FrameType, event: str, _: Any) -> Any:
        line = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line not in lines:
            lines.add(line)
            if len(lines) == number + 1:
                raise Interrupted
        return of_frame

    def of_call(frame: FrameType, event: str, _: Any) -> Any:
        # Waiting for the other thread, and the fake device, are no lines of the launch path.
        return of_frame if any(part in frame.f_code.co_filename for part in TRACED) else None

    before = sys.gettrace()
    sys.settrace(of_call)
    try:
        launch()
    except Interrupted:
        pass
    finally:
        sys.settrace(before)
    return len(lines) > number


def every_line(made: Captures) -> Iterator[int]:
    """Each line of the path in turn, at which a launch is cut off; another has been made before, and all is to be
    looked at after it."""
    for number in range(1000):
        made.prepare()
        made.launch(FIRST)
        made.prepare()
        if not interrupted(number, lambda: made.launch(CUT)):
            assert number > 20, "the launch path was not traced"
            made.take()
            return
        yield number
    raise AssertionError("no end of lines")


@pytest.mark.parametrize("path", ["last", "all", "graph", "smaller"])
def test_after_an_exception_another_thread_launches_at_once_and_nothing_is_lost(fake_runs: FakeRuns, path: str) -> None:
    with captures(fake_runs, path) as made:
        for line in every_line(made):
            thread = threading.Thread(target=made.launch, args=(THREAD,), daemon=True)
            thread.start()
            thread.join(AT_ONCE_S)
            assert not thread.is_alive(), f"line {line}: the other thread waits"
            assert_all_is_told(made.take(), path, line)


def assert_all_is_told(folder: Path, path: str, line: int) -> None:
    """Launches that were made are saved; the one that was cut off may be saved."""
    numbers = Counter(n for _, n in numbers_in(folder))
    (end,) = ends_of(folder)
    assert left_out(folder) == {}, line
    (launches,) = end["launches"].values()
    assert launches in (2, 3), line
    if path in ("all", "smaller"):
        assert numbers - Counter([CUT]) == Counter([FIRST, THREAD]), line
    else:
        # What was launched later by another thread is the last, whatever was cut off before.
        assert numbers in ({THREAD: 1}, {CUT: 1}), line

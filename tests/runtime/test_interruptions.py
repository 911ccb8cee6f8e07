"""Ctrl-C, a time-out, a handler that launches or ends the process, in the midst of a launch: at every line of ours."""

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

from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.compiling.compiler import fresh_jit_caches, wrap_compiler
from kprof_inject.runtime.compiling.planned_kernel import RunStep
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launcher import CapturingLauncher
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.run_step import LiveCapture, WorkspacePlans, _install_once
from kprof_inject.runtime.session import Session

X = torch.arange(1, 17, dtype=torch.float32)
LAUNCH_BYTES = 16 * (8192 + 128)
INTERRUPTED = "interrupted while they were launched"
AT_ONCE_S = 2.0
TRACED = ("kprof_inject/runtime/launch/", "kprof_inject/runtime/experiments/")
FIRST, CUT, THREAD, HANDLER = 1, 2, 3, 4


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
    session = Session("run", str(runs.workspace), str(folder), launches=launches, mode=EIGHT_KIB)
    report, device = ProcessReport(session.reports), FakeDevice(gpu)
    uninstall = install(gpu)
    capture = LiveCapture(session, report, device)
    _install_once()
    unwrap = wrap_compiler(RunStep(session, report, device, capture, WorkspacePlans(session, report)).compile)
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


def at_line(number: int, act: Callable[[], None], launch: Callable[[], None]) -> bool:
    """Make a launch, and act when it comes to a line of ours that is new to it, counted from 0; false if it has not so
    many."""
    lines: set[tuple[str, int]] = set()
    acted = False

    def of_frame(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal acted
        line = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line not in lines:
            lines.add(line)
            if len(lines) == number + 1 and not acted:
                acted = True
                act()
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
    return acted


def interrupt() -> None:
    raise Interrupted


def every_line(made: Captures, act: Callable[[Captures], None]) -> Iterator[int]:
    """Each line of the path in turn, at which a handler acts; a launch has been made before, and all is to be looked at
    after it."""
    for number in range(1000):
        made.prepare()
        made.launch(FIRST)
        made.prepare()
        if not at_line(number, lambda: act(made), lambda: made.launch(CUT)):
            assert number > 20, "the launch path was not traced"
            made.take()
            return
        yield number
    raise AssertionError("no end of lines")


PATHS = ["last", "all", "graph", "smaller"]


@pytest.mark.parametrize("path", PATHS)
def test_after_an_exception_another_thread_launches_at_once_and_nothing_is_lost(fake_runs: FakeRuns, path: str) -> None:
    with captures(fake_runs, path) as made:
        for line in every_line(made, lambda _: interrupt()):
            thread = threading.Thread(target=made.launch, args=(THREAD,), daemon=True)
            thread.start()
            thread.join(AT_ONCE_S)
            assert not thread.is_alive(), f"line {line}: the other thread waits"
            assert_all_is_told(made.take(), path, line, Counter([FIRST, THREAD]), newest=THREAD)


@pytest.mark.parametrize("path", ["last"])
def test_an_exception_at_the_end_leaves_the_launch_before_it(fake_runs: FakeRuns, path: str) -> None:
    with captures(fake_runs, path) as made:
        for line in every_line(made, lambda _: interrupt()):
            assert_all_is_told(made.take(), path, line, Counter([FIRST]), newest=FIRST)


@pytest.mark.parametrize("path", ["last"])
def test_a_handler_may_launch_in_the_midst_of_a_launch(fake_runs: FakeRuns, path: str) -> None:
    with captures(fake_runs, path) as made:
        for line in every_line(made, lambda found: found.launch(HANDLER) if path != "graph" else None):
            launched = Counter([FIRST, CUT, HANDLER] if path != "graph" else [FIRST, CUT])
            folder = made.take()
            assert left_out(folder) == {}, line
            if path in ("all", "smaller"):
                assert Counter(n for _, n in numbers_in(folder)) == launched, line
            else:
                ((index, n),) = numbers_in(folder)
                assert index == len(launched) - 1 and n in (CUT, HANDLER), line


@pytest.mark.parametrize("path", ["last", "all"])
def test_a_handler_may_end_the_process_in_the_midst_of_a_launch(fake_runs: FakeRuns, path: str) -> None:
    """As ``os._exit`` does: all is saved before the launch goes on."""
    folders: list[Path] = []

    def end(made: Captures) -> None:
        folders.append(made.take())
        raise Interrupted

    with captures(fake_runs, path) as made:
        for line in every_line(made, end):
            assert_all_is_told(folders[-1], path, line, Counter([FIRST]), newest=FIRST)
            made.take()


def test_a_capture_may_end_in_the_midst_of_a_launch_that_goes_on(fake_runs: FakeRuns) -> None:
    """The launch is in the one before or the one after, or said to be in neither."""
    folders: list[Path] = []
    unwanted: list[int] = []
    with captures(fake_runs, "all") as made:
        for line in every_line(made, lambda found: folders.append(found.take())):
            before, after = folders[-1], made.take()
            (launches,) = ends_of(before)[0]["launches"].values()
            numbers = Counter(n for _, n in numbers_in(before))
            assert numbers - Counter([CUT]) == Counter([FIRST]), line
            assert numbers.total() + left_out(before).total() == launches, line
            found = any(after.iterdir())  # one that is empty is given to the next capture
            if launches == 1 and not found:
                unwanted.append(line)
            if found:
                assert (Counter(n for _, n in numbers_in(after)), left_out(after)) == ({CUT: 1}, {}), line
    assert len(unwanted) <= 1, "only where it looks for the capture does it find one that is over"


def test_a_capture_that_ends_when_its_only_launch_was_numbered_leaves_nothing(
    fake_runs: FakeRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = LaunchCapture.count
    folders: list[Path] = []
    with captures(fake_runs, "last") as made:

        def count_and_end(capture: LaunchCapture, variant: str, grid: Grid) -> tuple[int, int | None]:
            monkeypatch.setattr(LaunchCapture, "count", count)
            found = count(capture, variant, grid)
            folders.append(made.take())
            return found

        monkeypatch.setattr(LaunchCapture, "count", count_and_end)
        made.launch(CUT)
        made.launch(THREAD)
        last = made.take()
    assert folders == [last], "it was not given to the next capture"
    assert len(list(last.iterdir())) == 1
    assert numbers_in(last) == [(1, THREAD)]


def assert_all_is_told(folder: Path, path: str, line: int, whole: Counter[int], newest: int) -> None:
    """Launches that were made are saved; the one that was cut off is saved, said to be left out, or was not begun."""
    numbers = Counter(n for _, n in numbers_in(folder))
    (end,) = ends_of(folder)
    told = left_out(folder)
    (launches,) = end["launches"].values()
    assert launches - sum(whole.values()) in (0, 1), line
    if path in ("all", "smaller"):
        assert numbers - Counter([CUT]) == whole, line
        assert sum(numbers.values()) + told.total() == launches, (line, told)
        assert told in ({}, {INTERRUPTED: 1}), line
    elif newest in numbers:
        assert numbers.total() == 1, line
        # What was launched later by another thread is the last, whatever was cut off before.
        expected = launches > sum(whole.values()) and newest == FIRST
        assert told == ({INTERRUPTED: 1} if expected else {}), line
    else:
        assert (numbers, told) == ({CUT: 1}, {}), line

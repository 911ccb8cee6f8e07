"""Stands where Triton keeps a kernel's launcher, and gives each launch the buffer that its records go to."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from triton.compiler.compiler import CompiledKernel

from kprof_inject.runtime.devices.device import NoDeviceMemory
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.launch import profile_allocator
from kprof_inject.runtime.launch.arguments import NOT_THE_KERNELS
from kprof_inject.runtime.launch.autotuning import is_benchmarking
from kprof_inject.runtime.launch.launch_buffers import Destination, Grid, RecordingBuild
from kprof_inject.runtime.launch.profile_allocator import launching
from kprof_inject.runtime.launch.timing import LaunchTimer, has_exit_hook
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.replay.replayed_kernels import KernelReplays
from kprof_inject.runtime.stack_room import COMPILING, FRAMES_OF_COMPILER, FRAMES_OF_LAUNCHER

Load = Callable[[], None]

_lock = threading.RLock()  # a forked child has one of its own
_around: WeakKeyDictionary[Any, Callable[[Any, Load], None]] = WeakKeyDictionary()


def wrap_loading() -> None:
    """Stand where Triton loads a compiled kernel onto the device, which it does at the kernel's first launch. Called
    once, right after Triton was imported.

    We stand in the class, not in the object: Inductor pickles kernels with all that they hold."""
    original = CompiledKernel._init_handles

    @functools.wraps(original)
    def load(kernel: Any) -> None:
        if kernel not in _around:
            original(kernel)
            return
        # Another thread may launch the kernel meanwhile: it asks for this too, and waits until all is in place.
        with _lock:
            around = _around.get(kernel)
            if around is None:
                return
            with COMPILING:
                around(kernel, functools.partial(original, kernel))
            _around.pop(kernel, None)

    CompiledKernel._init_handles = load


def _begin_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_begin_in_child)


def around_load(kernel: Any, call: Callable[[Any, Load], None]) -> None:
    """Have ``call(kernel, load)`` called instead of ``load()`` when this kernel is loaded. ``call`` must not hold the
    kernel: one that is never launched goes when the program drops it."""
    _around[kernel] = call


class Builds(Protocol):
    """The other builds of a kernel, made when they are needed."""

    def clean(self) -> Any:
        """The kernel without records, loaded."""

    def with_smaller_buffer(self, ctas: int, most_bytes: int) -> RecordingBuild | None:
        """One whose buffer for so many CTAs takes at most so many bytes; None if none is large enough to be of use."""

    def give_up(self, reason: str) -> None:
        """Report that launches go without records from now on."""


class LaunchSink(Protocol):
    """Where launches write to."""

    def number(self, build: RecordingBuild) -> int | None:
        """The number of the launch that is to be made; None if launches are not wanted now."""

    def pass_over(self, build: RecordingBuild, number: int) -> None:
        """That launch is made without records, or not at all."""

    def begin(
        self, build: RecordingBuild, number: int, grid: Grid, stream: int, arguments: Sequence[Any]
    ) -> Destination:
        """The destination for that launch, whose kernel has these arguments. Raises ``NoDeviceMemory``; it may then be
        asked again for another build."""

    def timer(self, build: RecordingBuild) -> LaunchTimer: ...

    @property
    def replays(self) -> KernelReplays: ...


class CapturingLauncher:
    """Passes every launch on: with a buffer, or to the clean build if there is none to be had or an autotuner is
    comparing. A failure of ours never reaches the program; one of the launch does."""

    def __init__(self, build: RecordingBuild, builds: Builds, capture: LaunchSink, most_bytes: int) -> None:
        self._first = build
        self._build = build
        self._builds = builds
        self._capture = capture
        self._most_bytes = most_bytes
        self._given_up = False

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        grid = (grid_x, grid_y, grid_z)
        try:
            return self._pass_on(grid, stream, function, metadata, *args)
        except RecursionError:
            # Without a hook behind it, a launch that was made raises no such error.
            if has_exit_hook(*args):
                raise
        # In this frame: another one could not set the limit back.
        limit = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(limit + FRAMES_OF_COMPILER)
            clean = self._builds.clean()
            sys.setrecursionlimit(limit + FRAMES_OF_LAUNCHER)
            return clean.run(*grid, stream, clean.function, clean.packed_metadata, *args)
        finally:
            sys.setrecursionlimit(limit)

    def _pass_on(self, grid: Grid, stream: int, function: Any, metadata: Any, *args: Any) -> Any:
        profile_allocator.install()
        if not grid[0] * grid[1] * grid[2]:
            return self._first.launch(*grid, stream, function, metadata, *args)
        chosen = None if self._given_up or is_benchmarking() else self._choose(grid, stream, args)
        if chosen is None:
            return self._launch_clean(grid, stream, *args)
        build, destination, number = chosen
        replays = self._capture.replays
        if replays.is_due(build, number):
            replays.measure(build, self._builds.clean, grid, stream, args)
        if build is not self._first:
            function, metadata = build.function, build.packed_metadata
        # A signal handler of the program's may launch in the middle of this.
        outer = launching.buffer
        try:
            launching.buffer = destination.buffer
            timer = self._capture.timer(build)
            start = None if timer.is_done else timer.begin(stream)
            result = build.launch(*grid, stream, function, metadata, *args)
        except RecursionError:
            destination.failed()
            self._capture.pass_over(build, number)
            raise
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            destination.failed()
            self._capture.pass_over(build, number)
            # If it fails without records too, that is what the program is to see.
            result = self._launch_clean(grid, stream, *args)
            self._give_up(f"its launch fails with records: {first_line(error)}")
            return result
        finally:
            launching.buffer = outer
        try:
            if start is not None:
                timer.end(start, stream)
            destination.launched()
        except RecursionError:
            pass  # made, and lost to the capture, which counts it
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            self._give_up(fault_of(error))
        return result

    def _launch_clean(self, grid: tuple[int, int, int], stream: int, *args: Any) -> Any:
        clean = self._builds.clean()
        return clean.run(*grid, stream, clean.function, clean.packed_metadata, *args)

    def _choose(self, grid: Grid, stream: int, args: Sequence[Any]) -> tuple[RecordingBuild, Destination, int] | None:
        """The build, the destination and the number of the launch; None if it is to go without records. ``args`` are
        all that a launcher takes behind the metadata."""
        number = self._capture.number(self._first)
        if number is None:
            return None
        try:
            return *self._begin(grid, stream, number, args[NOT_THE_KERNELS:]), number
        except RecursionError:
            self._capture.pass_over(self._first, number)
            raise
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            self._capture.pass_over(self._first, number)
            self._give_up(_reason_of(error))
            return None

    def _begin(
        self, grid: Grid, stream: int, number: int, arguments: Sequence[Any]
    ) -> tuple[RecordingBuild, Destination]:
        """Raises ``_NoRoom`` if no build is small enough, and what fails."""
        ctas = grid[0] * grid[1] * grid[2]
        while True:
            build = self._build  # another thread may choose a smaller one meanwhile
            size_bytes = ctas * build.cta_bytes
            if size_bytes <= self._most_bytes:
                try:
                    return build, self._capture.begin(build, number, grid, stream, arguments)
                except NoDeviceMemory:
                    self._most_bytes = size_bytes // 2
            smaller = self._builds.with_smaller_buffer(ctas, self._most_bytes)
            if smaller is None or smaller is build:
                raise _NoRoom(ctas, size_bytes, self._most_bytes)
            self._build = smaller

    def _give_up(self, reason: str) -> None:
        self._given_up = True
        self._builds.give_up(reason)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first.launch, name)


class _NoRoom(Exception):
    """No build is small enough for a grid."""

    def __init__(self, ctas: int, size_bytes: int, most_bytes: int) -> None:
        super().__init__(
            f"a grid of {ctas} CTAs needs a buffer of {size_bytes} bytes, there is room for {most_bytes}, and a "
            "smaller one holds too few records for each CTA; raise --max-bytes, select less, or record fewer --warps"
        )


def _reason_of(error: Exception) -> str:
    """Why launches go without records from now on."""
    if isinstance(error, _NoRoom):
        return str(error)
    if isinstance(error, OSError):
        return f"the capture cannot be written: {error.strerror}"
    return fault_of(error)

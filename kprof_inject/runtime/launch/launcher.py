"""Launch kernels with records: give each launch a buffer, and hand the launch over once it is made.

Triton asks our allocator for the profile buffer of each launch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from triton.runtime import _allocation

from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.schema import Grid
from kprof_inject.quantities import counted, size_text
from kprof_inject.runtime.devices.device import Buffer, Device, NoDeviceMemory
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import KernelToSave
from kprof_inject.runtime.launch.lock_free import AtomicCounter
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS, RecordedLaunch, RecordingBuild, SampleBuffer
from kprof_inject.runtime.launch.triton_wrapping import StandInLauncher, has_exit_hook, is_benchmarking
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.stack_room import COMPILING, FRAMES_OF_COMPILER, FRAMES_OF_LAUNCHER


class _PresentLaunch(threading.local):
    """Buffer of this thread's present launch."""

    buffer: Any = None


_present_launch = _PresentLaunch()


def _allocate(size: int, alignment: int, stream: int | None) -> Buffer:
    buffer: Buffer = _present_launch.buffer
    return buffer


def _as_taken(buffer: Buffer | None, sample: CtaSample) -> Buffer | SampleBuffer | None:
    return SampleBuffer(buffer, sample) if buffer is not None and sample.shift else buffer


@contextmanager
def writing_to(buffer: Buffer, sample: CtaSample) -> Iterator[None]:
    """Direct the records of this thread's launches to a buffer.

    A signal handler may launch in the middle of this.
    """
    _allocation._profile_allocator.set(_allocate)
    outer, _present_launch.buffer = _present_launch.buffer, _as_taken(buffer, sample)
    try:
        yield
    finally:
        _present_launch.buffer = outer


@contextmanager
def own_scratch(device: Device) -> Iterator[None]:
    """Give launches in this context our own scratch memory, which tensor descriptors made on the device need.

    Triton then does not call the function that the program passed to ``triton.set_allocator``. The launches follow each
    other on one stream, so one buffer of each size is enough.
    """
    buffers: dict[int, Buffer] = {}

    def allocate(size: int, alignment: int, stream: int | None) -> Buffer:
        if size not in buffers:
            buffers[size] = device.zeros(size, stream or 0)
        return buffers[size]

    before = _allocation._allocator.set(allocate)
    try:
        yield
    finally:
        _allocation._allocator.reset(before)


class Builds(Protocol):
    """The other builds of a kernel, compiled when they are needed."""

    def clean(self) -> Any:
        """Return the kernel without records, loaded."""

    def with_smaller_buffer(self, grid: Grid, max_bytes: int) -> RecordingBuild | None:
        """Return a build whose buffer for ``grid`` takes at most ``max_bytes``.

        Returns None if so small a buffer would hold too few records.
        """

    def give_up(self, reason: str) -> None:
        """Report that this kernel is launched without records from now on."""


class Captures(Protocol):
    """Captures of this process, one after another."""

    def current(self) -> LaunchCapture | None:
        """Return the capture that takes launches now, or None if launches are not captured."""


class CapturingLauncher:
    """Replacement for the launcher that Triton made for a kernel with records.

    It makes each launch with a buffer, or launches the clean build if there is no buffer or an autotuner is comparing.
    The program never sees our own failures, but it does see a failure of the launch.
    """

    def __init__(self, build: RecordingBuild, builds: Builds, captures: Captures, max_bytes: int) -> None:
        """Launch ``build``, or another of ``builds`` if a grid needs a buffer of more than ``max_bytes``."""
        self._first = build
        self._build = build
        self._builds = builds
        self._captures = captures
        self._max_bytes = max_bytes
        self._given_up = False

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        """Launch as Triton's launcher does, with records if possible."""
        grid = (grid_x, grid_y, grid_z)
        try:
            return self._launch(grid, stream, function, metadata, *args)
        except RecursionError:
            # Without a hook after it, the error means that the launch was not made.
            if has_exit_hook(*args):
                raise
        # In this frame, because a deeper one could not restore the limit.
        limit = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(limit + FRAMES_OF_COMPILER)
            clean = self._builds.clean()
            sys.setrecursionlimit(limit + FRAMES_OF_LAUNCHER)
            return clean.run(*grid, stream, clean.function, clean.packed_metadata, *args)
        finally:
            sys.setrecursionlimit(limit)

    def _launch(self, grid: Grid, stream: int, function: Any, metadata: Any, *args: Any) -> Any:
        _allocation._profile_allocator.set(_allocate)  # at each launch: Triton has one allocator for each context
        if not grid[0] * grid[1] * grid[2]:
            return self._first.launch(*grid, stream, function, metadata, *args)
        begun = None if self._given_up or is_benchmarking() else self._begin(grid, stream, args)
        if begun is None:
            return self._launch_clean(grid, stream, *args)
        capture, launch = begun
        build = launch.build
        if capture.replays.is_due(build, launch.index):
            capture.replays.measure(build, self._builds.clean, grid, stream, args)
        saver, saved = capture.saver, None
        if saver.is_due(build.variant_of_program, launch.index):
            saved = saver.begin(KernelToSave.of(build), launch.index, grid, stream, args)
        if build is not self._first:
            function, metadata = build.function, build.packed_metadata
        # A signal handler of the program may launch in the middle of this.
        outer = _present_launch.buffer
        try:
            _present_launch.buffer = _as_taken(launch.memory, build.sample(grid))
            timer = capture.timer(build)
            start = None if timer.is_done else timer.begin(stream)
            result = build.launch(*grid, stream, function, metadata, *args)
        except RecursionError:
            if saved is not None:
                saver.failed(saved)
            launch.owner.failed(launch)
            capture.pass_over(build, launch.index)
            raise
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            if saved is not None:
                saver.failed(saved)
            launch.owner.failed(launch)
            capture.pass_over(build, launch.index)
            # If the launch fails without records too, the program sees that failure.
            result = self._launch_clean(grid, stream, *args)
            self._give_up(f"its launch fails with records: {first_line(error)}")
            return result
        finally:
            _present_launch.buffer = outer
        try:
            if start is not None:
                timer.end(start, stream)
            if saved is not None:
                saver.launched(saved, stream)
            launch.owner.launched(launch)
        except RecursionError:
            pass  # the launch was made; the capture counts it as interrupted
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            self._give_up(fault_of(error))
        return result

    def _launch_clean(self, grid: Grid, stream: int, *args: Any) -> Any:
        clean = self._builds.clean()
        return clean.run(*grid, stream, clean.function, clean.packed_metadata, *args)

    def _begin(self, grid: Grid, stream: int, args: Sequence[Any]) -> tuple[LaunchCapture, RecordedLaunch] | None:
        """Return a launch with a buffer, and its capture; None to launch without records.

        ``args`` are all arguments of a launcher after the metadata.
        """
        # If another thread ends the capture meanwhile, the launch belongs to the next one.
        while (capture := self._captures.current()) is not None:
            number = capture.number(self._first)
            try:
                launch = self._with_buffer(capture, number, grid, stream, args[HOOK_ARGUMENTS:])
            except RecursionError:
                capture.pass_over(self._first, number)
                raise
            except Exception as error:
                if is_of_signal_handler(error):
                    raise
                capture.pass_over(self._first, number)
                self._give_up(_reason(error))
                return None
            if launch is not None:
                return capture, launch
            capture.pass_over(self._first, number)
        return None

    def _with_buffer(
        self, capture: LaunchCapture, number: int, grid: Grid, stream: int, arguments: Sequence[Any]
    ) -> RecordedLaunch | None:
        """Begin a launch of a build whose buffer fits; return None if the capture has ended.

        Raises ``_NoRoom`` if no build is small enough, and any error of compiling or capturing.
        """
        ctas = grid[0] * grid[1] * grid[2]
        while True:
            build = self._build  # read once: another thread may choose a smaller one
            size_bytes = build.buffer_bytes(grid)
            if size_bytes <= self._max_bytes:
                try:
                    return capture.begin(build, number, grid, stream, arguments)
                except NoDeviceMemory:
                    self._max_bytes = size_bytes // 2
            smaller = self._builds.with_smaller_buffer(grid, self._max_bytes)
            if smaller is None or smaller is build:
                raise _NoRoom(ctas, size_bytes, self._max_bytes)
            self._build = smaller

    def _give_up(self, reason: str) -> None:
        self._given_up = True
        self._builds.give_up(reason)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of Triton's launcher."""
        return getattr(self._first.launch, name)


class SavingLauncher(StandInLauncher):
    """Launcher of a kernel without records, of which a launch is saved; then it steps aside."""

    def __init__(self, kernel: Any, to_save: KernelToSave, captures: Captures) -> None:
        """Stand in for the launcher of a loaded ``kernel``."""
        super().__init__(kernel)
        self._to_save = to_save
        self._captures = captures
        self._launches = AtomicCounter()

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        """Launch as Triton's launcher does, and save the launch if it is the one to save."""
        grid = (grid_x, grid_y, grid_z)
        with COMPILING:
            capture, saved = self._captures.current(), None
            if capture is None or capture.saver.is_over(self._to_save.variant):
                self._step_aside()
            elif not is_benchmarking() and grid_x * grid_y * grid_z:
                number = self._launches.add()
                if capture.saver.is_due(self._to_save.variant, number):
                    saved = capture.saver.begin(self._to_save, number, grid, stream, args)
            if capture is None or saved is None:
                return self._launch(*grid, stream, function, metadata, *args)
            try:
                result = self._launch(*grid, stream, function, metadata, *args)
            except BaseException:
                capture.saver.failed(saved)
                raise
            capture.saver.launched(saved, stream)
            return result


class _NoRoom(Exception):
    """Error that no build has a small enough buffer for a grid."""

    def __init__(self, ctas: int, size_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"a grid of {counted(ctas, 'CTA')} needs a buffer of {size_text(size_bytes)}, there is room for "
            f"{size_text(max_bytes)}, and a smaller one holds too few records for each CTA; raise --max-bytes, select "
            "less, or record fewer --warps"
        )


def _reason(error: Exception) -> str:
    """Return the reason for launching without records from now on."""
    if isinstance(error, _NoRoom):
        return str(error)
    if isinstance(error, OSError):
        return f"the capture cannot be written: {error.strerror}"
    return fault_of(error)

"""Launch kernels with records: give each launch a buffer, and hand the launch over once it is made.

Triton asks our allocator for the profile buffer of each launch.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from triton.runtime import _allocation

from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.schema import Grid
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.devices.device import Buffer, Device
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.launch.kernel_launches import KernelLaunches
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import KernelToSave
from kprof_inject.runtime.launch.planned_kernel import PlannedKernel
from kprof_inject.runtime.launch.recorded_launch import HOOK_ARGUMENTS, RecordedLaunch, SampleBuffer
from kprof_inject.runtime.launch.timing import EmptyKernel, Turn
from kprof_inject.runtime.launch.triton_wrapping import StandInLauncher, is_benchmarking
from kprof_inject.runtime.process_events import let_through


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


CurrentCapture = Callable[[], LaunchCapture | None]
"""Function that returns the capture that takes launches now, or None if launches are not captured."""


class CapturingLauncher(StandInLauncher):
    """Launcher that makes a kernel's launches with records.

    It launches the kernel itself if there is no buffer or an autotuner is comparing. The program never sees our own
    failures, but it does see a failure of the launch.
    """

    def __init__(
        self, kernel: Any, planned: PlannedKernel, capture: CurrentCapture, gave_up: Callable[[Any], None]
    ) -> None:
        """Stand in for the launcher of a loaded ``kernel``, and launch a build of ``planned`` instead.

        ``gave_up(kernel)`` is called once no build can be launched.
        """
        super().__init__(kernel)
        self._planned = planned
        self._variant = planned.variant
        self._capture = capture
        self._gave_up = gave_up
        self._max_bytes = planned.max_bytes
        self._empty = EmptyKernel.like(kernel.metadata)
        self._of_grid: dict[Grid, RecordingBuild] = {}
        self._given_up = False

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        """Launch as Triton's launcher does, with records if possible."""
        grid = (grid_x, grid_y, grid_z)
        _allocation._profile_allocator.set(_allocate)  # at each launch: Triton has one allocator for each context
        is_ours = not self._given_up and grid[0] * grid[1] * grid[2] and not is_benchmarking()
        begun = self._begin(grid, stream, args) if is_ours else None
        if begun is None:
            return self._launch(*grid, stream, function, metadata, *args)
        capture, launch, turn = begun
        if launch is None:
            return self._launch_without_records(turn, grid, stream, function, metadata, *args)
        build = launch.build
        saver, saved = capture.saver, None
        if launch.is_kept and (
            saver.is_due(self._variant, launch.record.index)
            or (not launch.record.graph and saver.is_due_again(self._variant, grid))
        ):
            kernel = KernelToSave.of(
                build.argument_kinds,
                name=build.record.name,
                variant=build.variant_of_program,
                relaunch=build.record.scopes.relaunch,
                clean=build.record.clean,
            )
            saved = saver.begin(kernel, launch.record.index, grid, stream, args)
        # A signal handler of the program may launch in the middle of this.
        outer = _present_launch.buffer
        try:
            _present_launch.buffer = _as_taken(launch.memory, build.sample(grid))
            timer = capture.kernel(self._variant).timer(build, grid, turn)
            start = timer.begin(stream) if timer is not None else None
            result = build.launch(*grid, stream, build.function, build.packed_metadata, *args)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            if saved is not None:
                saver.failed(saved)
            launch.owner.failed(launch)
            capture.ended(launch)
            # If the launch fails without records too, the program sees that failure.
            result = self._launch(*grid, stream, function, metadata, *args)
            self._give_up(f"its launch fails with records: {first_line(error)}")
            return result
        finally:
            _present_launch.buffer = outer
        try:
            if timer is not None and start is not None:
                timer.end(start, stream, turn)
            if saved is not None:
                saver.launched(saved, stream)
            launch.owner.launched(launch)
            capture.ended(launch)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            self._give_up(fault_of(error))
        return result

    def _launch_without_records(self, turn: Turn | None, grid: Grid, stream: int, *others: Any) -> Any:
        """Launch as Triton's launcher does, and time the launch if it has a turn."""
        start = None
        if turn is not None:
            timer = turn.timer.clean
            start = timer.begin(stream)
        result = self._launch(*grid, stream, *others)
        if start is not None:
            timer.end(start, stream, turn)
        return result

    def _begin(
        self, grid: Grid, stream: int, args: Sequence[Any]
    ) -> tuple[LaunchCapture, RecordedLaunch | None, Turn | None] | None:
        """Return the capture of a launch, the launch with a buffer or None if it has no records, and its turn.

        Returns None if the launch does not belong to a capture. ``args`` are all arguments of a launcher after the
        metadata.
        """
        # If another thread ends the capture meanwhile, the launch belongs to the next one.
        while (capture := self._capture()) is not None:
            kernel = capture.kernel(self._variant)
            number, is_kept = kernel.count(grid)
            turn = None
            try:
                self._record_less_if_slow(kernel, grid)
                turn = kernel.turn(grid, self._empty, is_kept=is_kept)
                if not kernel.has_records(turn, is_kept=is_kept):
                    return capture, None, turn
                arguments = args[HOOK_ARGUMENTS:]
                launch = self._with_buffer(capture, kernel, number, grid, stream, arguments, is_kept=is_kept)
            except Exception as error:  # noqa: BLE001 (the program must go on)
                let_through(error)
                self._give_up(_reason(error))
                return None
            if launch is not None:
                return capture, launch, turn
        return None

    def _record_less_if_slow(self, kernel: KernelLaunches, grid: Grid) -> None:
        excess = kernel.excess()
        if excess is not None and self._planned.record_less(excess, grid):
            self._of_grid = {}
            kernel.begin_turns_again()

    def _with_buffer(
        self,
        capture: LaunchCapture,
        kernel: KernelLaunches,
        number: int,
        grid: Grid,
        stream: int,
        arguments: Sequence[Any],
        *,
        is_kept: bool,
    ) -> RecordedLaunch | None:
        """Begin a launch of a build whose buffer fits; return None if the capture has ended.

        Raises any error of compiling or capturing.
        """
        while True:
            build = self._of_grid.get(grid)
            if build is None:
                build = self._planned.build_for(grid, self._max_bytes)
                self._of_grid[grid] = build
            try:
                return capture.begin(kernel, build, number, grid, stream, arguments, is_kept=is_kept)
            except NoDeviceMemory:
                self._max_bytes = build.buffer_bytes(grid) // 2
                self._of_grid = {}

    def _give_up(self, reason: str) -> None:
        self._planned.give_up(reason)
        kernel = self._kernel()
        if kernel is not None and kernel._run is self:
            self._step_aside()
            self._gave_up(kernel)
            self._launch = kernel._run
        self._given_up = True


def record_launches(
    kernel: Any, planned: PlannedKernel, capture: CurrentCapture, gave_up: Callable[[Any], None] = lambda kernel: None
) -> None:
    """Replace the launcher of a loaded ``kernel`` by one that records; see ``CapturingLauncher`` for the arguments."""
    planned.prepare(kernel)
    # It is replaced already if an exception ended an earlier attempt.
    if not isinstance(kernel._run, CapturingLauncher):
        kernel._run = CapturingLauncher(kernel, planned, capture, gave_up)


class SavingLauncher(StandInLauncher):
    """Launcher of a kernel without records, of which a launch is saved; then it steps aside."""

    def __init__(self, kernel: Any, to_save: KernelToSave, capture: CurrentCapture) -> None:
        """Stand in for the launcher of a loaded ``kernel``."""
        super().__init__(kernel)
        self._to_save = to_save
        self._capture = capture
        self._numbers = itertools.count()

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        """Launch as Triton's launcher does, and save the launch if it is the one to save."""
        grid = (grid_x, grid_y, grid_z)
        capture, saved = self._capture(), None
        if capture is None or capture.saver.is_over(self._to_save.variant):
            self._step_aside()
        elif not is_benchmarking() and grid_x * grid_y * grid_z:
            number = next(self._numbers)
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


def _reason(error: Exception) -> str:
    if isinstance(error, KprofError):
        return f"{error.what}; {error.hint}" if error.hint else error.what
    if isinstance(error, OSError):
        return f"the capture cannot be written: {error.strerror}"
    return fault_of(error)

"""Replacements for Triton's launcher: one records, one only times, one only saves.

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
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory, resources_of
from kprof_inject.runtime.devices.device import Buffer, Device, devices_of_process
from kprof_inject.runtime.faults import fault_of, first_line
from kprof_inject.runtime.launch.launch_buffers import RecordedLaunch
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import KernelToSave, LaunchBeingSaved, LaunchSaver
from kprof_inject.runtime.launch.planned_kernel import PlannedKernel
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer, Turn
from kprof_inject.runtime.launch.triton_wrapping import HOOK_ARGUMENTS, Load, StandInLauncher, is_benchmarking
from kprof_inject.runtime.process_events import in_forked_child, let_through
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.workspace import Workspace


class SampleBuffer:
    """A buffer as a kernel takes it: the address of its first row, with the sample's ``shift`` in its lowest bits."""

    __slots__ = ("_address", "_buffer")

    def __init__(self, buffer: Buffer, sample: CtaSample) -> None:
        self._buffer = buffer  # lives as long
        self._address = buffer.data_ptr() + sample.ends_bytes + sample.shift

    def data_ptr(self) -> int:
        """Return the address."""
        return self._address


class _PresentLaunch(threading.local):
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
    failures, but it does see a failure of the launch. ``gave_up(kernel)`` is called once no build can be launched.
    """

    def __init__(
        self, kernel: Any, planned: PlannedKernel, capture: CurrentCapture, gave_up: Callable[[Any], None]
    ) -> None:
        super().__init__(kernel)
        self._planned = planned
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
        is_ours = not self._given_up and grid_x * grid_y * grid_z and not is_benchmarking()
        begun = self._begin(grid, stream, args) if is_ours else None
        if begun is None:
            return self._launch(*grid, stream, function, metadata, *args)
        capture, launch, turn = begun
        if launch is None:
            return self._launch_without_records(turn, grid, stream, function, metadata, *args)
        build = launch.build
        saved = self._begin_to_save(capture.saver, launch, stream, args) if launch.is_kept else None
        # A signal handler of the program may launch in the middle of this.
        outer = _present_launch.buffer
        try:
            _present_launch.buffer = _as_taken(launch.memory, build.sample(grid))
            timer = capture.kernel(self._planned.variant).timer(build, grid, turn)
            start = timer.begin(stream) if timer is not None else None
            result = build.launch(*grid, stream, build.function, build.packed_metadata, *args)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            if saved is not None:
                capture.saver.failed(saved)
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
                capture.saver.launched(saved, stream)
            if launch.is_kept:
                capture.buffers.made(launch)
        except Exception as error:  # noqa: BLE001 (the program must go on)
            let_through(error)
            self._give_up(fault_of(error))
        return result

    def _launch_without_records(self, turn: Turn | None, grid: Grid, stream: int, *others: Any) -> Any:
        timer = turn.timer.clean if turn is not None else None
        start = timer.begin(stream) if timer is not None else None
        result = self._launch(*grid, stream, *others)
        if timer is not None and start is not None:
            timer.end(start, stream, turn)
        return result

    def _begin_to_save(
        self, saver: LaunchSaver, launch: RecordedLaunch, stream: int, args: Sequence[Any]
    ) -> LaunchBeingSaved | None:
        """Copy the memory of a launch that is about to be made, if it is the one to save."""
        variant, number, grid = self._planned.variant, launch.record.index, launch.record.grid
        is_due_again = not launch.record.graph and saver.to_replace(variant, grid) is not None
        if not is_due_again and not saver.is_due(variant, number):
            return None
        record = launch.build.record
        kernel = KernelToSave.of(
            launch.build.argument_kinds,
            name=record.name,
            variant=variant,
            relaunch=record.scopes.relaunch,
            clean=record.clean,
        )
        return saver.begin(kernel, number, grid, stream, args)

    def _begin(
        self, grid: Grid, stream: int, args: Sequence[Any]
    ) -> tuple[LaunchCapture, RecordedLaunch | None, Turn | None] | None:
        """Return the capture of a launch, the launch with a buffer or None if it has no records, and its turn.

        Returns None if the launch does not belong to a capture. ``args`` are all arguments of a launcher after the
        metadata.
        """
        # If another thread ends the capture meanwhile, the launch belongs to the next one.
        while (capture := self._capture()) is not None:
            kernel = capture.kernel(self._planned.variant)
            number, is_kept = kernel.count(grid)
            turn = None
            try:
                excess = kernel.excess(self._of_grid.get(grid))
                if excess is not None and self._planned.record_less(excess, grid):
                    self._of_grid = {}
                    kernel.begin_turns_again()
                turn = kernel.turn(grid, self._empty, is_kept=is_kept)
                if not kernel.has_records(turn, is_kept=is_kept):
                    return capture, None, turn
                launch = self._with_buffer(capture, number, grid, stream, args[HOOK_ARGUMENTS:], is_kept=is_kept)
            except Exception as error:  # noqa: BLE001 (the program must go on)
                let_through(error)
                self._give_up(_reason(error))
                return None
            if launch is not None:
                return capture, launch, turn
        return None

    def _with_buffer(
        self, capture: LaunchCapture, number: int, grid: Grid, stream: int, arguments: Sequence[Any], *, is_kept: bool
    ) -> RecordedLaunch | None:
        """Begin a launch of a build whose buffer fits; return None if the capture has ended.

        Raises any error of compiling or capturing.
        """
        while True:
            build = self._of_grid.get(grid)
            if build is None:
                build = self._of_grid[grid] = self._planned.build_for(grid, self._max_bytes)
            try:
                return capture.begin(build, number, grid, stream, arguments, is_kept=is_kept)
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
        if capture is None or capture.saver.is_over(self._to_save.record.variant):
            self._step_aside()
        elif not is_benchmarking() and grid_x * grid_y * grid_z:
            number = next(self._numbers)
            if capture.saver.is_due(self._to_save.record.variant, number):
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


class TimingLauncher(StandInLauncher):
    """Launcher of a kernel without records that times some launches, then steps aside."""

    def __init__(self, kernel: Any, timer: LaunchTimer) -> None:
        super().__init__(kernel)
        self._timer = timer

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        """Launch as Triton's launcher does, and time the launch if samples are missing."""
        start = None
        if self._timer.is_done:
            if self._timer.count():
                self._step_aside()
        elif not is_benchmarking():
            start = self._timer.begin(stream)
        result = self._launch(grid_x, grid_y, grid_z, stream, function, metadata, *args)
        if start is not None:
            self._timer.end(start, stream)
        return result


class CleanTimes:
    """Kernels of this process without records, of which launches are timed; their times go to the workspace."""

    def __init__(self, workspace: Workspace, report: ProcessReport) -> None:
        self._workspace = workspace
        self._report = report
        self._timed: list[tuple[str, dict[str, Any], LaunchTimer]] = []
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        self._timed = []  # it cannot query its parent's devices

    def load(self, variant: str, kernel: Any, load: Load) -> None:
        """Load a kernel, and time its launches."""
        load()
        with self._report.guard("timing a kernel"):
            device = devices_of_process()
            device.prepare()
            timer = LaunchTimer(device, EmptyKernel.like(kernel.metadata))
            if not isinstance(kernel._run, TimingLauncher):  # set already if an exception ended an earlier attempt
                kernel._run = TimingLauncher(kernel, timer)
            self._timed.append((variant, resources_of(kernel), timer))
            self._save(*self._timed[-1])

    def finish(self) -> None:
        """Save the times. Never raises."""
        for timed in self._timed:
            with self._report.guard("timing a kernel"):
                self._save(*timed)
        self._timed.clear()  # frees their events while the driver still exists

    def _save(self, variant: str, resources: dict[str, Any], timer: LaunchTimer) -> None:
        self._workspace.write_clean_run(variant, timer.resources(**resources, launches=timer.launches))


def _reason(error: Exception) -> str:
    if isinstance(error, KprofError):
        return f"{error.what}; {error.hint}" if error.hint else error.what
    if isinstance(error, OSError):
        return f"the capture cannot be written: {error.strerror}"
    return fault_of(error)

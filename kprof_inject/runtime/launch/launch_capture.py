"""Save the profile buffer of each kept launch without making the program wait for the device.

Each kernel of the program counts its launches here, and decides which have records, are kept and are timed.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from msgspec.structs import replace

from kprof_inject.capture.capture_files import CaptureWriter, LaunchRecord, ProcessRecord
from kprof_inject.capture.mode import TRUSTED_PERCENT
from kprof_inject.capture.recording import LaunchFilter
from kprof_inject.capture.resources import MAX_GRIDS, GridTimesRecord, KernelResources, TimingRecord
from kprof_inject.capture.schema import Grid
from kprof_inject.capture.slowdown import Slowdown
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.copier import BufferCopier
from kprof_inject.runtime.launch.launch_buffers import ChosenLaunches, LastLaunches, LaunchBuffers, RecordedLaunch
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.launch.timing import EmptyKernel, Excess, LaunchTimer, Turn, TurnTimer
from kprof_inject.runtime.process_events import MAX_SECONDS_AT_END, in_forked_child
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.version import __version__
from kprof_inject.workspace import Workspace


class KernelLaunches:
    """Launches of one kernel of the program, which may have several builds with records.

    Counts may be off by one where threads launch it at once, or an exception of a signal handler ends a launch.
    """

    def __init__(self, variant: str, device: Device, choice: LaunchFilter, *, has_turns: bool) -> None:
        """Begin without launches; with ``has_turns``, launches are timed without records and with them in turn."""
        self.variant = variant
        self.launches = 0
        self._device = device
        self._choice = choice
        self._has_turns = has_turns
        self._numbers = itertools.count()
        self._grids: dict[Grid, int] = {}
        self._main_grid: Grid = (0, 0, 0)
        self._turns: TurnTimer | None = None
        self._timers: dict[str, LaunchTimer] = {}  # timers of launches without turns, by build
        self._recorded: dict[Grid, RecordingBuild] = {}  # builds whose launches with this grid have turns
        self._is_timed = False
        self._slow_ctas: tuple[RecordingBuild, Excess] | None = None

    def count(self, grid: Grid) -> tuple[int, bool]:
        """Count a launch that is about to be made; return its number, and whether it may be kept.

        If each kept launch replaces the one before, only launches with the main grid are kept, and those in graphs: a
        graph may run any number of times. The main grid is the one with most CTAs in all launches so far: if the
        kernel's CTAs take about as long in any grid, these launches take most of its time.
        """
        number = next(self._numbers)
        self.launches = number + 1
        if not self._choice.replaces:
            return number, self._choice.keeps(number)
        self._grids[grid] = self._grids.get(grid, 0) + 1
        if grid != self._main_grid and self._ctas(grid) >= self._ctas(self._main_grid):
            self._main_grid = grid
        return number, grid == self._main_grid or self._device.is_capturing()

    def _ctas(self, grid: Grid) -> int:
        return self._grids.get(grid, 0) * math.prod(grid)

    def turn(self, grid: Grid, clean: EmptyKernel, *, is_kept: bool) -> Turn | None:
        """Return the turn of a launch that is about to be made, if it has one.

        ``clean`` is like the kernel without records. Launches that the user wants by their number have no turn.
        """
        if not self._has_turns or (is_kept and not self._choice.replaces):
            return None
        if self._turns is None:
            self._turns = TurnTimer(self._device, clean)
        return self._turns.turn(grid)

    def has_records(self, turn: Turn | None, *, is_kept: bool) -> bool:
        """Return True if a launch is recorded: its turn decides; without one, kept launches are recorded."""
        if turn is not None:
            return turn.has_records
        return is_kept or not (self._has_turns or self._is_timed)

    def excess(self, build: RecordingBuild | None) -> Excess | None:
        """Return the excess of launches with the records of ``build``, once it is found to be too large."""
        noted = self._slow_ctas  # other threads set it, too
        if noted is not None and noted[0] is build:
            self._slow_ctas = None
            return noted[1]
        excess = self._turns.excess() if self._turns is not None else None
        return Excess(excess, of_ctas=False) if excess is not None and 100 * excess > TRUSTED_PERCENT else None

    def note_slowdown(self, build: RecordingBuild, slowdown: Slowdown) -> None:
        """Note how much longer the CTAs that record took in a launch. Called in the copier's thread.

        If ptxas makes faster code of a kernel with records, they show another kernel than the others run, too.
        """
        is_certain = 100 * (abs(slowdown.part) - slowdown.error) > TRUSTED_PERCENT
        if self._has_turns and self._choice.replaces and is_certain:
            self._slow_ctas = build, Excess(slowdown.part, of_ctas=True)

    def begin_turns_again(self) -> None:
        """Forget the times: the kernel has other records from now on."""
        self._turns = self._slow_ctas = None
        self._recorded.clear()

    def timer(self, build: RecordingBuild, grid: Grid, turn: Turn | None) -> LaunchTimer | None:
        """Return the timer of a launch with records, whose times are saved at the end; None if it is not timed."""
        if self._has_turns:
            if turn is None:
                return None
            if self._turns is turn.timer:
                self._recorded.setdefault(grid, build)
            return turn.timer.with_records(EmptyKernel.like(build.record.known_metadata))
        timer = self._timers.get(build.variant)
        if timer is None:
            timer = LaunchTimer(self._device, EmptyKernel.like(build.record.known_metadata))
            self._timers[build.variant] = timer
        if timer.is_done:
            self._is_timed = True
            return None
        return timer

    def times(self) -> Iterator[tuple[str, TimingRecord]]:
        """Yield each build's variant and the times of its launches. Raises ``RuntimeError`` if the device failed."""
        for variant, timer in self._timers.items():
            times_ns = tuple(timer.times_ns())
            yield variant, TimingRecord(times_ns, timer.not_timed or None, empty_launch_ns=timer.empty_ns())
        turns = self._turns
        if turns is None:
            return
        for build in {build.variant: build for build in self._recorded.values()}.values():
            its_grids = [grid for grid, recorded in self._recorded.items() if recorded is build]
            main_grid = self._main_grid if self._choice.replaces else None
            in_turn = turns.times([grid for grid in its_grids if main_grid in (None, grid)])
            grids = self._grid_times(turns)
            yield build.variant, TimingRecord((), turns.clean.not_timed or None, in_turn=in_turn, grids=grids)

    def _grid_times(self, turns: TurnTimer) -> tuple[GridTimesRecord, ...]:
        if len(self._grids) < 2:
            return ()
        times_ns = turns.clean_by_grid()
        first = sorted(self._grids, key=lambda grid: -self._ctas(grid))[:MAX_GRIDS]
        return tuple(
            GridTimesRecord(grid=grid, launches=self._grids[grid], clean_ns=tuple(times_ns.get(grid, ())))
            for grid in first
        )

    def clean_run(self) -> KernelResources | None:
        """Return the kernel's resources with its times without records, as a dump saves them; None without turns.

        Raises ``RuntimeError`` if the device failed.
        """
        turns, build = self._turns, next(iter(self._recorded.values()), None)
        if turns is None or build is None:
            return None
        return replace(
            build.record.clean,
            times_ns=tuple(turns.clean.times_ns()),
            not_timed=turns.clean.not_timed or None,
            empty_launch_ns=turns.clean.empty_ns(),
            launches=self.launches,
        )


_MAX_ON_DEVICE = 4
"""Limit of the last launches' buffers on the device, as a multiple of that on disk: each buffer is kept to the end."""


@dataclass(frozen=True, slots=True)
class _Part:
    pid: int
    writer: CaptureWriter
    copier: BufferCopier


class LaunchCapture:
    """A capture of this process, which gives each launch a buffer, and has the kept launches copied and written.

    The first launch creates the folder and the thread.
    No method that a launch calls takes a lock, so no exception, signal handler or fork can leave one held.
    """

    def __init__(self, session: Session, report: ProcessReport, device: Device, saver: LaunchSaver) -> None:
        self.saver = saver
        self._session = session
        self._report = report
        self._device = device
        self._filter = session.recording.filter
        self._reset()
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        """Forget the parent's launches: a forked child has neither its devices nor its thread."""
        self._reset()
        self._report.forget_launches()

    def _reset(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._kernels: dict[str, KernelLaunches] = {}
        self._devices: set[int] = set()
        self._parts: list[_Part] = []
        """The part, once it has begun: if another thread or a signal handler adds one too, the first counts."""
        self._has_ended = False
        self._noted = (0, 0)
        recording = self._session.recording
        self.buffers: LaunchBuffers
        if self._filter.replaces:
            self.buffers = LastLaunches(self._device, self._save, _MAX_ON_DEVICE * recording.max_bytes)
        else:
            self.buffers = ChosenLaunches(
                self._device, self._save, recording.max_launches, recording.max_bytes, self._left_out
            )

    def current(self) -> LaunchCapture | None:
        """Return the capture that takes launches now: this one, or None after its end."""
        return None if self._has_ended else self

    def kernel(self, variant: str) -> KernelLaunches:
        """Return the launches of a variant of the program in this capture."""
        kernel = self._kernels.get(variant)
        if kernel is None:
            new = KernelLaunches(variant, self._device, self._filter, has_turns=self._session.runs_once)
            kernel = self._kernels.setdefault(variant, new)  # another thread may have been faster
        return kernel

    def begin(
        self, build: RecordingBuild, number: int, grid: Grid, stream: int, arguments: Sequence[Any], *, is_kept: bool
    ) -> RecordedLaunch | None:
        """Return a launch with a buffer, or None if the capture has ended. ``buffers.made`` follows, once it is made.

        This is in the launch path. Raises ``NoDeviceMemory``; the caller may then try another build.
        """
        if self._has_ended:  # another thread ended it after the launch was numbered
            return None
        if not self._parts:
            self._start()
        device = self._device.current()
        self._devices.add(device)
        record = LaunchRecord(
            variant=build.variant,
            index=number,
            grid=grid,
            device=device,
            stream=stream,
            host_ns=time.time_ns(),
            buffer_bytes=build.buffer_bytes(grid),
            file="",
            graph=self._device.is_capturing(),
            arguments=build.argument_kinds.numbers(arguments) if is_kept else (),
            cta_shift=build.sample(grid).shift,
        )
        launch = RecordedLaunch(build, is_kept, record)
        self.buffers.lend(launch)
        return launch

    def finish(self) -> None:
        """Save the remaining launches, record what was left out, and end the capture.

        Raises nothing of its own. An exception of a signal handler ends the wait and reaches the caller.
        """
        part = next(iter(self._parts), None)
        if self._has_ended or (part is not None and part.pid != os.getpid()):
            return
        self._has_ended = True
        if part is None:
            self.saver.finish()
            return
        is_saved = False
        try:
            is_saved = part.copier.close(functools.partial(self._save_rest, part), MAX_SECONDS_AT_END)
            self.saver.finish()
        finally:
            if not is_saved:
                # Without us, the program would end here in any case.
                waiting, reason = part.copier.unfinished()
                self._left_out[reason] += max(waiting + self.buffers.unsaved(), 1)
            with self._report.guard("ending the capture"):
                self._add_times(part.writer)
                launches = {one.variant: one.launches for one in list(self._kernels.values())}
                part.writer.finish(self._left_out, launches)

    def _add_times(self, writer: CaptureWriter) -> None:
        workspace = Workspace(Path(self._session.workspace))
        try:
            for kernel in list(self._kernels.values()):
                for variant, times in kernel.times():
                    writer.add_times(variant, times)
                if clean := kernel.clean_run():
                    workspace.write_clean_run(kernel.variant, clean)
        except RuntimeError:
            return  # the device failed

    def _save_rest(self, part: _Part) -> None:
        try:
            with self._device.unaffected_by_graphs(), part.copier.waiting_for_device():
                for device in sorted(self._devices) if self.buffers.unsaved() else ():
                    self._device.synchronise(device)
        except Exception as error:  # noqa: BLE001 (the program handles failures of its device)
            self._left_out[f"the device failed: {first_line(error)}"] += self.buffers.unsaved()
            return
        self.buffers.save_rest()
        for device in sorted(self._devices):
            part.copier.read_clock(device)

    def _save(self, launch: RecordedLaunch) -> None:
        for part in self._parts[:1]:
            part.copier.put(launch)

    def _start(self) -> None:
        """Create the folder and start the copier.

        If two threads do this at once, or a launch and one of a signal handler, the first wins.
        """
        folder = Path(self._session.capture, f"{os.getpid()}-{time.time_ns()}")
        writer = CaptureWriter(folder, _process_info(self._session, self._device))
        copier = BufferCopier(
            self._device,
            writer,
            self._report,
            self._left_out,
            self._session.recording.max_bytes,
            self._filter.replaces,
            self._note_progress,
            self._note_slowdown,
        )
        part = _Part(os.getpid(), writer, copier)
        parts = self._parts
        parts.append(part)  # one step, and the first part stays first
        if parts[0] is not part:
            copier.close(lambda: None, MAX_SECONDS_AT_END)
            shutil.rmtree(folder, ignore_errors=True)

    def _note_slowdown(self, build: RecordingBuild, slowdown: Slowdown) -> None:
        self.kernel(build.record.program_variant).note_slowdown(build, slowdown)

    def _note_progress(self, saved: int) -> None:
        progress = (sum(one.launches for one in list(self._kernels.values())), saved)
        if progress != self._noted:
            self._noted = progress
            self._report.note_launches(*progress)


def _process_info(session: Session, device: Device) -> ProcessRecord:
    rank = os.environ.get("RANK", "")
    return ProcessRecord(
        made_by=session.made_by,
        tool=__version__,
        pid=os.getpid(),
        rank=int(rank) if rank.isdigit() else None,
        argv=tuple(sys.argv),
        executable=sys.executable,
        host=platform.node(),
        boot_id=_boot_id(),
        python=platform.python_version(),
        torch=str(getattr(sys.modules.get("torch"), "__version__", "")),
        triton=triton.__version__,
        device_names=tuple(device.names()),
        device_uuids=tuple(device.uuids()),
        recording=session.recording,
    )


def _boot_id() -> str:
    """Return the identifier of this boot of Linux, or "" if it cannot be read.

    Processes with the same identifier share a clock.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""

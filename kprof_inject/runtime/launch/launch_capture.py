"""Save the profile buffer of each kept launch without making the program wait for the device."""

from __future__ import annotations

import functools
import math
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import triton

from kprof_inject.capture.capture_files import CaptureWriter, LaunchRecord, ProcessRecord
from kprof_inject.capture.mode import TRUSTED_PERCENT
from kprof_inject.capture.resources import MAX_GRIDS, GridTimesRecord, TimingRecord
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.copier import BufferCopier
from kprof_inject.runtime.launch.launch_buffers import ChosenLaunches, LastLaunches, MadeLaunch, ScratchBuffers
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.launch.lock_free import AtomicCounts, GridCounts
from kprof_inject.runtime.launch.recorded_launch import RecordedLaunch, RecordingBuild
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer, Turn, TurnTimer
from kprof_inject.runtime.process_events import MAX_SECONDS_AT_END, in_forked_child
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.version import __version__
from kprof_inject.workspace import Workspace

_MAX_ON_DEVICE = 4
"""Limit of the last launches' buffers on the device, as a multiple of that on disk: each buffer is kept to the end."""


@dataclass(frozen=True, slots=True)
class _Part:
    """This process's part of the capture: its folder, and the thread that writes there."""

    pid: int
    writer: CaptureWriter
    copier: BufferCopier


class LaunchCapture:
    """A capture of this process, which gives each launch a buffer, and has the kept launches copied and written.

    No method that a launch calls takes a lock, so no exception, signal handler or fork can leave one held.
    """

    def __init__(self, session: Session, report: ProcessReport, device: Device, saver: LaunchSaver) -> None:
        """Prepare to capture; the first launch creates the folder and the thread."""
        self.saver = saver
        self._session = session
        self._report = report
        self._device = device
        self._filter = session.recording.filter
        self.has_turns = session.runs_once
        """True if launches are timed without records and with them in turn."""
        self._reset()
        in_forked_child(self._begin_in_child)

    def _begin_in_child(self) -> None:
        """Forget the parent's launches: a forked child has neither its devices nor its thread."""
        self._reset()
        self._report.forget_launches()

    def _reset(self) -> None:
        self._left_out = AtomicCounts()
        self._numbers = AtomicCounts()
        self._numbers_before: dict[str, int] = {}
        self._grids: dict[str, GridCounts] = {}
        self._grids_before: dict[str, dict[Grid, int]] = {}
        self._passed_over: set[tuple[str, Grid, int]] = set()
        self._devices: set[int] = set()
        self._timers: dict[str, LaunchTimer] = {}
        self._turns: dict[str, TurnTimer] = {}
        self._recorded: dict[tuple[str, Grid], RecordingBuild] = {}
        """Builds whose launches with this grid have turns, by the program's variant."""
        self._timed: set[str] = set()
        self._parts: list[_Part] = []
        """The part, once it has begun: if another thread or a signal handler adds one too, the first counts."""
        self._has_ended = False
        self._noted = (0, 0)
        self._scratch = ScratchBuffers(self._device)
        session = self._session
        self._buffers: ChosenLaunches | LastLaunches
        if self._filter.replaces:
            self._buffers = LastLaunches(self._device, self._save, _MAX_ON_DEVICE * session.recording.max_bytes)
        else:
            self._buffers = ChosenLaunches(
                self._device,
                self._scratch,
                session.recording.max_launches,
                session.recording.max_bytes,
                self._save,
                self._left_out,
            )

    def current(self) -> LaunchCapture | None:
        """Return the capture that takes launches now: this one, or None after its end."""
        return None if self._has_ended else self

    def count(self, variant: str, grid: Grid) -> tuple[int, int | None]:
        """Count a launch of the program's variant that is about to be made; return its number and its place.

        The place is among the launches with its grid if each kept launch replaces the one before, otherwise among all.
        It is None for a launch that is not to be kept. Of those that replace each other, only launches with the main
        grid are kept, and those in graphs: a graph may run any number of times.
        """
        if not self._filter.replaces:
            number = self._numbers.add(variant)
            return number, number if self._filter.keeps(number) else None
        counts = self._grids.get(variant) or self._grids.setdefault(variant, GridCounts())
        place, has_main_grid = counts.add(grid)
        number = self._numbers.add(variant)
        return number, place if has_main_grid or self._device.is_capturing() else None

    def pass_over(self, variant: str, grid: Grid, place: int | None) -> None:
        """Note that a launch is made without records, or not made."""
        if place is not None:
            self._passed_over.add((variant, grid, place))

    def turn(self, variant: str, place: int | None, grid: Grid, clean: EmptyKernel) -> Turn | None:
        """Return the turn of a launch that is about to be made; None if it has none.

        ``clean`` is like the kernel without records. Launches that the user wants by their number have no turn.
        """
        if place is not None and not self._filter.replaces:
            return None
        turns = self._turns.get(variant) or self._turns.setdefault(variant, TurnTimer(self._device, clean))
        return turns.turn(grid)

    def excess(self, variant: str) -> float | None:
        """Return by which part of its time a kernel takes longer with records, once that is found to be too much."""
        turns = self._turns.get(variant)
        excess = turns.excess() if turns is not None else None
        return excess if excess is not None and 100 * excess > TRUSTED_PERCENT else None

    def begin_turns_again(self, variant: str) -> None:
        """Forget the times of a variant, which has other records from now on."""
        self._turns.pop(variant, None)
        for key in [key for key in list(self._recorded) if key[0] == variant]:
            self._recorded.pop(key, None)

    def has_records(self, variant: str, place: int | None, turn: Turn | None) -> bool:
        """Return whether to record a launch: one that is kept, or one of those that are timed."""
        if turn is not None:
            return turn.has_records
        return place is not None or not (self.has_turns or variant in self._timed)

    def begin(
        self,
        build: RecordingBuild,
        number: int,
        place: int | None,
        grid: Grid,
        stream: int,
        arguments: Sequence[Any],
    ) -> RecordedLaunch | None:
        """Return a launch with a buffer, or None if the capture has ended.

        This is in the launch path. Raises ``NoDeviceMemory``; the caller may then try another build.
        """
        if self._has_ended:  # another thread ended it after the launch was numbered
            return None
        if not self._parts:
            self._start()
        device = self._device.current()
        self._devices.add(device)
        numbers = build.argument_kinds.numbers(arguments) if place is not None else ()
        is_graph = self._device.is_capturing()
        if place is not None and not is_graph:
            former = self._buffers.reuse(build, grid, device, stream)
            if former is not None:
                former.begin_again(number, place, numbers)
                return former
        record = LaunchRecord(
            variant=build.variant,
            index=number,
            grid=grid,
            device=device,
            stream=stream,
            host_ns=time.time_ns(),
            buffer_bytes=build.buffer_bytes(grid),
            file="",
            graph=is_graph,
            arguments=numbers,
            cta_shift=build.sample(grid).shift,
        )
        launch = RecordedLaunch(build, place, record)
        if place is None:
            self._scratch.lend(launch)
        else:
            self._buffers.lend(launch)
        return launch

    def timer(self, build: RecordingBuild, grid: Grid, turn: Turn | None) -> LaunchTimer | None:
        """Return the timer of a launch with records, whose times are saved at the end; None if it is not timed."""
        if self.has_turns:
            if turn is None:
                return None
            if self._turns.get(build.variant_of_program) is turn.timer:
                self._recorded.setdefault((build.variant_of_program, grid), build)
            return turn.timer.with_records(EmptyKernel.like(build.record.known_metadata))
        timer = self._timers.get(build.variant)
        if timer is None:
            empty = EmptyKernel.like(build.record.known_metadata)
            timer = self._timers.setdefault(build.variant, LaunchTimer(self._device, empty))
        if timer.is_done:
            self._timed.add(build.variant_of_program)
            return None
        return timer

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
            if is_saved:
                self._left_out.add_many("interrupted while they were launched", self._interrupted(part.copier.saved))
            else:
                # Without us, the program would end here in any case.
                waiting, reason = part.copier.unfinished()
                self._left_out.add_many(reason, max(waiting + self._buffers.unsaved(), 1))
            with self._report.guard("ending the capture"):
                self._add_times(part.writer)
                part.writer.finish(self._left_out.counts(), self._launches())

    def resume(self) -> None:
        """Capture again after ``finish``, because the process did not end.

        Further launches go to a folder of their own; their numbers continue.
        """
        numbers, grids = self._numbers, self._grids
        self._reset()
        self._numbers, self._numbers_before = numbers, numbers.counts()
        self._grids, self._grids_before = grids, {variant: one.counts() for variant, one in grids.items()}

    def _interrupted(self, saved: int) -> int:
        """Return the number of launches to keep that are neither saved nor left out for another reason.

        An exception (Ctrl-C, a time-out) ended them before we could note that they had been made.
        """
        if self._filter.replaces:
            newest = self._buffers.newest()
            return sum(self._interrupted_of(variant, newest.get(variant)) for variant in list(self._grids))
        to_keep = sum(
            self._filter.kept_of(launches) - self._filter.kept_of(self._numbers_before.get(variant, 0))
            for variant, launches in self._numbers.counts().items()
        )
        return max(to_keep - len(self._passed_over) - saved - sum(self._left_out.counts().values()), 0)

    def _interrupted_of(self, variant: str, newest: MadeLaunch | None) -> int:
        """Return how many launches of a variant were interrupted after the ``newest`` that was made."""
        counts = self._grids[variant].counts()
        if newest is None:
            grid = self._grids[variant].main
            first = self._grids_before.get(variant, {}).get(grid, 0)
        else:
            grid, first = newest.grid, newest.place + 1
        return sum((variant, grid, place) not in self._passed_over for place in range(first, counts[grid]))

    def _launches(self) -> dict[str, int]:
        if self._filter.replaces:
            return {variant: sum(one.counts().values()) for variant, one in self._grids.copy().items()}
        return self._numbers.counts()

    def _add_times(self, writer: CaptureWriter) -> None:
        for variant, timing in self._timings_in_turn() if self.has_turns else self._timings():
            writer.add_times(variant, timing)
        if self.has_turns:
            self._write_clean_runs()

    def _timings(self) -> Iterator[tuple[str, TimingRecord]]:
        """Yield each build's variant and the times of its launches, until the device fails."""
        for variant, timer in list(self._timers.items()):
            try:
                times_ns, empty_ns = timer.times_ns(), timer.empty_ns()
            except RuntimeError:  # the device failed
                return
            yield variant, TimingRecord(tuple(times_ns), timer.not_timed or None, empty_launch_ns=empty_ns)

    def _timings_in_turn(self) -> Iterator[tuple[str, TimingRecord]]:
        """Yield the same of launches in turn, which have their times in pairs."""
        for build in {build.variant: build for build in self._recorded.values()}.values():
            turns = self._turns.get(build.variant_of_program)
            if turns is None:
                continue
            main_grid = self._grids[build.variant_of_program].main if self._filter.replaces else None
            try:
                grids_of_build = [grid for (_, grid), recorded in self._recorded.items() if recorded is build]
                times = turns.times([grid for grid in grids_of_build if main_grid in (None, grid)])
                grids = self._grid_times(build.variant_of_program, turns)
            except RuntimeError:  # the device failed
                return
            yield build.variant, TimingRecord((), turns.clean.not_timed or None, in_turn=times, grids=grids)

    def _grid_times(self, variant: str, turns: TurnTimer) -> tuple[GridTimesRecord, ...]:
        """Return the launches of a variant by grid, that with most CTAs first; none if all have one grid."""
        counts = self._grids[variant].counts() if variant in self._grids else {}
        if len(counts) < 2:
            return ()
        times_ns = turns.clean_by_grid()
        first = sorted(counts, key=lambda grid: -counts[grid] * math.prod(grid))[:MAX_GRIDS]
        return tuple(
            GridTimesRecord(grid=grid, launches=counts[grid], clean_ns=tuple(times_ns.get(grid, ()))) for grid in first
        )

    def _write_clean_runs(self) -> None:
        """Save into the workspace what the dump saves of a program that runs twice: the times without records."""
        workspace = Workspace(Path(self._session.workspace))
        for build in {build.variant_of_program: build for build in self._recorded.values()}.values():
            turns = self._turns.get(build.variant_of_program)
            if turns is None:
                continue
            try:
                times_ns, empty_ns = turns.clean.times_ns(), turns.clean.empty_ns()
            except RuntimeError:  # the device failed
                return
            run = msgspec.structs.replace(
                build.record.clean,
                times_ns=tuple(times_ns),
                not_timed=turns.clean.not_timed or None,
                empty_launch_ns=empty_ns,
                launches=self._launches().get(build.variant_of_program),
            )
            workspace.write_clean_run(build.variant_of_program, str(os.getpid()), run)

    def _save_rest(self, part: _Part) -> None:
        """Wait for the devices if launches are still on them, and save these."""
        try:
            with self._device.unaffected_by_graphs(), part.copier.waiting_for_device():
                for device in sorted(self._devices) if self._buffers.unsaved() else ():
                    self._device.synchronise(device)
        except Exception as error:  # noqa: BLE001 (the program handles failures of its device)
            self._left_out.add_many(f"the device failed: {first_line(error)}", self._buffers.unsaved())
            return
        self._buffers.save_rest()
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
        )
        part = _Part(os.getpid(), writer, copier)
        parts = self._parts
        parts.append(part)  # one step, and the first part stays first
        if parts[0] is not part:
            copier.close(lambda: None, MAX_SECONDS_AT_END)
            shutil.rmtree(folder, ignore_errors=True)

    def _note_progress(self, saved: int) -> None:
        """Update the report's counts, which show what is lost if the process is killed."""
        progress = (sum(self._numbers.counts().values()), saved)
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

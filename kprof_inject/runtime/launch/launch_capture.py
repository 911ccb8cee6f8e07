"""Save the profile buffer of each kept launch without making the program wait for the device."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

from kprof_inject.capture.capture_files import CaptureWriter, LaunchRecord, ProcessRecord
from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.compiling.recording_build import RecordingBuild
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launch.copier import BufferCopier
from kprof_inject.runtime.launch.kernel_launches import KernelLaunches
from kprof_inject.runtime.launch.launch_buffers import ChosenLaunches, LastLaunches, LaunchBuffers, RecordedLaunch
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.process_events import MAX_SECONDS_AT_END, in_forked_child
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.version import __version__
from kprof_inject.workspace import Workspace

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
        """Save the kernels' times; into the workspace those without records, which a program shows that runs once."""
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
        """Wait for the devices if launches are still on them, and save these."""
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
        )
        part = _Part(os.getpid(), writer, copier)
        parts = self._parts
        parts.append(part)  # one step, and the first part stays first
        if parts[0] is not part:
            copier.close(lambda: None, MAX_SECONDS_AT_END)
            shutil.rmtree(folder, ignore_errors=True)

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

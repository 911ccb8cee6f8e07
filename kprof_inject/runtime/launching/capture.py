"""Saves the profile buffer of each kept launch without ever making the program wait for the device."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton

from kprof_inject.capture.writer import CaptureWriter
from kprof_inject.runtime.devices.clock_readings import DeviceClocks
from kprof_inject.runtime.devices.device import Device, NoDeviceMemory
from kprof_inject.runtime.faults import first_line
from kprof_inject.runtime.launching.copier import BufferCopier
from kprof_inject.runtime.launching.last_launches import LastLaunches
from kprof_inject.runtime.launching.launch_buffers import (
    CapturedKernel,
    ChosenLaunches,
    FullBuffer,
    LaunchBuffers,
    LaunchInfo,
    Place,
)
from kprof_inject.runtime.launching.launches import parse_launches
from kprof_inject.runtime.launching.timing import LaunchTimer
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.version import __version__

_MOST_ON_DEVICE = 4
"""How many times what may go to disk the buffers of last launches may take on the device: each is kept to the end."""
_MOST_SECONDS_AT_END = 60.0
"""How long the end of a program may wait for the device."""


class LaunchCapture:
    """One capture of this process: gives each launch its buffer, and has the kept ones copied and written."""

    def __init__(self, session: Session, report: ProcessReport, device: Device) -> None:
        self._session = session
        self._report = report
        self._device = device
        self._filter = parse_launches(session.launches)
        self._left_out: Counter[str] = Counter()
        self._launches: Counter[str] = Counter()
        self._devices: set[int] = set()
        self._pid = 0
        self._timers: dict[str, LaunchTimer] = {}
        self._writer: CaptureWriter | None = None
        self._clocks: DeviceClocks | None = None
        self._copier: BufferCopier | None = None
        self._buffers = self._new_buffers()
        self._lock = threading.RLock()  # a signal handler of the program's may launch, too

    def begin(self, kernel: CapturedKernel, grid: tuple[int, int, int], stream: int) -> Place:
        """The place that a launch writes to, in the launch path. Raises ``NoDeviceMemory``."""
        if self._copier is None:  # at the end of the process, threads can no longer be started
            self._start_copier()
        with self._lock:
            index = self._launches[kernel.variant_of_program]
            self._launches[kernel.variant_of_program] = index + 1
        launch = LaunchInfo(
            kernel,
            index,
            grid,
            self._device.current(),
            stream,
            time.time_ns(),
            self._device.is_capturing(),
        )
        self._devices.add(launch.device)
        try:
            return self._buffers.place_for(launch)
        except NoDeviceMemory:
            with self._lock:  # this launch comes again, with a smaller buffer
                self._launches[kernel.variant_of_program] -= 1
            raise

    def timer(self, variant: str) -> LaunchTimer:
        """Times launches of a variant; what it took is saved at the end."""
        return self._timers.setdefault(variant, LaunchTimer(self._device))

    def finish(self) -> None:
        """Save what is left, and say what was left out. The capture is over then. Never raises."""
        # A forked child has its parent's objects, and neither its devices nor its thread.
        if self._copier is None or self._writer is None or self._clocks is None or self._pid != os.getpid():
            return
        unsaved = self._buffers.unsaved()
        if not self._copier.close(self._save_rest, _MOST_SECONDS_AT_END):
            # Without us, the program would end here whatever the device does.
            self._left_out["the device did not finish in time"] += max(unsaved, 1)
        with self._report.guard("ending the capture"):
            self._add_times(self._writer)
            self._writer.finish({"left_out": dict(self._left_out), "launches": dict(self._launches)})

    def _add_times(self, writer: CaptureWriter) -> None:
        for variant, timer in list(self._timers.items()):
            try:
                times_ns = timer.times_ns()
            except RuntimeError:  # the device failed, and tells nothing any more
                return
            writer.add_times(variant, times_ns)

    def _save_rest(self) -> None:
        """Wait for the devices, and save what is still on them."""
        try:
            with self._device.unaffected_by_graphs():
                for device in sorted(self._devices):
                    self._device.synchronise(device)
        except Exception as error:  # noqa: BLE001 (a failure of the device's is the program's affair)
            self._left_out[f"the device failed: {first_line(error)}"] += self._buffers.unsaved()
            return
        self._buffers.save_rest()
        if self._clocks is not None:
            for device in sorted(self._devices):
                self._clocks.read(device)

    def _new_buffers(self) -> LaunchBuffers:
        if self._filter.replaces:
            return LastLaunches(self._device, self._save, _MOST_ON_DEVICE * self._session.max_bytes)
        session = self._session
        return ChosenLaunches(
            self._device, self._filter, session.max_launches, session.max_bytes, self._save, self._left_out
        )

    def _save(self, full: FullBuffer) -> None:
        if self._copier is not None:
            self._copier.put(full)

    def _start_copier(self) -> None:
        with self._lock:
            if self._copier is not None:
                return
            self._pid = os.getpid()
            folder = Path(self._session.capture, f"{os.getpid()}-{time.time_ns()}")
            self._writer = CaptureWriter(folder, _process_info(self._session, self._device))
            self._clocks = DeviceClocks(self._device.read_clock, self._writer)
            self._copier = BufferCopier(
                self._device,
                self._writer,
                self._report,
                self._left_out,
                self._session.max_bytes,
                self._filter.replaces,
                self._clocks,
            )


def _process_info(session: Session, device: Device) -> dict[str, Any]:
    rank = os.environ.get("RANK", "")
    return {
        "tool": __version__,
        "pid": os.getpid(),
        "rank": int(rank) if rank.isdigit() else None,
        "argv": list(sys.argv),
        "executable": sys.executable,
        "host": platform.node(),
        "boot_id": _boot_id(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "device_names": device.names(),
        "device_uuids": device.uuids(),
        "mode": session.mode.to_json(),
        "launches": session.launches,
        "max_bytes": session.max_bytes,
        "max_launches": session.max_launches,
    }


def _boot_id() -> str:
    """What Linux draws at each boot: processes that share it share a clock. Empty if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""

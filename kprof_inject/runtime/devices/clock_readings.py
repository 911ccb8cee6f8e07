"""Saves what devices' timers read beside the host's clock, often enough to follow how they drift apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from kprof_inject.capture.schema import ClockRecord
from kprof_inject.capture.writer import CaptureWriter
from kprof_inject.runtime.devices.device import ClockReading

_READ_EVERY_NS = 5_000_000_000


class DeviceClocks:
    """Saves a reading of each device's timer when it is first seen, and another every few seconds.

    ``read_clock`` reads one device's."""

    def __init__(self, read_clock: Callable[[int], ClockReading | None], writer: CaptureWriter) -> None:
        self._read_clock = read_clock
        self._writer = writer
        self._last_ns: dict[int, int] = {}

    def keep_up(self, device: int) -> None:
        """Read the device's timer if that is due."""
        if time.time_ns() - self._last_ns.get(device, 0) >= _READ_EVERY_NS:
            self.read(device)

    def read(self, device: int) -> None:
        reading = self._read_clock(device)
        self._last_ns[device] = time.time_ns()
        if reading is not None:
            self._writer.add_clock_reading(ClockRecord(device, **asdict(reading)))

"""What capturing needs of a device. Imports no torch: a program that only compiles may do without."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class NoDeviceMemory(Exception):
    """The device has no room for a buffer."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """At host time ``host_ns`` ± ``error_ns`` (``time.time_ns``), the device's timer read ``device_ns``."""

    host_ns: int
    device_ns: int
    error_ns: int


class Buffer(Protocol):
    """Device memory of ours; it lives as long as the object."""

    def data_ptr(self) -> int: ...


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        """True if it has happened."""

    def elapsed_time(self, end: Any) -> float: ...


class Device(Protocol):
    """The devices of this process; what is not said otherwise is done on the current one. Streams are the handles that
    Triton launches on."""

    def current(self) -> int: ...

    def names(self) -> list[str]: ...

    def uuids(self) -> list[str]: ...

    def is_capturing(self) -> bool:
        """True if the program is recording the current stream into a graph."""

    def zeros(self, size_bytes: int, stream: int) -> Buffer:
        """Zeroed memory for work on ``stream``. Raises ``NoDeviceMemory``."""

    def zeros_outside_graphs(self, size_bytes: int) -> Buffer:
        """Memory that is zero once, now, and belongs to no graph that is being captured. Raises ``NoDeviceMemory``."""

    def mark(self, stream: int) -> Event:
        """An event behind all work of ``stream`` so far, for other threads to wait for."""

    def timing_mark(self, stream: int) -> Event:
        """The same, for times between two of them."""

    def hold(self, stream: int) -> None:
        """Keep ``stream`` busy until the host has queued what it wants to time."""

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        """The buffer's bytes once ``done`` has happened; good until the next call. For one thread alone."""

    def selected(self, device: int) -> AbstractContextManager[None]:
        """A context in which this device is the current one."""

    def synchronise(self, device: int) -> None:
        """Wait for all work of one device."""

    def read_clock(self, device: int) -> ClockReading | None:
        """Relate the timer that CTAs read to the host's clock; None where that is not possible."""

    def unaffected_by_graphs(self) -> AbstractContextManager[None]:
        """What this thread allocates, loads or waits for inside neither joins nor breaks a graph being captured."""


def has_gpu() -> bool:
    """True if torch is there and sees a device that Triton can launch on."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()

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

    def current_stream(self) -> int: ...

    @property
    def has_own_memory(self) -> bool:
        """True if its memory and events are none of torch's: a program does not see them in its own accounts."""

    def is_local(self, address: int) -> bool:
        """True if this is memory of the current device, which neither the host nor another device has a share in."""

    def zeros(self, size_bytes: int, stream: int) -> Buffer:
        """Zeroed memory for work on ``stream``. Raises ``NoDeviceMemory``."""

    def zeros_outside_graphs(self, size_bytes: int) -> Buffer:
        """Memory that is zero once, now, and belongs to no graph that is being captured. Raises ``NoDeviceMemory``."""

    def mark(self, stream: int) -> Event:
        """An event behind all work of ``stream`` so far, for other threads to wait for."""

    def timing_mark(self, stream: int) -> Event:
        """The same, for times between two of them."""

    def hold(self, stream: int, for_ns: int) -> None:
        """Keep ``stream`` busy for at least so long, until the host has queued what it wants to time."""

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        """Launch one CTA of an empty kernel, with this number of threads and this much shared memory."""

    def free_bytes(self) -> int:
        """How much memory the device has left."""

    def borrowed(self, size_bytes: int, stream: int) -> AbstractContextManager[Buffer]:
        """Memory, zero at first, for work on ``stream``. The device has it back at the end of the context, which waits
        for that stream. Raises ``NoDeviceMemory`` when it is entered."""

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy between two addresses, in the order of ``stream``."""

    def digest(self, address: int, size_bytes: int, stream: int) -> int | None:
        """A number that differs, but for a chance of 2 to the -64, where the memory does, once all work of ``stream``
        so far is done; None where it cannot be had."""

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        """The buffer's bytes once ``done`` has happened; good until the next call. For one thread alone."""

    def selected(self, device: int) -> AbstractContextManager[None]:
        """A context in which this device is the current one."""

    def synchronise(self, device: int) -> None:
        """Wait for all work of one device."""

    def read_clock(self, device: int) -> ClockReading | None:
        """Relate the timer that CTAs read to the host's clock; None where that is not possible."""

    def sm_clock_hz(self, stream: int) -> float | None:
        """What the clock of its SMs runs at, once all work of ``stream`` so far is done; None where nothing tells."""

    def counted(self, ptx: str, words: int, stream: int) -> list[int]:
        """What the only kernel of a PTX text writes, run once by a single CTA behind all work of ``stream``: so many
        words of 64 bits; none where the device takes no PTX."""

    def unaffected_by_graphs(self) -> AbstractContextManager[None]:
        """What this thread allocates, loads or waits for inside neither joins nor breaks a graph being captured."""


def has_gpu() -> bool:
    """True if torch is there and sees a device that Triton can launch on."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()

"""The interface to the devices of a process. It does not import torch, which a program that only compiles may lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


class NoDeviceMemory(Exception):
    """Error that the device has no room for a buffer."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A reading ``device_ns`` of the device's timer at host time ``host_ns`` ± ``error_ns`` (``time.time_ns``)."""

    host_ns: int
    device_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """A range of the device's memory."""

    address: int
    size_bytes: int

    @property
    def end(self) -> int:
        """First address after the range."""
        return self.address + self.size_bytes


_PACKED_ALIGNMENT = 512


def packed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return where in a buffer each of several parts with these sizes begins, and the size of the buffer, in bytes."""
    offsets, end = [], 0
    for size_bytes in sizes:
        offsets.append(end)
        end += -(-size_bytes // _PACKED_ALIGNMENT) * _PACKED_ALIGNMENT
    return offsets, end


FindAllocation = Callable[[int], MemoryRange | None]
"""Function that returns the memory that was allocated together with an address; None if the device has none there."""


class Snapshot(Protocol):
    """Contents of memory ranges at a point in a stream, and digests of what is there then and later.

    Any thread may read it. It takes device memory until ``close``.
    """

    @property
    def is_copied(self) -> bool:
        """True if the ranges may change now; false if there was no room to copy them, so they must be read first."""

    def note_later(self, stream: int) -> None:
        """Queue digests of what the ranges contain after all present work of ``stream``."""

    def read(self, number: int, offset: int, size_bytes: int, staging: Any) -> memoryview:
        """Return bytes of one of the ranges, which are valid until the next use of ``staging``."""

    def digests(self) -> tuple[list[int], list[int]]:
        """Wait for the device, and return the digest of each range, at first and later."""

    def close(self) -> None:
        """Give the device memory back."""


class Buffer(Protocol):
    """Our own device memory, which lives as long as the object."""

    def data_ptr(self) -> int:
        """Return the address."""


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None:
        """Wait until the event has happened."""

    def query(self) -> bool:
        """Return whether the event has happened."""

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds to a later event; both have happened."""


class Device(Protocol):
    """The devices of this process.

    Methods without a ``device`` work on the current one. Streams are the handles that Triton launches on.
    """

    def prepare(self) -> None:
        """Do now what waits for all work of the current device, so that no later call does.

        A kernel of the program's may wait for its next launch, which would never come. So this is called where Triton
        loads a kernel, for which the driver waits, too.
        """

    def current(self) -> int:
        """Return the index of the current device."""

    def names(self) -> list[str]:
        """Return the names of all devices."""

    def uuids(self) -> list[str]:
        """Return the UUIDs of all devices; an unknown one is empty."""

    def is_capturing(self) -> bool:
        """Return whether the program is capturing the current stream into a graph."""

    def current_stream(self) -> int:
        """Return the current stream."""

    def is_local(self, address: int) -> bool:
        """Return whether an address is in memory of the current device that no host or other device shares."""

    def zeros(self, size_bytes: int, stream: int) -> Buffer:
        """Allocate zeroed memory for work on ``stream``. Raises ``NoDeviceMemory``."""

    def zeros_outside_graphs(self, size_bytes: int) -> Buffer:
        """Allocate memory that is zeroed once, now, and belongs to no captured graph. Raises ``NoDeviceMemory``."""

    def clear(self, buffer: Buffer, size_bytes: int, stream: int) -> None:
        """Set the first bytes of a buffer to zero, in the order of ``stream``."""

    def mark(self, stream: int) -> Event:
        """Record an event after all present work of ``stream``, for other threads to wait for."""

    def timing_mark(self, stream: int) -> Event:
        """Record an event after all present work of ``stream``, for ``elapsed_time``."""

    def hold(self, stream: int, for_ns: int) -> None:
        """Keep ``stream`` busy for at least ``for_ns``, in which the host can queue the work to be timed."""

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        """Launch one CTA of an empty kernel, with this number of threads and this much shared memory."""

    def borrowed(self, size_bytes: int, stream: int) -> AbstractContextManager[Buffer]:
        """Lend zeroed memory for work on ``stream``.

        The end of the context waits for the stream, and gives the memory back to the device. Entering the context
        raises ``NoDeviceMemory``.
        """

    def copy(self, to: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy between two addresses, in the order of ``stream``."""

    def digest(self, address: int, size_bytes: int, stream: int) -> int | None:
        """Return a digest of memory after all present work of ``stream``; None if the device cannot compute it.

        Different contents have the same digest with a probability of 2 to the -64.
        """

    def allocations(self) -> FindAllocation:
        """Return a function that finds the present allocation around an address of the current device."""

    def snapshot(self, ranges: Sequence[MemoryRange], stream: int) -> Snapshot:
        """Queue copies of memory ranges, and digests of them, after all present work of ``stream``.

        Raises ``NoDeviceMemory`` if not even the digests fit.
        """

    def contents(self, address: int, size_bytes: int, stream: int) -> memoryview:
        """Return what memory contains after all present work of ``stream``, which this waits for."""

    def staging(self, size_bytes: int) -> AbstractContextManager[Any]:
        """Lend a thread what it needs to read up to ``size_bytes`` at once from snapshots on the current device."""

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        """Wait for ``done``, and return the buffer's bytes, which are valid until the next call.

        Only one thread may call this.
        """

    def selected(self, device: int) -> AbstractContextManager[None]:
        """Return a context in which this device is the current one."""

    def synchronise(self, device: int) -> None:
        """Wait for all work of one device."""

    def read_clock(self, device: int) -> ClockReading | None:
        """Relate the timer that CTAs read to the host's clock; None if that is not possible."""

    def sm_clock_hz(self, stream: int) -> float | None:
        """Measure the frequency of the SMs' clock after all present work of ``stream``; None if it is unknown."""

    def counted(self, ptx: str, words: int, stream: int) -> list[int]:
        """Run the only kernel of a PTX text once, with one CTA, and return the 64-bit words that it writes.

        It runs after all present work of ``stream``. The result is empty if the device does not accept PTX.
        """

    def unaffected_by_graphs(self) -> AbstractContextManager[None]:
        """Return a context in which this thread's allocations, loads and waits do not affect a graph being captured."""


def has_gpu() -> bool:
    """Return whether torch is installed and sees a device that Triton can launch on."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()

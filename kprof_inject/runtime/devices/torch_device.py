"""The devices of this process as torch has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kprof_inject.runtime.devices.cuda_driver import relaxed_capture

# What capturing needs of a device. Streams are the handles that Triton launches on.


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
    """The devices of this process; what is not said otherwise is done on the current one."""

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


# Whether kernels can be launched here.


def has_gpu() -> bool:
    """True if torch is there and sees a device that Triton can launch on."""
    try:
        import torch
    except ModuleNotFoundError:
        return False
    return torch.cuda.is_available()


# Long enough for the host to have queued a launch and the event behind it, at the rates of GPUs of today (1 to 2 GHz).
_HOLD_CYCLES = 200_000


class TorchDevice:
    """torch's devices, with torch's own memory and events. See ``Device``."""

    def __init__(self) -> None:
        self._staging = torch.empty(0, dtype=torch.uint8)
        self._streams: dict[int, torch.cuda.Stream] = {}

    def current(self) -> int:
        return torch.cuda.current_device()

    def names(self) -> list[str]:
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]

    def uuids(self) -> list[str]:
        properties = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        return [str(getattr(one, "uuid", "")) for one in properties]

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def zeros(self, size_bytes: int, stream: int) -> Buffer:
        # Of a CTA that never ran, or a warp that never recorded, nothing is written.
        with _on(stream), _telling_of_memory():
            return torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")

    def zeros_outside_graphs(self, size_bytes: int) -> Buffer:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with relaxed_capture(), torch.cuda.stream(stream), _telling_of_memory():
            buffer = torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")
            stream.synchronize()
        return buffer

    def mark(self, stream: int) -> Event:
        with _on(stream):
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record()
        return event

    def timing_mark(self, stream: int) -> Event:
        with _on(stream):
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            # By the class below, where the program's events are not watched.
            torch._C._CudaEventBase.record(event, torch.cuda.current_stream())
        return event

    def hold(self, stream: int) -> None:
        with _on(stream):
            torch.cuda._sleep(_HOLD_CYCLES)  # type: ignore[no-untyped-call]

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        # On the launch's stream, the program's next kernel would wait for the copy.
        with relaxed_capture(), torch.cuda.device(device):
            if self._staging.numel() < size_bytes:
                self._staging = _pinned(size_bytes, instead_of=self._staging)
            if device not in self._streams:
                self._streams[device] = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream = self._streams[device]
            with torch.cuda.stream(stream):
                done.synchronize()
                host = self._staging[:size_bytes]
                host.copy_(buffer[:size_bytes], non_blocking=True)
                stream.synchronize()
        return host.numpy().data

    def selected(self, device: int) -> AbstractContextManager[None]:
        """A context in which this device is the current one."""
        return torch.cuda.device(device)

    def synchronise(self, device: int) -> None:
        torch.cuda.synchronize(device)

    def read_clock(self, device: int) -> ClockReading | None:
        return None

    def unaffected_by_graphs(self) -> AbstractContextManager[None]:
        return relaxed_capture()


def _pinned(size_bytes: int, instead_of: torch.Tensor) -> torch.Tensor:
    """Host memory that the device can copy to by itself.

    It is not torch's own pinned memory: when torch frees that after a fault of the device, it ends the process."""
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if instead_of.numel():
        runtime.cudaHostUnregister(instead_of.data_ptr())
    staging = torch.empty(size_bytes, dtype=torch.uint8)
    runtime.cudaHostRegister(staging.data_ptr(), size_bytes, 0)
    return staging


def _on(stream: int) -> Any:
    """A context in which torch allocates and works on the launch's stream."""
    if stream == torch.cuda.current_stream().cuda_stream:
        return torch.cuda.stream(None)  # does nothing
    return torch.cuda.stream(torch.cuda.ExternalStream(stream))  # type: ignore[no-untyped-call]


@contextmanager
def _telling_of_memory() -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise NoDeviceMemory(str(error)) from None

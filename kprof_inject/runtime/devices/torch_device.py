"""The devices of this process: by torch, and NVIDIA's with memory and events from the driver."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.runtime.devices.cuda_driver import Driver, MemoryRange, NoDeviceMemory, loaded_driver, relaxed_capture
from kprof_inject.runtime.devices.device import Buffer, Device, Event, FindAllocation

_MAX_CYCLES_PER_NS = 2  # above the clocks of present GPUs


class _TorchsChoice:
    """Devices and streams as torch numbers and chooses them. See ``Device``."""

    def current(self) -> int:
        return torch.cuda.current_device()

    def names(self) -> list[str]:
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]

    def uuids(self) -> list[str]:
        all_properties = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        return [str(getattr(properties, "uuid", "")) for properties in all_properties]

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def current_stream(self) -> int:
        return int(torch.cuda.current_stream().cuda_stream)


class _TorchDevice(_TorchsChoice, Device):
    """The devices with torch's own memory and events, without any driver. See ``Device``."""

    can_save_launches = False

    def __init__(self) -> None:
        self._staging = torch.empty(0, dtype=torch.uint8)
        self._copy_streams: dict[int, torch.cuda.Stream] = {}

    def prepare(self) -> None:
        pass  # torch loads its own kernels

    def zeros(self, size_bytes: int, stream: int) -> Buffer:
        # Zeroed, because CTAs that never ran and warps that never recorded write nothing.
        with _on(stream), _raising_no_memory():
            return torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")

    def zeros_outside_graphs(self, size_bytes: int) -> Buffer:
        stream = torch.cuda.Stream()
        with relaxed_capture(), torch.cuda.stream(stream), _raising_no_memory():
            buffer = torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")
            stream.synchronize()
        return buffer

    def clear(self, buffer: Any, size_bytes: int, stream: int) -> None:
        with _on(stream):
            buffer[:size_bytes].zero_()

    def mark(self, stream: int) -> Event:
        with _on(stream):
            event = torch.cuda.Event(blocking=True)
            event.record()
        return event

    def timing_mark(self, stream: int) -> Event:
        with _on(stream):
            event = torch.cuda.Event(enable_timing=True)
            # The base class's method, because torch.cuda.Event's is wrapped to detect the program's events.
            torch._C._CudaEventBase.record(event, torch.cuda.current_stream())
        return event

    def hold(self, stream: int, for_ns: int) -> None:
        with _on(stream):
            torch.cuda._sleep(_MAX_CYCLES_PER_NS * for_ns)

    def launch_empty(self, stream: int, threads: int, shared_bytes: int) -> None:
        # torch's shortest kernel, which has threads and shared memory of its own
        with _on(stream):
            torch.cuda._sleep(0)

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        # On a stream of ours: on the launch's stream, the program's next kernel would wait for the copy.
        with relaxed_capture(), torch.cuda.device(device):
            if self._staging.numel() < size_bytes:
                # Not torch's own pinned memory: when torch frees that after a fault of the device, it ends the process.
                runtime: Any = torch.cuda.cudart()
                if self._staging.numel():
                    runtime.cudaHostUnregister(self._staging.data_ptr())
                staging = torch.empty(size_bytes, dtype=torch.uint8)
                runtime.cudaHostRegister(staging.data_ptr(), size_bytes, 0)
                self._staging = staging
            if device not in self._copy_streams:
                self._copy_streams[device] = torch.cuda.Stream()
            stream = self._copy_streams[device]
            with torch.cuda.stream(stream):
                done.synchronize()
                host = self._staging[:size_bytes]
                host.copy_(buffer[:size_bytes], non_blocking=True)
                stream.synchronize()
        return host.numpy().data

    def selected(self, device: int) -> AbstractContextManager[None]:
        return torch.cuda.device(device)

    def synchronise(self, device: int) -> None:
        torch.cuda.synchronize(device)

    def read_clock(self, device: int) -> ClockRecord | None:
        return None  # torch cannot read the timer


def _on(stream: int) -> Any:
    """Return a context in which torch allocates and works on this stream."""
    if stream == torch.cuda.current_stream().cuda_stream:
        return torch.cuda.stream(None)  # does nothing
    return torch.cuda.stream(torch.cuda.ExternalStream(stream))


@contextmanager
def _raising_no_memory() -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise NoDeviceMemory(str(error)) from None


class _TorchCudaDevice(_TorchsChoice, Device):
    """NVIDIA's devices, with torch's choice of the present device and stream. See ``Device``."""

    def allocations(self) -> FindAllocation:
        # A block of torch is smaller than the driver's allocation, and expandable segments are several of these.
        of_driver = super().allocations()
        sorted_blocks = functools.cache(_blocks)  # most launches need none
        sorted_starts = functools.cache(lambda: [block.address for block in sorted_blocks()])

        def find(address: int) -> MemoryRange | None:
            blocks, starts = sorted_blocks(), sorted_starts()
            place = bisect_right(starts, address) - 1
            return blocks[place] if place >= 0 and address < blocks[place].end else of_driver(address)

        return find

    @contextmanager
    def selected(self, device: int) -> Iterator[None]:
        # The driver's context is set too, because a thread that has not used the device yet has none.
        with torch.cuda.device(device), super().selected(device):
            yield


def _blocks() -> list[MemoryRange]:
    """Return the blocks of torch's allocator in ascending order; none if torch cannot tell."""
    try:
        segments = torch.cuda.memory_snapshot()
    except RuntimeError:  # cudaMallocAsync has no snapshot
        return []
    blocks = []
    for segment in segments:
        start = segment["address"]
        for block in segment["blocks"]:
            blocks.append(MemoryRange(start, block["size"]))
            start += block["size"]
    return sorted(blocks, key=lambda block: block.address)


def torchs_devices() -> Device:
    """Return NVIDIA's devices by their driver, or other devices by torch."""
    driver = loaded_driver() if torch.version.cuda is not None else None
    return _TorchCudaDevice(Driver(driver)) if driver is not None else _TorchDevice()

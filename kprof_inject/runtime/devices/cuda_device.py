"""NVIDIA's devices: torch says which, and our memory and events come from the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kprof_inject.runtime.devices.cuda_driver import relaxed_capture
from kprof_inject.runtime.devices.cuda_kernels import CudaKernels
from kprof_inject.runtime.devices.cuda_memory import CudaBuffer, CudaEvent, CudaMemory, Driver
from kprof_inject.runtime.devices.device import ClockReading
from kprof_inject.runtime.devices.torch_device import TorchDevice


class CudaDevice(TorchDevice):
    """See ``Device``."""

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self._memory = CudaMemory(driver)
        self._kernels = CudaKernels(driver, self._memory)

    def zeros(self, size_bytes: int, stream: int) -> CudaBuffer:
        return self._memory.zeros(size_bytes, self.current(), stream)

    def zeros_outside_graphs(self, size_bytes: int) -> CudaBuffer:
        with relaxed_capture():
            return self._memory.zeros_now(size_bytes, self.current())

    def mark(self, stream: int) -> CudaEvent:
        return CudaEvent.to_wait_for(self._driver, stream)

    def timing_mark(self, stream: int) -> CudaEvent:
        return CudaEvent.to_time(self._driver, stream)

    def hold(self, stream: int) -> None:
        self._kernels.hold(self.current(), stream)

    def read_clock(self, device: int) -> ClockReading | None:
        with relaxed_capture(), self.selected(device):
            return self._kernels.read_clock(device)

    @contextmanager
    def selected(self, device: int) -> Iterator[None]:
        """Of the driver, too: a thread that has not used a device yet has no context there."""
        with torch.cuda.device(device), self._driver.context(device):
            yield

    def fetch(self, buffer: Any, size_bytes: int, device: int, done: Any) -> memoryview:
        with relaxed_capture(), self.selected(device):
            done.synchronize()
            return self._memory.fetch(buffer, size_bytes, device)

"""NVIDIA's devices: torch says which, and our memory and events come from the driver."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kprof_inject.runtime.devices.cuda_driver import loaded_driver, relaxed_capture
from kprof_inject.runtime.devices.cuda_memory import CudaBuffer, CudaEvent, CudaMemory, Driver
from kprof_inject.runtime.devices.torch_device import ClockReading, Device, TorchDevice

# Two kernels of our own, of one thread each, in PTX.
#
# PTX ISA, "Special Registers": ``%globaltimer`` counts nanoseconds.

_PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry read_timer(.param .u64 to)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    mov.u64 %rd2, %globaltimer;
    st.global.u64 [%rd1], %rd2;
    ret;
}
.visible .entry hold(.param .u64 for_ns)
{
    .reg .b64 %rd<5>;
    .reg .pred %p;
    ld.param.u64 %rd1, [for_ns];
    mov.u64 %rd2, %globaltimer;
AGAIN:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p, %rd4, %rd1;
    @%p bra AGAIN;
    ret;
}
"""
# Long enough for the host to have queued a launch and the event behind it.
_HOLD_NS = 100_000
_TRIES = 50
# A device that is busy keeps us waiting at each try.
_MOST_NS = 20_000_000
_WORD_BYTES = 8


class CudaKernels:
    """The kernels, loaded on each device at their first use. Every method works on the current device."""

    def __init__(self, driver: Driver, memory: CudaMemory) -> None:
        self._driver = driver
        self._memory = memory
        self._words: dict[int, CudaBuffer] = {}
        self._functions: dict[tuple[int, bytes], ctypes.c_void_p] = {}

    def hold(self, device: int, stream: int) -> None:
        """Keep ``stream`` busy for a while."""
        self._launch(self._function(device, b"hold"), ctypes.c_uint64(_HOLD_NS), ctypes.c_void_p(stream))

    def read_clock(self, device: int) -> ClockReading | None:
        """Read the timer some times, and keep the reading that the host can bound best."""
        return min(self._readings(device), key=lambda one: one.error_ns, default=None)

    def _readings(self, device: int) -> Iterator[ClockReading]:
        function = self._function(device, b"read_timer")
        stream = self._memory.urgent_stream(device)
        if device not in self._words:
            self._words[device] = self._memory.zeros_now(_WORD_BYTES, device)
        word = self._words[device]
        begun = time.time_ns()
        for _ in range(_TRIES):
            before = time.time_ns()
            self._launch(function, ctypes.c_uint64(word.data_ptr()), stream)
            self._driver.call("cuStreamSynchronize", stream)
            after = time.time_ns()
            read = int.from_bytes(self._memory.fetch(word, _WORD_BYTES, device), "little")
            yield ClockReading((before + after) // 2, read, (after - before + 1) // 2)
            if after - begun > _MOST_NS:
                return

    def _function(self, device: int, name: bytes) -> ctypes.c_void_p:
        if (device, name) not in self._functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            with relaxed_capture():  # another thread may be capturing
                self._driver.call("cuModuleLoadData", ctypes.byref(module), _PTX)
                self._driver.call("cuModuleGetFunction", ctypes.byref(function), module, name)
            self._functions[device, name] = function
        return self._functions[device, name]

    def _launch(self, function: ctypes.c_void_p, argument: Any, stream: ctypes.c_void_p) -> None:
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(argument), ctypes.c_void_p))
        self._driver.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)


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


# Which devices this process has.


@functools.cache
def devices_of_process() -> Device:
    """NVIDIA's by their driver, others by torch. One for all: what memory it once took, it uses again."""
    driver = loaded_driver() if torch.version.cuda is not None else None
    return CudaDevice(Driver(driver)) if driver is not None else TorchDevice()

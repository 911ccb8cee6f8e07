"""Relates a device's globaltimer to the host's clock. NVIDIA alone: elsewhere there is no reading."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from typing import Any

import torch

from kprof_inject.runtime.cuda_driver import library, relaxed_capture
from kprof_inject.runtime.device import ClockReading

# PTX ISA, "Special Registers": %globaltimer counts nanoseconds.
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
"""
_TRIES = 50
# A device that is busy keeps us waiting at each try.
_MOST_NS = 20_000_000


def read_device_clock(device: int) -> ClockReading | None:
    """Launch a kernel of one thread some times, and keep the reading that the host can bound best; None if this is no
    NVIDIA device, or its driver refuses."""
    driver = library()
    if driver is None or torch.version.cuda is None:
        return None
    with relaxed_capture(), torch.cuda.device(device):
        stream = torch.cuda.Stream(priority=-5)  # type: ignore[no-untyped-call] # torch takes the nearest it has
        word = torch.zeros(1, dtype=torch.int64, device="cuda")
        torch.cuda.current_stream().synchronize()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        if driver.cuModuleLoadData(ctypes.byref(module), _PTX):
            return None
        try:
            if driver.cuModuleGetFunction(ctypes.byref(function), module, b"read_timer"):
                return None
            readings = list(_readings(driver, function, stream, word))
        finally:
            driver.cuModuleUnload(module)
    return min(readings, key=lambda one: one.error_ns, default=None)


def _readings(driver: Any, function: Any, stream: torch.cuda.Stream, word: torch.Tensor) -> Iterator[ClockReading]:
    begun = time.time_ns()
    for _ in range(_TRIES):
        reading = _read_once(driver, function, stream, word)
        if reading is None:
            return
        yield reading
        if reading.host_ns - begun > _MOST_NS:
            return


def _read_once(driver: Any, function: Any, stream: torch.cuda.Stream, word: torch.Tensor) -> ClockReading | None:
    address = ctypes.c_uint64(word.data_ptr())
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(address), ctypes.c_void_p))
    handle = ctypes.c_void_p(stream.cuda_stream)
    before = time.time_ns()
    status = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, handle, arguments, None)
    status = status or driver.cuStreamSynchronize(handle)
    after = time.time_ns()
    if status:
        return None
    return ClockReading((before + after) // 2, int(word.item()), (after - before + 1) // 2)

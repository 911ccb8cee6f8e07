"""The few calls of the CUDA driver that torch does not offer, by ctypes. On other devices they do nothing.

Source: CUDA Driver API reference, "Stream Management", "Occupancy", "Module Management", "Execution Control".
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kprof_inject.runtime.devices.device import NoDeviceMemory

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


@functools.cache
def loaded_driver() -> ctypes.CDLL | None:
    """The driver's functions, or None where there is no NVIDIA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread allocate and wait while any thread captures a CUDA graph.

    A thread without this breaks a capture that another one has begun in the (default) global mode."""
    driver = loaded_driver()
    if driver is None:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchanged = driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0
    try:
        yield
    finally:
        if exchanged:
            driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


def ctas_per_sm(function: int, threads: int, shared_bytes: int) -> int | None:
    """How many CTAs of a loaded kernel one SM holds at once; None if the driver does not tell."""
    driver = loaded_driver()
    if driver is None:
        return None
    count = ctypes.c_int()
    status = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(count), ctypes.c_void_p(function), ctypes.c_int(threads), ctypes.c_size_t(shared_bytes)
    )
    return count.value if status == 0 else None


class Driver:
    """The driver's functions, as methods that raise ``RuntimeError`` where the driver reports a failure."""

    def __init__(self, functions: Any) -> None:
        self.functions = functions
        self._contexts: dict[int, ctypes.c_void_p] = {}

    @contextmanager
    def context(self, device: int) -> Iterator[None]:
        """Have this thread work in the device's primary context, which is torch's and Triton's, too."""
        if device not in self._contexts:
            handle, context = ctypes.c_int(), ctypes.c_void_p()
            self.call("cuDeviceGet", ctypes.byref(handle), device)
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
            self._contexts[device] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.functions, name)(*arguments)
        if status == _OUT_OF_MEMORY:
            raise NoDeviceMemory(f"{name}: out of memory")
        if status:
            raise RuntimeError(f"{name} failed: CUDA driver error {status}")


# A stack that the PTX asks for itself, such as the one in which Proton keeps the place of its next record.
_STACK = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+__local_depot\d+\[(\d+)\]")
# What ptxas rounds a frame up to: seen on sm_90, where a stack of 4 bytes makes 8 of local memory.
_FRAME_UNIT_BYTES = 8


def resources_of(kernel: Any) -> dict[str, Any]:
    """Registers a thread, words that the assembler spilled, shared bytes a CTA, and CTAs that an SM holds at once (None
    if unknown).

    Triton takes all local memory for spills (``local_words``); what is a stack is taken off again."""
    threads = kernel.metadata.num_warps * kernel.metadata.target.warp_size
    stack_bytes = sum(int(size) for size in _STACK.findall(kernel.asm.get("ptx", "")))
    stack_words = -(-stack_bytes // _FRAME_UNIT_BYTES) * _FRAME_UNIT_BYTES // 4
    return {
        "registers": kernel.n_regs,
        "local_words": kernel.n_spills,
        "spills": max(kernel.n_spills - stack_words, 0),
        "shared_bytes": kernel.metadata.shared,
        "ctas_per_sm": ctas_per_sm(kernel.function, threads, kernel.metadata.shared),
    }

"""The few calls of the CUDA driver that torch does not offer, by ctypes. On other devices they do nothing.

Source: CUDA Driver API reference, "Stream Management", "Occupancy", "Module Management", "Execution Control".
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


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

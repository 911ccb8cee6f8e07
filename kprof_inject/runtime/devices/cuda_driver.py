"""Call the CUDA driver by ctypes: its functions with errors as exceptions, events and memory, and our own kernels.

These read timers and clocks, keep a stream busy, and digest memory. The digest is the sum over all words of a hash of
each word and its position: the generator splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
generators", 2014).

Source: CUDA Driver API reference, "Stream Management", "Graph Management", "Occupancy", "Event Management", "Module
Management" and "Execution Control".
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_BLOCKING_WITHOUT_TIME = 1 | 2  # CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING
_WITH_TIME = 0  # CU_EVENT_DEFAULT
_PACKED_ALIGNMENT = 512


class NoDeviceMemory(Exception):
    """Error that the device has no room for a buffer."""


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """A range of the device's memory."""

    address: int
    size_bytes: int

    @property
    def end(self) -> int:
        """First address after the range."""
        return self.address + self.size_bytes


def packed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return the offsets of parts with these sizes in a buffer, and the buffer's size, in bytes."""
    aligned = (-(-size_bytes // _PACKED_ALIGNMENT) * _PACKED_ALIGNMENT for size_bytes in sizes)
    *offsets, end = accumulate(aligned, initial=0)
    return offsets, end


@functools.cache
def loaded_driver() -> ctypes.CDLL | None:
    """Return the driver's functions, or None if there is no NVIDIA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Let this thread allocate and wait while any thread captures a CUDA graph.

    Without this, it would break a capture that another thread began in the (default) global mode.
    """
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


def _queried(name: str, *arguments: Any) -> int | None:
    """Return what a function of the driver reports; None if there is no driver, or the function fails."""
    driver, value = loaded_driver(), ctypes.c_uint64()
    if driver is None or getattr(driver, name)(ctypes.byref(value), *map(_passed, arguments)):
        return None
    return value.value


_L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE


def l2_bytes() -> int:
    """Return the size of the current device's L2; 0 if the driver does not report it."""
    device = _queried("cuCtxGetDevice")
    return 0 if device is None else _queried("cuDeviceGetAttribute", _L2_CACHE_SIZE, device) or 0


def current_context() -> int:
    """Return the handle of this thread's current context; 0 if there is none."""
    return _queried("cuCtxGetCurrent") or 0


def driver_version() -> int:
    """Return the version of CUDA that the driver supports, as ``cuDriverGetVersion`` counts; 0 if unknown."""
    return _queried("cuDriverGetVersion") or 0


def _passed(argument: Any) -> Any:
    # 64 bits suit all integers, handles and addresses: each takes a whole register or place on the stack.
    return ctypes.c_uint64(argument) if isinstance(argument, int) else argument


class Driver:
    """The driver's functions, called by name, with errors as exceptions.

    Integers, handles and addresses are passed as integers. Calls raise ``NoDeviceMemory``, and ``RuntimeError`` for any
    other error of the driver.
    """

    def __init__(self, functions: Any) -> None:
        self.functions = functions
        self._contexts: dict[int, int] = {}

    @contextmanager
    def context(self, device: int) -> Iterator[None]:
        """Have this thread work in the device's primary context, which torch and Triton use too."""
        if device not in self._contexts:
            self._contexts[device] = self.get("cuDevicePrimaryCtxRetain", self.get("cuDeviceGet", device))
        self.call("cuCtxPushCurrent_v2", self._contexts[device])
        try:
            yield
        finally:
            self.get("cuCtxPopCurrent_v2")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function."""
        status = getattr(self.functions, name)(*map(_passed, arguments))
        if status == _OUT_OF_MEMORY:
            raise NoDeviceMemory(f"{name}: out of memory")
        if status:
            raise RuntimeError(f"{name} failed: CUDA driver error {status}")

    def get(self, name: str, *arguments: Any) -> int:
        """Call a function that writes an integer, a handle or an address to its first argument, and return that."""
        value = ctypes.c_uint64()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function, and return its result code, 0 if there was no error."""
        return int(getattr(self.functions, name)(*map(_passed, arguments)))


# A stack that the PTX declares, such as the one in which Proton keeps the index of its next record.
_STACK = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+__local_depot\d+\[(\d+)\]")
# ptxas rounds a frame up to a multiple of this: on sm_90, a stack of 4 bytes was seen to take 8 of local memory.
_FRAME_UNIT_BYTES = 8


def resources_of(kernel: Any) -> dict[str, Any]:
    """Return a loaded kernel's registers and spilled words a thread, shared bytes a CTA, and CTAs an SM holds at once.

    Unknown values are None. Triton reports all local memory as spills (``local_words``), so ``spills`` is that without
    the stack.
    """
    threads, shared_bytes = kernel.metadata.num_warps * kernel.metadata.target.warp_size, kernel.metadata.shared
    count_ctas = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    return {
        "registers": kernel.n_regs,
        "local_words": kernel.n_spills,
        "spills": spilled_words(kernel.n_spills, kernel.asm.get("ptx", "")),
        "shared_bytes": shared_bytes,
        "ctas_per_sm": _queried(count_ctas, kernel.function, threads, shared_bytes),
    }


def spilled_words(local_words: int, ptx: str) -> int:
    """Return the words of a thread's local memory that are not a stack of the PTX."""
    stack_bytes = sum(int(size) for size in _STACK.findall(ptx))
    stack_words = -(-stack_bytes // _FRAME_UNIT_BYTES) * _FRAME_UNIT_BYTES // 4
    return max(local_words - stack_words, 0)


class CudaEvent:
    """A point in a stream, after all its present work: to wait for, or with a time."""

    def __init__(self, driver: Driver, stream: int, *, is_timed: bool = False) -> None:
        self._driver = driver
        self._handle = 0  # of no event, if there is none to be had
        self._handle = driver.get("cuEventCreate", _WITH_TIME if is_timed else _BLOCKING_WITHOUT_TIME)
        driver.call("cuEventRecord", self._handle, stream)

    def synchronize(self) -> None:
        """Wait until the event has happened."""
        self._driver.call("cuEventSynchronize", self._handle)

    def query(self) -> bool:
        """Return whether the event has happened."""
        with relaxed_capture():  # another thread may be capturing
            status = self._driver.status("cuEventQuery", self._handle)
        if status not in (0, _NOT_READY):
            raise RuntimeError(f"cuEventQuery failed: CUDA driver error {status}")
        return status == 0

    def elapsed_time(self, end: CudaEvent) -> float:
        """Return the milliseconds to a later event; both have happened."""
        result = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(result), self._handle, end._handle)
        return result.value

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # The status is ignored: a failed device has reported its error before. The end of the process frees all events.
        if not is_finalizing():
            self._driver.status("cuEventDestroy_v2", self._handle)


# PTX ISA, "Special Registers": %globaltimer counts nanoseconds.
_PTX = """
.version 7.0
.target sm_50
.address_size 64
.visible .entry kprof_read_timer(.param .u64 to)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [to];
    mov.u64 %rd2, %globaltimer;
    st.global.u64 [%rd1], %rd2;
    ret;
}
.visible .entry kprof_empty()
{
    ret;
}
.visible .entry kprof_hold(.param .u64 for_ns)
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
.visible .entry kprof_count_cycles(.param .u64 to, .param .u64 for_ns)
{
    .reg .b64 %rd<10>;
    .reg .pred %p;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [for_ns];
    mov.u64 %rd3, %globaltimer;
STEP:
    mov.u64 %rd4, %globaltimer;
    mov.u64 %rd5, %clock64;
    setp.eq.u64 %p, %rd3, %rd4;
    @%p bra STEP;
AGAIN:
    mov.u64 %rd6, %globaltimer;
    mov.u64 %rd7, %clock64;
    sub.u64 %rd8, %rd6, %rd4;
    setp.lt.u64 %p, %rd8, %rd2;
    @%p bra AGAIN;
    sub.u64 %rd9, %rd7, %rd5;
    st.global.u64 [%rd1], %rd9;
    st.global.u64 [%rd1+8], %rd8;
    ret;
}
.visible .entry kprof_digest(.param .u64 of, .param .u64 size, .param .u64 to)
{
    .reg .b64 %rd<12>;
    .reg .b32 %r<6>;
    .reg .pred %p;
    ld.param.u64 %rd1, [of];
    ld.param.u64 %rd2, [size];
    ld.param.u64 %rd3, [to];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mul.wide.u32 %rd4, %r1, %r2;
    cvt.u64.u32 %rd5, %r3;
    add.u64 %rd4, %rd4, %rd5;
    mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %rd5, %r4, %r2;
    shr.u64 %rd9, %rd2, 3;
    mov.u64 %rd6, 0;
NEXT:
    setp.gt.u64 %p, %rd4, %rd9;
    @%p bra DONE;
    shl.b64 %rd7, %rd4, 3;
    add.u64 %rd8, %rd1, %rd7;
    setp.eq.u64 %p, %rd4, %rd9;
    @%p bra REST;
    ld.global.u64 %rd10, [%rd8];
    bra MIX;
REST:
    mov.u64 %rd10, 0;
REST_NEXT:
    setp.ge.u64 %p, %rd7, %rd2;
    @%p bra MIX;
    ld.global.u8 %r5, [%rd8];
    cvt.u64.u32 %rd11, %r5;
    shl.b64 %rd10, %rd10, 8;
    or.b64 %rd10, %rd10, %rd11;
    add.u64 %rd7, %rd7, 1;
    add.u64 %rd8, %rd8, 1;
    bra REST_NEXT;
MIX:
    add.u64 %rd7, %rd4, 1;
    mul.lo.u64 %rd7, %rd7, 0x9e3779b97f4a7c15;
    add.u64 %rd7, %rd7, %rd10;
    shr.u64 %rd8, %rd7, 30;
    xor.b64 %rd7, %rd7, %rd8;
    mul.lo.u64 %rd7, %rd7, 0xbf58476d1ce4e5b9;
    shr.u64 %rd8, %rd7, 27;
    xor.b64 %rd7, %rd7, %rd8;
    mul.lo.u64 %rd7, %rd7, 0x94d049bb133111eb;
    shr.u64 %rd8, %rd7, 31;
    xor.b64 %rd7, %rd7, %rd8;
    add.u64 %rd6, %rd6, %rd7;
    add.u64 %rd4, %rd4, %rd5;
    bra NEXT;
DONE:
    red.global.add.u64 [%rd3], %rd6;
    ret;
}
"""
ENTRY = re.compile(r"\.visible \.entry (\w+)\(")  # the directive that begins a kernel, with its name

_REGISTERS = 4  # CU_FUNC_ATTRIBUTE_NUM_REGS


class CudaKernels:
    """Our own kernels, loaded on each device once. Every method works on the current device."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._modules: dict[int, int] = {}
        self._functions: dict[tuple[int, str], int] = {}

    def load(self, device: int) -> None:
        """Load all kernels that are not loaded yet, for which the driver and the device wait for running kernels."""
        for name in ENTRY.findall(_PTX):
            self.function(device, name)

    def function(self, device: int, name: str) -> int:
        """Return a kernel, which is loaded if it was not."""
        if (device, name) not in self._functions:
            with relaxed_capture():  # another thread may be capturing
                if device not in self._modules:
                    self._modules[device] = self._driver.get("cuModuleLoadData", _PTX.encode())
                function = self._driver.get("cuModuleGetFunction", self._modules[device], name.encode())
                # Else its code is loaded at its first launch ("Lazy Loading" in the CUDA C++ Programming Guide).
                self._driver.get("cuFuncGetAttribute", _REGISTERS, function)
            self._functions[device, name] = function
        return self._functions[device, name]

    def launch(
        self, function: int, stream: int, *arguments: int, ctas: int = 1, threads: int = 1, shared_bytes: int = 0
    ) -> None:
        """Launch a loaded kernel, whose arguments have 64 bits each."""
        values = [ctypes.c_uint64(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self._driver.call("cuLaunchKernel", function, ctas, 1, 1, threads, 1, 1, shared_bytes, stream, pointers, None)

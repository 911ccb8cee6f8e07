"""Our own kernels for NVIDIA GPUs, which read timers and clocks, keep a stream busy, and digest memory.

Source: CUDA Driver API reference, "Module Management" and "Execution Control".
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Iterator
from typing import Any

from kprof_inject.runtime.devices.cuda_driver import CudaBuffer, CudaMemory, Driver, relaxed_capture
from kprof_inject.runtime.devices.device import ClockReading

# PTX ISA, "Special Registers": %globaltimer counts nanoseconds.
_PTX = b"""
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
_WARP_THREADS = 32
# A kernel needs the attribute for more shared memory than this (CUDA C++ Programming Guide, "Dynamic shared memory").
_MAX_DEFAULT_SHARED_BYTES = 48 << 10
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_REGISTERS = 4  # CU_FUNC_ATTRIBUTE_NUM_REGS
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(")
_DIGEST_CTAS, _DIGEST_THREADS = 1024, 256
_TRIES = 50
# Time limit of all tries together, because on a busy device each one waits.
_MAX_NS = 20_000_000
_WORD_BYTES = 8
# So long that the timer's step at both ends, 32 ns or 1 us each, is at most 2 % of it.
_COUNTED_NS = 100_000


class CudaKernels:
    """Our own kernels, loaded on each device once. Every method works on the current device."""

    def __init__(self, driver: Driver, memory: CudaMemory) -> None:
        """Begin without any loaded kernel; results go through ``memory``."""
        self._driver = driver
        self._memory = memory
        self._words: dict[int, CudaBuffer] = {}
        self._counts: dict[int, CudaBuffer] = {}
        self._empty_shared_bytes: dict[int, int] = {}
        self._modules: dict[int, ctypes.c_void_p] = {}
        self._functions: dict[tuple[int, bytes], ctypes.c_void_p] = {}

    def load(self, device: int) -> None:
        """Load all kernels that are not loaded yet, for which the driver and the device wait for running kernels."""
        for name in _ENTRY.findall(_PTX.decode()):
            self._function(device, name.encode())

    def hold(self, device: int, stream: int, for_ns: int) -> None:
        """Keep ``stream`` busy for at least ``for_ns``."""
        self._launch(self._function(device, b"kprof_hold"), ctypes.c_void_p(stream), ctypes.c_uint64(for_ns))

    def launch_empty(self, device: int, stream: int, threads: int, shared_bytes: int) -> None:
        """Launch a CTA of a kernel that does nothing.

        For more shared memory than the default limit, the kernel gets the same attributes as Triton sets.
        """
        function = self._function(device, b"kprof_empty")
        if shared_bytes > self._empty_shared_bytes.get(device, _MAX_DEFAULT_SHARED_BYTES):
            self._driver.call("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            self._driver.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared_bytes)
            self._empty_shared_bytes[device] = shared_bytes
        self._launch(function, ctypes.c_void_p(stream), threads=threads, shared_bytes=shared_bytes)

    def digest(self, device: int, address: int, size_bytes: int, stream: int) -> int:
        """Wait for ``stream``, and return what ``queue_digest`` adds."""
        with self._memory.borrowed(_WORD_BYTES, device, stream) as word:
            self.queue_digest(device, address, size_bytes, word.data_ptr(), stream)
            return self._words_at(word.data_ptr(), 1, device, stream)[0]

    def queue_digest(self, device: int, address: int, size_bytes: int, word: int, stream: int) -> None:
        """Queue a digest of memory, which is added to the 64-bit word at ``word``.

        ``address`` is a multiple of 8. The digest is the sum over all words of a hash of each word and its position:
        the generator splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
        """
        arguments = (ctypes.c_uint64(address), ctypes.c_uint64(size_bytes), ctypes.c_uint64(word))
        function = self._function(device, b"kprof_digest")
        self._launch(function, ctypes.c_void_p(stream), *arguments, ctas=_DIGEST_CTAS, threads=_DIGEST_THREADS)

    def sm_clock_hz(self, device: int, stream: int) -> float:
        """Measure the frequency of an SM's clock after all present work of ``stream``, and wait for it."""
        if device not in self._counts:
            self._counts[device] = self._memory.zeros_now(2 * _WORD_BYTES, device)
        address = self._counts[device].data_ptr()
        function = self._function(device, b"kprof_count_cycles")
        self._launch(function, ctypes.c_void_p(stream), ctypes.c_uint64(address), ctypes.c_uint64(_COUNTED_NS))
        cycles, elapsed_ns = self._words_at(address, 2, device, stream)
        return 1e9 * cycles / elapsed_ns

    def counted(self, device: int, ptx: str, words: int, stream: int) -> list[int]:
        """Run the only kernel of a PTX text with one warp, and return the 64-bit words that it writes."""
        module, function, kernel = ctypes.c_void_p(), ctypes.c_void_p(), _ENTRY.search(ptx)
        self._driver.call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        try:
            self._driver.call(
                "cuModuleGetFunction", ctypes.byref(function), module, kernel[1].encode() if kernel else b""
            )
            with self._memory.borrowed(words * _WORD_BYTES, device, stream) as buffer:
                address = ctypes.c_uint64(buffer.data_ptr())
                self._launch(function, ctypes.c_void_p(stream), address, threads=_WARP_THREADS)
                return self._words_at(buffer.data_ptr(), words, device, stream)
        finally:
            self._driver.call("cuModuleUnload", module)

    def _words_at(self, address: int, words: int, device: int, stream: int) -> list[int]:
        return self._memory.contents(address, words * _WORD_BYTES, device, stream).cast("Q").tolist()

    def read_clock(self, device: int) -> ClockReading | None:
        """Read the timer several times, and return the reading with the smallest error."""
        return min(self._readings(device), key=lambda reading: reading.error_ns, default=None)

    def _readings(self, device: int) -> Iterator[ClockReading]:
        function = self._function(device, b"kprof_read_timer")
        stream = self._memory.urgent_stream(device)
        if device not in self._words:
            self._words[device] = self._memory.zeros_now(_WORD_BYTES, device)
        word = self._words[device]
        begun = time.time_ns()
        for _ in range(_TRIES):
            before = time.time_ns()
            self._launch(function, stream, ctypes.c_uint64(word.data_ptr()))
            self._driver.call("cuStreamSynchronize", stream)
            after = time.time_ns()
            read = int.from_bytes(self._memory.fetch(word, _WORD_BYTES, device), "little")
            yield ClockReading((before + after) // 2, read, (after - before + 1) // 2)
            if after - begun > _MAX_NS:
                return

    def _function(self, device: int, name: bytes) -> ctypes.c_void_p:
        if (device, name) not in self._functions:
            function = ctypes.c_void_p()
            with relaxed_capture():  # another thread may be capturing
                self._driver.call("cuModuleGetFunction", ctypes.byref(function), self._module(device), name)
                # Else its code is loaded at its first launch ("Lazy Loading" in the CUDA C++ Programming Guide).
                self._driver.call("cuFuncGetAttribute", ctypes.byref(ctypes.c_int()), _REGISTERS, function)
            self._functions[device, name] = function
        return self._functions[device, name]

    def _module(self, device: int) -> ctypes.c_void_p:
        if device not in self._modules:
            module = ctypes.c_void_p()
            self._driver.call("cuModuleLoadData", ctypes.byref(module), _PTX)
            self._modules[device] = module
        return self._modules[device]

    def _launch(
        self,
        function: ctypes.c_void_p,
        stream: ctypes.c_void_p,
        *arguments: Any,
        ctas: int = 1,
        threads: int = 1,
        shared_bytes: int = 0,
    ) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        self._driver.call("cuLaunchKernel", function, ctas, 1, 1, threads, 1, 1, shared_bytes, stream, pointers, None)

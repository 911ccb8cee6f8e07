"""Our own kernels for NVIDIA GPUs, which read timers and clocks, keep a stream busy, and digest memory.

The digest is the sum over all words of a hash of each word and its position: the generator splitmix64 (Steele, Lea,
Flood: "Fast splittable pseudorandom number generators", 2014).

Source: CUDA Driver API reference, "Module Management" and "Execution Control".
"""

from __future__ import annotations

import ctypes
import re

from kprof_inject.runtime.devices.cuda_driver import Driver, relaxed_capture

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
ENTRY = re.compile(r"\.visible \.entry (\w+)\(")
"""The directive that begins a kernel, with its name."""

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

"""Compare the timers of this host's GPUs, in a process of ours: ``python -m ...peer_clocks [UUID...]``.

Two GPUs write their timers into each other's memory again and again, and compare what arrives with their own. A time
arrives after it was written, so each bounds the difference of the timers from one side, by its way: some 0.5 µs over
NVLink (H100).

Source: CUDA Driver API reference, "Peer Context Memory Access"; PTX ISA, "Memory Consistency Model" (scope ``.sys``).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from kprof_inject.capture.peer_clocks import PeerClocksRecord, PeerReading
from kprof_inject.runtime.devices.cuda_device import CudaDevice
from kprof_inject.runtime.devices.cuda_driver import Driver, loaded_driver
from kprof_inject.runtime.devices.device import NoDeviceMemory

# The first CTA writes for ``for_ns``, the second compares for half as long, so that the other GPU still writes. It
# stores the largest difference that it saw, of the other's timer and its own, how many times arrived, and its own time.
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry kprof_compare_timers(.param .u64 mine, .param .u64 theirs, .param .u64 to, .param .u64 for_ns)
{
    .reg .b64 %rd<13>;
    .reg .b32 %r<2>;
    .reg .pred %p;
    ld.param.u64 %rd1, [mine];
    ld.param.u64 %rd2, [theirs];
    ld.param.u64 %rd3, [to];
    ld.param.u64 %rd4, [for_ns];
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p, %r1, 0;
    mov.u64 %rd5, %globaltimer;
    @%p bra COMPARE;
    add.u64 %rd6, %rd5, %rd4;
WRITE:
    mov.u64 %rd7, %globaltimer;
    st.relaxed.sys.global.u64 [%rd2], %rd7;
    setp.lt.u64 %p, %rd7, %rd6;
    @%p bra WRITE;
    ret;
COMPARE:
    shr.u64 %rd4, %rd4, 1;
    add.u64 %rd6, %rd5, %rd4;
    mov.u64 %rd8, 0;
    mov.u64 %rd9, 0;
    mov.s64 %rd10, -9223372036854775808;
NEXT:
    ld.relaxed.sys.global.u64 %rd7, [%rd1];
    setp.eq.u64 %p, %rd7, %rd8;
    @%p bra SAME;
    mov.u64 %rd11, %globaltimer;
    mov.u64 %rd8, %rd7;
    add.u64 %rd9, %rd9, 1;
    sub.s64 %rd12, %rd7, %rd11;
    max.s64 %rd10, %rd10, %rd12;
SAME:
    mov.u64 %rd11, %globaltimer;
    setp.lt.u64 %p, %rd11, %rd6;
    @%p bra NEXT;
    st.global.u64 [%rd3], %rd10;
    st.global.u64 [%rd3+8], %rd9;
    st.global.u64 [%rd3+16], %rd11;
    ret;
}
"""
_ENTRY = b"kprof_compare_timers"
_CTAS = 2
_FOR_NS = 8_000_000
# With fewer times, the GPUs did not write at the same time: another process may have kept one of them busy.
_MIN_ARRIVED = 100
_WORDS = 3
_WORD_BYTES = 8
# What arrives has a line of its own, so that polling it meets no other access.
_LINE_BYTES = 256
_SIZE_BYTES = _LINE_BYTES + _WORDS * _WORD_BYTES


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU with our kernel, and memory for the times that arrive and for what it found."""

    index: int
    function: ctypes.c_void_p
    memory: int


class Compared(NamedTuple):
    """The largest difference of a time that arrived at a GPU and its own, of ``arrived``, known at ``at_ns``."""

    max_ns: int
    arrived: int
    at_ns: int


class NotCompared(Exception):
    """Two GPUs could not compare their timers."""


def reading_of(reference: str, device: str, of_reference: Compared, of_device: Compared) -> PeerReading:
    """Return how two timers relate, given what both GPUs found.

    Raises ``NotCompared`` if too few times arrived, or if the bounds contradict each other.
    """
    if min(of_reference.arrived, of_device.arrived) < _MIN_ARRIVED:
        raise NotCompared("the GPUs did not write at the same time")
    lower_ns, upper_ns = of_reference.max_ns, -of_device.max_ns
    if lower_ns > upper_ns:
        raise NotCompared("a time arrived before it was written: a timer was set meanwhile")
    at_ns = of_reference.at_ns
    return PeerReading(
        reference=reference,
        device=device,
        reference_ns=at_ns,
        device_ns=at_ns + (upper_ns + lower_ns) // 2,
        error_ns=(upper_ns - lower_ns + 1) // 2,
    )


class PeerClocks:
    """The timers of the GPUs that this process sees."""

    def __init__(self, driver: Driver) -> None:
        """Use an initialized driver."""
        self._driver = driver
        self._uuids = CudaDevice(driver).uuids()

    def readings(self, wanted: Collection[str] = ()) -> Iterator[PeerReading]:
        """Yield how the timers of other GPUs relate to the first one's, where they reach each other's memory.

        ``wanted`` are their UUIDs; empty means all. The first GPU is always the reference.
        """
        for index, uuid in enumerate(self._uuids[1:], 1):
            if (not wanted or uuid in wanted) and self._reaches(0, index) and self._reaches(index, 0):
                # One GPU may have no memory left, or be another process's alone.
                with (
                    suppress(RuntimeError, NoDeviceMemory, NotCompared),
                    self._gpu(0) as first,
                    self._gpu(index) as other,
                ):
                    yield reading_of(self._uuids[0], uuid, *self._compared(first, other))

    def _reaches(self, one: int, other: int) -> bool:
        can = ctypes.c_int()
        self._driver.call("cuDeviceCanAccessPeer", ctypes.byref(can), self._handle(one), self._handle(other))
        return bool(can.value)

    def _handle(self, index: int) -> ctypes.c_int:
        handle = ctypes.c_int()
        self._driver.call("cuDeviceGet", ctypes.byref(handle), index)
        return handle

    @contextmanager
    def _gpu(self, index: int) -> Iterator[_Gpu]:
        """Load the kernel, and take zeroed memory on a GPU."""
        module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        with self._driver.context(index):
            self._driver.call("cuModuleLoadData", ctypes.byref(module), _PTX)
            self._driver.call("cuModuleGetFunction", ctypes.byref(function), module, _ENTRY)
            self._driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(_SIZE_BYTES))
            self._driver.call("cuMemsetD8_v2", memory, ctypes.c_ubyte(0), ctypes.c_size_t(_SIZE_BYTES))
            self._driver.call("cuCtxSynchronize")
        try:
            yield _Gpu(index, function, memory.value)
        finally:
            with self._driver.context(index):
                self._driver.call("cuMemFree_v2", memory)
                self._driver.call("cuModuleUnload", module)

    def _compared(self, first: _Gpu, other: _Gpu) -> tuple[Compared, Compared]:
        for one, peer in ((first, other), (other, first)):
            self._driver.enable_peer(one.index, peer.index)
        for one, peer in ((first, other), (other, first)):
            self._launch(one, peer)
        return self._found(first), self._found(other)

    def _launch(self, gpu: _Gpu, peer: _Gpu) -> None:
        arguments = [ctypes.c_uint64(word) for word in (gpu.memory, peer.memory, gpu.memory + _LINE_BYTES, _FOR_NS)]
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        with self._driver.context(gpu.index):
            self._driver.call("cuLaunchKernel", gpu.function, _CTAS, 1, 1, 1, 1, 1, 0, None, pointers, None)

    def _found(self, gpu: _Gpu) -> Compared:
        words = (ctypes.c_int64 * _WORDS)()
        with self._driver.context(gpu.index):
            self._driver.call("cuCtxSynchronize")
            size = ctypes.c_size_t(ctypes.sizeof(words))
            self._driver.call("cuMemcpyDtoH_v2", words, ctypes.c_uint64(gpu.memory + _LINE_BYTES), size)
        return Compared(*words)


def main() -> int:
    """Print the readings of the GPUs in the arguments, or of all, as JSON; none where there is no GPU, or only one."""
    functions = loaded_driver()
    readings: tuple[PeerReading, ...] = ()
    if functions is not None and not functions.cuInit(0):
        readings = tuple(PeerClocks(Driver(functions)).readings(sys.argv[1:]))
    sys.stdout.buffer.write(msgspec.json.encode(PeerClocksRecord(readings=readings)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

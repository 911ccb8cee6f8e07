"""Judges the comparison of two GPUs' timers by round trips of a flag, right before it and right after it.

    python benchmarks/peer_clocks.py [--times 20]

Needs two GPUs that reach each other's memory. A round trip bounds the difference of the timers from both sides, by the
flag's way there and back; between both measurements, the timers are taken to drift evenly.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from typing import NamedTuple

from kprof_inject.capture.encoding import decode
from kprof_inject.capture.peer_clocks import PeerClocksRecord
from kprof_inject.runtime.devices.cuda_driver import Driver, loaded_driver

MODULE = "kprof_inject.runtime.devices.peer_clocks"
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry exchange(
    .param .u64 mine, .param .u64 theirs, .param .u64 to, .param .u64 rounds, .param .u64 begins, .param .u64 for_ns)
{
    .reg .b64 %rd<12>;
    .reg .pred %p, %begins;
    ld.param.u64 %rd1, [mine];
    ld.param.u64 %rd2, [theirs];
    ld.param.u64 %rd3, [to];
    ld.param.u64 %rd4, [rounds];
    ld.param.u64 %rd5, [begins];
    ld.param.u64 %rd6, [for_ns];
    setp.ne.u64 %begins, %rd5, 0;
    mov.u64 %rd7, %globaltimer;
    add.u64 %rd6, %rd6, %rd7;
    mov.u64 %rd8, 0;
ROUND:
    setp.ge.u64 %p, %rd8, %rd4;
    @%p bra DONE;
    add.u64 %rd8, %rd8, 1;
    @!%begins bra AWAIT;
    mov.u64 %rd9, %globaltimer;
    st.relaxed.sys.global.u64 [%rd2], %rd8;
AWAIT:
    ld.relaxed.sys.global.u64 %rd10, [%rd1];
    setp.eq.u64 %p, %rd10, %rd8;
    @%p bra ARRIVED;
    mov.u64 %rd11, %globaltimer;
    setp.lt.u64 %p, %rd11, %rd6;
    @%p bra AWAIT;
    bra DONE;
ARRIVED:
    mov.u64 %rd11, %globaltimer;
    @%begins bra NOTE;
    mov.u64 %rd9, %globaltimer;
    st.relaxed.sys.global.u64 [%rd2], %rd8;
NOTE:
    st.global.v2.u64 [%rd3], {%rd9, %rd11};
    add.u64 %rd3, %rd3, 16;
    bra ROUND;
DONE:
    ret;
}
"""
ROUNDS, FLAG_BYTES, MAX_NS = 2_000, 256, 1_000_000_000
SIZE_BYTES = FLAG_BYTES + 16 * ROUNDS


class Difference(NamedTuple):
    """The second GPU's timer is ``ns`` ahead of the first one's, ± ``error_ns``, when that shows ``at_ns``."""

    at_ns: int
    ns: float
    error_ns: float


class RoundTrips:
    """Two GPUs that send each other a flag."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.functions: list[ctypes.c_void_p] = []
        self.memory: list[int] = []
        for device in range(2):
            module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
            with driver.context(device):
                driver.call("cuModuleLoadData", ctypes.byref(module), PTX)
                driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"exchange")
                driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(SIZE_BYTES))
            self.functions.append(function)
            self.memory.append(memory.value)
        for device in range(2):
            driver.enable_peer(device, 1 - device)

    def difference(self) -> Difference:
        for device, memory in enumerate(self.memory):
            with self.driver.context(device):
                zero, size = ctypes.c_ubyte(0), ctypes.c_size_t(SIZE_BYTES)
                self.driver.call("cuMemsetD8_v2", ctypes.c_uint64(memory), zero, size)
                self.driver.call("cuCtxSynchronize")
        for device, memory in enumerate(self.memory):
            words = (memory, self.memory[1 - device], memory + FLAG_BYTES, ROUNDS, int(device == 0), MAX_NS)
            arguments = [ctypes.c_uint64(word) for word in words]
            pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
            with self.driver.context(device):
                self.driver.call("cuLaunchKernel", self.functions[device], 1, 1, 1, 1, 1, 1, 0, None, pointers, None)
        (sent, seen), (answered, arrived) = (self.times(device) for device in range(2))
        upper_ns = min(there - here for here, there in zip(sent, arrived, strict=True))
        lower_ns = max(there - here for here, there in zip(seen, answered, strict=True))
        return Difference(sent[0], (upper_ns + lower_ns) / 2, (upper_ns - lower_ns) / 2)

    def times(self, device: int) -> tuple[list[int], list[int]]:
        words = (ctypes.c_uint64 * (2 * ROUNDS))()
        with self.driver.context(device):
            self.driver.call("cuCtxSynchronize")
            address, size = ctypes.c_uint64(self.memory[device] + FLAG_BYTES), ctypes.c_size_t(ctypes.sizeof(words))
            self.driver.call("cuMemcpyDtoH_v2", words, address, size)
        if not all(words):
            raise SystemExit("the GPUs did not exchange all flags")
        return words[::2], words[1::2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    functions = loaded_driver()
    if functions is None or functions.cuInit(0):
        raise SystemExit("no NVIDIA driver")
    trips = RoundTrips(Driver(functions))
    held = 0
    times = parser.parse_args().times
    for _ in range(times):
        before = trips.difference()
        printed = subprocess.run([sys.executable, "-m", MODULE], capture_output=True, check=True).stdout
        after = trips.difference()
        (reading, *_) = decode(printed, PeerClocksRecord, MODULE).readings
        part = (reading.reference_ns - before.at_ns) / (after.at_ns - before.at_ns)
        expected_ns = before.ns + part * (after.ns - before.ns)
        off_ns = reading.device_ns - reading.reference_ns - expected_ns
        held += abs(off_ns) <= reading.error_ns
        print(
            f"{off_ns:+.0f} ns off, ± {reading.error_ns} ns stated; round trips ± {before.error_ns:.0f} ns", flush=True
        )
    print(f"the stated error held in {held} of {times}")


if __name__ == "__main__":
    main()

"""Launches one small kernel many times in this process and writes figures to a JSON file, for benchmarks/launches.py.

    python launch_loop.py OUT.json [--launches N] [--proton FILE]

``median_us`` and ``mean_us`` are what a launch keeps the host busy, the first ones left out; ``resident_bytes`` and
``device_bytes`` are the memory in use, by the number of launches so far. With --proton, stock Proton profiles them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import triton
import triton.language as tl

# These compile, give the allocators their blocks, and are timed on the device where we are there.
WARM_UP = 100
CTAS, BLOCK = 64, 512


@triton.jit
def scale_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * 2)


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) << 10


def device_bytes() -> int:
    """What is in use on the device, by whomever."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--launches", type=int, default=10_000)
    parser.add_argument("--proton", type=Path)
    arguments = parser.parse_args()

    if arguments.proton:
        import triton.profiler as proton

        proton.start(str(arguments.proton), backend="instrumentation", data="trace")
    x = torch.randn(CTAS * BLOCK, device="cuda")
    out = torch.empty_like(x)
    memory: dict[int, tuple[int, int]] = {}
    times_ns = []
    for number in range(1, WARM_UP + arguments.launches + 1):
        begin = time.perf_counter_ns()
        scale_kernel[(CTAS,)](x, out, BLOCK=BLOCK, num_warps=4)
        times_ns.append(time.perf_counter_ns() - begin)
        launched = number - WARM_UP
        if launched in (arguments.launches // 10, arguments.launches):
            torch.cuda.synchronize()
            memory[launched] = (resident_bytes(), device_bytes())
    figures = {
        "launches": arguments.launches,
        "median_us": statistics.median(times_ns[WARM_UP:]) / 1e3,
        "mean_us": statistics.fmean(times_ns[WARM_UP:]) / 1e3,
        "resident_bytes": {str(count): resident for count, (resident, _) in memory.items()},
        "device_bytes": {str(count): device for count, (_, device) in memory.items()},
    }
    if arguments.proton:
        begin_s = time.perf_counter()
        proton.finalize()
        figures["finalize_s"] = time.perf_counter() - begin_s
    arguments.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()

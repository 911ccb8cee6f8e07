"""A loop of kernels for ``benchmarks/watch.py``: what a server does. Needs a GPU.

    python benchmarks/watched_loop.py SECONDS DRIFT_AT STEPS_FILE

Each step launches a matmul, a normalization of rows and a sum over neighbours, and waits for the device. From
``DRIFT_AT`` seconds on, the sum has a third more neighbours, by an argument alone. The times of the steps are appended
to ``STEPS_FILE``: begin on the host's clock in nanoseconds, and duration, as pairs of int64.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl

STEPS_AT_ONCE = 1000


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    """Square matrices, row-major."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, n, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * n + (k + inner)[None, :])
        b = tl.load(b_ptr + (k + inner)[:, None] * n + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(tl.float16))


@triton.jit
def normalize_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows to mean 0 and variance 1."""
    place = tl.arange(0, BLOCK)
    inside = place < width
    x = tl.load(x_ptr + tl.program_id(0) * width + place, mask=inside, other=0).to(tl.float32)
    centred = tl.where(inside, x - tl.sum(x) / width, 0)
    variance = tl.sum(centred * centred) / width
    tl.store(out_ptr + tl.program_id(0) * width + place, centred / tl.sqrt(variance + 1e-5), mask=inside)


@triton.jit(do_not_specialize=["neighbours"])
def neighbours_kernel(x_ptr, out_ptr, neighbours, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each element plus those after it."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for distance in range(neighbours):
        total += tl.load(x_ptr + place + distance * BLOCK)
    tl.store(out_ptr + place, total)


def main() -> None:
    seconds, drift_at, steps_file = float(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
    n, blocks, block = 2048, 2048, 1024
    torch.manual_seed(0)
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c, normal = torch.empty_like(a), torch.empty_like(a)
    x = torch.randn((blocks + 128) * block, device="cuda")
    total = torch.empty(blocks * block, device="cuda")
    times = np.zeros((STEPS_AT_ONCE, 2), np.int64)
    begun_s, step = time.monotonic(), 0
    while (elapsed_s := time.monotonic() - begun_s) < seconds:
        begin_ns, begin = time.time_ns(), time.perf_counter_ns()
        matmul_kernel[(n // 128, n // 128)](a, b, c, n, BLOCK=128, BLOCK_K=32, num_warps=8)
        normalize_kernel[(n,)](c, normal, n, BLOCK=2048)
        neighbours_kernel[(blocks,)](x, total, 64 if elapsed_s > drift_at else 48, BLOCK=block)
        torch.cuda.synchronize()
        times[step % STEPS_AT_ONCE] = begin_ns, time.perf_counter_ns() - begin
        step += 1
        if step % STEPS_AT_ONCE == 0:
            with steps_file.open("ab") as file:
                file.write(times.tobytes())
    print(f"{step} steps, {total.sum().item():.6e}", flush=True)


if __name__ == "__main__":
    main()

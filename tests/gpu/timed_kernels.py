"""A program whose kernels read the device's globaltimer at the ends of scopes: the truth for the timeline.

``python timed_kernels.py OUT.npz`` launches each kernel a few times and saves, for each launch, an array of shape
(CTAs, 4, 3): the SM's cycle counter, globaltimer in nanoseconds, and the counter again, read in a row by the CTA's
first thread as its first and as its last act in the function (0, 3), and right before and right after the loop (1, 2).
"""

import sys

import numpy as np
import torch
import triton
import triton.language as tl

LAUNCHES = 3


@triton.jit
def read_clocks():
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %clock64; mov.u64 $1, %globaltimer; mov.u64 $2, %clock64;",
        "=l,=l,=l",
        [],
        dtype=(tl.int64, tl.int64, tl.int64),
        is_pure=False,
        pack=1,
    )


@triton.jit
def save(times_ptr, pid, place: tl.constexpr, clock, timer, clock_again):
    tl.store(times_ptr + 12 * pid + 3 * place, clock)
    tl.store(times_ptr + 12 * pid + 3 * place + 1, timer)
    tl.store(times_ptr + 12 * pid + 3 * place + 2, clock_again)


@triton.jit
def spin_kernel(times_ptr, sink_ptr, rounds):
    """A light load: a chain of dependent multiplications."""
    enter_clock, enter, enter_again = read_clocks()
    pid = tl.program_id(0)
    value = pid.to(tl.float32)
    before_clock, before, before_again = read_clocks()
    for _ in range(rounds):
        for _ in tl.static_range(64):
            value = value * 0.999 + 1.0
    after_clock, after, after_again = read_clocks()
    tl.store(sink_ptr + pid, value)
    save(times_ptr, pid, 0, enter_clock, enter, enter_again)
    save(times_ptr, pid, 1, before_clock, before, before_again)
    save(times_ptr, pid, 2, after_clock, after, after_again)
    leave_clock, leave, leave_again = read_clocks()
    save(times_ptr, pid, 3, leave_clock, leave, leave_again)


@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, times_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """A heavy load, under which the chip lowers its clock: C = A B with N columns; sizes are multiples of blocks."""
    enter_clock, enter, enter_again = read_clocks()
    pid = tl.program_id(0)
    tiles_n = N // BLOCK_N
    rows = (pid // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (pid % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    before_clock, before, before_again = read_clocks()
    for _ in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    after_clock, after, after_again = read_clocks()
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(tl.float16))
    save(times_ptr, pid, 0, enter_clock, enter, enter_again)
    save(times_ptr, pid, 1, before_clock, before, before_again)
    save(times_ptr, pid, 2, after_clock, after, after_again)
    leave_clock, leave, leave_again = read_clocks()
    save(times_ptr, pid, 3, leave_clock, leave, leave_again)


def run_spin(ctas: int, rounds: int) -> list[np.ndarray]:
    sink = torch.zeros(ctas, device="cuda")
    times = [torch.zeros((ctas, 4, 3), dtype=torch.int64, device="cuda") for _ in range(LAUNCHES)]
    for saved in times:
        spin_kernel[(ctas,)](saved, sink, rounds, num_warps=4)
    return [saved.cpu().numpy() for saved in times]


def run_gemm(size: int, depth: int, stages: int) -> list[np.ndarray]:
    torch.manual_seed(0)
    a = torch.randn((size, depth), device="cuda", dtype=torch.float16)
    b = torch.randn((depth, size), device="cuda", dtype=torch.float16)
    c = torch.empty((size, size), device="cuda", dtype=torch.float16)
    ctas = (size // 128) ** 2
    times = [torch.zeros((ctas, 4, 3), dtype=torch.int64, device="cuda") for _ in range(LAUNCHES)]
    for saved in times:
        gemm_kernel[(ctas,)](a, b, c, saved, size, depth, 128, 128, 64, num_warps=8, num_stages=stages)
    return [saved.cpu().numpy() for saved in times]


if __name__ == "__main__":
    np.savez(
        sys.argv[1],
        spin=run_spin(528, 40),
        gemm=run_gemm(4096, 2048, stages=1),
        pipelined_gemm=run_gemm(4096, 4096, stages=3),
    )

"""A matmul that may have a fault: ``python faulty_matmul.py --ctas N [--prologue CYCLES | --uneven CYCLES]``.

By itself it is healthy, if its N CTAs fill whole waves. With --prologue each CTA spins for so long before its loop,
with --uneven the first warp of each CTA spins for so long in each iteration, while the others wait for it at the next
barrier.
"""

import argparse

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64
TILES_N, ITERATIONS, LAUNCHES = 4, 32, 5


@triton.jit
def spin(cycles, threads):
    """The first ``threads`` threads of the CTA, whole warps, spin for so many cycles; the others go on."""
    return tl.inline_asm_elementwise(
        """
        {
        .reg .pred p;
        .reg .u32 thread;
        .reg .u64 begin;
        mov.u64 $0, 0;
        mov.u32 thread, %tid.x;
        setp.ge.u32 p, thread, $2;
        @p bra spun;
        mov.u64 begin, %clock64;
        spinning:
        mov.u64 $0, %clock64;
        sub.u64 $0, $0, begin;
        setp.lt.u64 p, $0, $1;
        @p bra spinning;
        spun:
        bar.warp.sync 0xffffffff;
        }
        """,
        "=&l,l,r",
        [cycles.to(tl.int64), threads],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )


@triton.jit(do_not_specialize=["cycles", "threads"])
def faulty_matmul_kernel(
    a_ptr, b_ptr, c_ptr, K, cycles, threads, N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PROLOGUE: tl.constexpr, UNEVEN: tl.constexpr,
):  # fmt: skip
    """C = A @ B, all contiguous; sizes are multiples of the blocks."""
    pid = tl.program_id(0)
    rows = pid // (N // BLOCK_N) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid % (N // BLOCK_N) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * N + columns[None, :]
    if PROLOGUE:
        spin(cycles, threads)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        if UNEVEN:
            spin(cycles, threads)  # kprof: uneven
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ctas", type=int, required=True, help=f"a multiple of {TILES_N}")
    parser.add_argument("--prologue", type=int, default=0, metavar="CYCLES")
    parser.add_argument("--uneven", type=int, default=0, metavar="CYCLES")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    m, n, k = arguments.ctas // TILES_N * BLOCK_M, TILES_N * BLOCK_N, ITERATIONS * BLOCK_K
    a = torch.randn((m, k), device="cuda", dtype=torch.float16)
    b = torch.randn((k, n), device="cuda", dtype=torch.float16)
    c = torch.empty((m, n), device="cuda", dtype=torch.float16)
    cycles, threads = arguments.prologue or arguments.uneven, 32 if arguments.uneven else 1024
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    fault = {"PROLOGUE": arguments.prologue > 0, "UNEVEN": arguments.uneven > 0}
    for _ in range(LAUNCHES):
        faulty_matmul_kernel[(arguments.ctas,)](
            a, b, c, k, cycles, threads, N=n, **blocks, **fault, num_warps=4, num_stages=3
        )
    torch.testing.assert_close(c, a @ b, atol=0.5, rtol=0.02)


if __name__ == "__main__":
    main()

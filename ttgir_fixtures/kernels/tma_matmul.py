"""Tensor descriptors passed by the host: TMA copies, mbarriers and their phases in a pipelined loop."""

import triton
import triton.language as tl


@triton.jit
def tma_matmul_kernel(
    a_desc, b_desc, c_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """C = A @ B.T; the three descriptors have the blocks' shapes."""
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([row, k])
        b = b_desc.load([column, k])
        acc = tl.dot(a, b.T, acc)
    c_desc.store([row, column], acc.to(tl.float16))

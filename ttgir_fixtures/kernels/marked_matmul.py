"""Marker comments in a pipelined loop: the marked loads end up in the prologue, the dot in the body."""

import triton
import triton.language as tl


@triton.jit
def marked_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """C = A @ B with row-major operands."""
    # kprof: begin setup
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows % M)[:, None] * stride_am + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * stride_bk + (columns % N)[None, :]
    # kprof: end setup

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):  # kprof: loop main
        # kprof: begin loads
        a = tl.load(a_ptrs, mask=inner[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(
            b_ptrs,
            mask=inner[:, None] < K - k * BLOCK_K,
            other=0.0,
        )
        # kprof: end loads
        acc = tl.dot(a, b, acc)  # kprof: dot
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk

    # kprof: mark before_store
    # kprof: begin epilogue
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
    # kprof: end epilogue

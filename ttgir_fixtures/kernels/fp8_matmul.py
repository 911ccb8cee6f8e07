"""A matmul of 8-bit floats, with a scale per block of K: `tt.dot` on f8 types, and a loop-carried float tile."""

import triton
import triton.language as tl


@triton.jit
def fp8_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    a_scale_ptr,
    b_scale_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """C = A @ B.T, where each BLOCK_K of a row of A, and each BLOCK_N x BLOCK_K block of B, has a scale.

    M, N and K are multiples of the block sizes.
    """
    tile_m = tl.program_id(0)
    tile_n = tl.program_id(1)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    blocks_k = tl.cdiv(K, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(blocks_k):
        k = block * BLOCK_K + inner
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :])
        b = tl.load(b_ptr + columns[None, :] * K + k[:, None])
        a_scale = tl.load(a_scale_ptr + rows * blocks_k + block)
        b_scale = tl.load(b_scale_ptr + tile_n * blocks_k + block)
        acc += tl.dot(a, b) * a_scale[:, None] * b_scale
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(c_ptr.dtype.element_ty))

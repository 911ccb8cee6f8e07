"""A warp-specialised loop: `ttg.warp_specialize` with a default region and partitions."""

import triton
import triton.language as tl


@triton.jit
def ws_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """C = A @ B.T with row-major A (M x K), B (N x K) and C (M x N); each program makes several tiles of C.

    The compiler gives the loads, the tensor core and the epilogue warps of their own, so that one tile's
    epilogue runs beside the next tile's loads.
    """
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n

    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True, warp_specialize=True):
        row = tile // tiles_n * BLOCK_M
        column = tile % tiles_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([row, k])
            b = b_desc.load([column, k])
            acc = tl.dot(a, b.T, acc)
        c_desc.store([row, column], acc.to(c_ptr.dtype.element_ty))

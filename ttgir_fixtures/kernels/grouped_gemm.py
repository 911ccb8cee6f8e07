"""`scf.for` around `scf.while` around a pipelined `scf.for`: sizes and pointers are loaded in the kernel."""

import triton
import triton.language as tl


@triton.jit
def grouped_gemm_kernel(
    a_ptrs_ptr,
    b_ptrs_ptr,
    c_ptrs_ptr,
    sizes_ptr,
    n_problems,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """C = A @ B for n_problems problems of sizes (M, N, K); tiles of all problems are dealt to the programs in turn."""
    tile = tl.program_id(0)
    first_tile = 0
    for problem in range(n_problems):
        M = tl.load(sizes_ptr + problem * 3)
        N = tl.load(sizes_ptr + problem * 3 + 1)
        K = tl.load(sizes_ptr + problem * 3 + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        while (tile >= first_tile) & (tile < first_tile + tiles):
            a_ptr = tl.load(a_ptrs_ptr + problem).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_ptrs_ptr + problem).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_ptrs_ptr + problem).to(tl.pointer_type(tl.float16))
            rows = (tile - first_tile) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (tile - first_tile) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            inner = tl.arange(0, BLOCK_K)
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                a = tl.load(a_ptr + (rows % M)[:, None] * K + (k + inner)[None, :])
                b = tl.load(b_ptr + (k + inner)[:, None] * N + (columns % N)[None, :])
                acc = tl.dot(a, b, acc)
            mask = (rows[:, None] < M) & (columns[None, :] < N)
            tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16), mask=mask)
            tile += tl.num_programs(0)
        first_tile += tiles

"""A matmul whose accumulator does not fit in the registers of 4 warps. To compile it takes many seconds."""

import torch
import triton
import triton.language as tl

SIZE, BLOCK, BLOCK_K = 1024, 256, 16


@triton.jit
def spilling_kernel(a_ptr, b_ptr, c_ptr, K, N, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * K + (start + inner)[None, :])
        b = tl.load(b_ptr + (start + inner)[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc)


a, b = (torch.randn(SIZE, SIZE, device="cuda") for _ in range(2))
c = torch.empty_like(a)
for _ in range(5):
    spilling_kernel[(SIZE // BLOCK, SIZE // BLOCK)](a, b, c, SIZE, SIZE, BLOCK, BLOCK_K, num_warps=4, num_stages=3)
torch.cuda.synchronize()

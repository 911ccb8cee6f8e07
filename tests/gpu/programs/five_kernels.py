"""Five kernels. Proton can lower four of them when they have records.

The fifth reduces by a helper that is not inlined and returns early: inside a reduction Triton cannot inline it later,
and Proton lowers modules of one function only. The third takes nearly all shared memory that an H200 has.
"""

import results
import torch
import triton
import triton.language as tl

CTAS, BLOCK, SIZE = 8, 1024, 128


@triton.jit
def scale_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * 2)


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out_ptr + row, tl.sum(tl.load(x_ptr + row * BLOCK + tl.arange(0, BLOCK))))


@triton.jit
def deep_matmul_kernel(a_ptr, b_ptr, c_ptr, K, SIZE: tl.constexpr, BLOCK_K: tl.constexpr):
    """One tile; with seven stages it has 229,376 bytes of operands in flight."""
    places, inner = tl.arange(0, SIZE), tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + places[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * SIZE + places[None, :]
    acc = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * SIZE
    tl.store(c_ptr + places[:, None] * SIZE + places[None, :], acc)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    powers = tl.exp(x - tl.max(x))
    tl.store(out_ptr + offsets, powers / tl.sum(powers))


@triton.jit(noinline=True)
def clamped_sum(a, b):
    if a > 1000.0:
        return a
    return a + b


@triton.jit
def clamped_sum_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + row, tl.reduce(x, 0, clamped_sum))


def main() -> None:
    arguments = results.parser(__doc__).parse_args()
    torch.manual_seed(0)
    x = torch.randn(CTAS * BLOCK, device="cuda")
    scaled, soft = torch.empty_like(x), torch.empty_like(x)
    sums, clamped = torch.empty(CTAS, device="cuda"), torch.empty(CTAS, device="cuda")
    a, b = torch.randn((SIZE, BLOCK), device="cuda").half(), torch.randn((BLOCK, SIZE), device="cuda").half()
    product = torch.empty((SIZE, SIZE), device="cuda")
    for _ in range(2):
        scale_kernel[(CTAS,)](x, scaled, BLOCK=BLOCK)
        row_sum_kernel[(CTAS,)](x, sums, BLOCK=BLOCK)
        deep_matmul_kernel[(1,)](a, b, product, BLOCK, SIZE=SIZE, BLOCK_K=64, num_stages=7)
        softmax_kernel[(CTAS,)](x, soft, BLOCK=BLOCK)
        clamped_sum_kernel[(CTAS,)](x.abs(), clamped, BLOCK=BLOCK)
    results.save(arguments.save, scaled, sums, product, soft, clamped)


if __name__ == "__main__":
    main()

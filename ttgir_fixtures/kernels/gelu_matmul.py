"""A pipelined loop and then an epilogue of helpers: elementwise work after the last wait."""

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    """tanh by way of the sigmoid."""
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _gelu(x):
    """GELU in its tanh approximation."""
    return 0.5 * x * (1 + _tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


@triton.jit
def linear_gelu_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out = residual + gelu(x @ weight.T + bias), all row-major."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + (rows % M)[:, None] * K + inner[None, :]
    weight_ptrs = weight_ptr + (columns % N)[None, :] * K + inner[:, None]

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K, num_stages=4):
        x = tl.load(x_ptrs + k, mask=inner[None, :] < K - k, other=0.0)
        weight = tl.load(weight_ptrs + k, mask=inner[:, None] < K - k, other=0.0)
        acc = tl.dot(x, weight, acc)

    bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    offsets = rows[:, None] * N + columns[None, :]
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    residual = tl.load(residual_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    out = residual + _gelu(acc + bias[None, :])
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)

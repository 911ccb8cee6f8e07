"""A kernel whose TTGIR is as long as one likes: a mixture of gated experts, unrolled but for the loops over columns."""

import triton
import triton.language as tl


@triton.jit
def gate(x, scale, bias):
    z = x * scale + bias
    return z / (1.0 + tl.exp(-z))


@triton.jit
def mixture_kernel(
    x_ptr, weight_ptr, out_ptr, n_columns, EXPERTS: tl.constexpr, FEATURES: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0) * n_columns
    for expert in tl.static_range(EXPERTS):
        weights = weight_ptr + expert * 2 * FEATURES
        for first in range(0, n_columns, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            inside = columns < n_columns
            x = tl.load(x_ptr + row + columns, mask=inside, other=0.0)
            total = tl.zeros((BLOCK,), tl.float32)
            for feature in tl.static_range(FEATURES):
                scale = tl.load(weights + 2 * feature)
                bias = tl.load(weights + 2 * feature + 1)
                total += gate(x, scale, bias)
            tl.store(out_ptr + expert * n_columns + row + columns, total, mask=inside)

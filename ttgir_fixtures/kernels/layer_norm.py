"""Three loops in a row, and reductions between them."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(
    x_ptr, out_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, row_stride, n_cols, eps, BLOCK: tl.constexpr
):
    """Normalise one row to mean 0 and variance 1, then scale and shift it.

    The mean and 1/std are stored for the backward pass.
    """
    row = tl.program_id(0)
    x_row = x_ptr + row * row_stride
    out_row = out_ptr + row * row_stride
    lanes = tl.arange(0, BLOCK)

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        columns = start + lanes
        total += tl.load(x_row + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        columns = start + lanes
        x = tl.load(x_row + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
        centred = tl.where(columns < n_cols, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / n_cols + eps)

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, n_cols, BLOCK):
        columns = start + lanes
        mask = columns < n_cols
        x = tl.load(x_row + columns, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=mask).to(tl.float32)
        bias = tl.load(bias_ptr + columns, mask=mask).to(tl.float32)
        tl.store(out_row + columns, (x - mean) * rstd * weight + bias, mask=mask)

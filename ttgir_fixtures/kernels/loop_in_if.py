"""Loops inside both arms of an `scf.if`, one with results that leave the arm."""

import triton
import triton.language as tl


@triton.jit
def pooled_rows_kernel(x_ptr, lengths_ptr, out_ptr, row_stride, n_cols, use_max, BLOCK: tl.constexpr):
    """Pool the first lengths[i] rows of sequence i: their maximum if use_max, else their mean."""
    sequence = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < n_cols
    length = tl.load(lengths_ptr + sequence)
    x_ptrs = x_ptr + sequence.to(tl.int64) * row_stride + columns
    if use_max != 0:
        pooled = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
        for row in range(length):
            pooled = tl.maximum(pooled, tl.load(x_ptrs + row * n_cols, mask=mask, other=-float("inf")))
    else:
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for row in range(length):
            total += tl.load(x_ptrs + row * n_cols, mask=mask, other=0.0)
        pooled = total / length
    tl.store(out_ptr + sequence * n_cols + columns, pooled, mask=mask)

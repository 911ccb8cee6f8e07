"""Helpers inlined two levels deep: the same ones in a loop and after it, told apart by chains of call sites."""

import triton
import triton.language as tl


@triton.jit
def _absmax(x):
    """The largest magnitude in x."""
    return tl.max(tl.abs(x.to(tl.float32)), axis=0)


@triton.jit
def _quantize(x, scale_ptr, group):
    """x as int8 with one scale, which is stored as that of the group."""
    # A group of zeros has no largest magnitude to divide by.
    scale = tl.maximum(_absmax(x), 1e-10) / 127.0
    tl.store(scale_ptr + group, scale)
    return (x / scale).to(tl.int8)


@triton.jit
def quantize_rows_kernel(x_ptr, out_ptr, scale_ptr, row_stride, n_cols, groups_per_row, GROUP: tl.constexpr):
    """Symmetric int8 quantization of one row, GROUP columns at a time; the last group may be short."""
    row = tl.program_id(0)
    x_row = x_ptr + row * row_stride
    out_row = out_ptr + row * row_stride
    scale_row = scale_ptr + row * groups_per_row
    lanes = tl.arange(0, GROUP)

    full_groups = n_cols // GROUP
    for group in range(full_groups):
        columns = group * GROUP + lanes
        x = tl.load(x_row + columns)
        tl.store(out_row + columns, _quantize(x, scale_row, group))

    columns = full_groups * GROUP + lanes
    mask = columns < n_cols
    x = tl.load(x_row + columns, mask=mask, other=0.0)
    tl.store(out_row + columns, _quantize(x, scale_row, full_groups), mask=mask)

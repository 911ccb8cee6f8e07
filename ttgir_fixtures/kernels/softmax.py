"""Two loops in a row, with reductions: combine regions stand inside an `scf.for`."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    """Softmax of one row that is too long to hold at once.

    The first pass keeps a running maximum and a sum scaled to it, so that the row is read twice and not
    three times.
    """
    row = tl.program_id(0)
    x_row = x_ptr + row * row_stride
    out_row = out_ptr + row * row_stride
    columns = tl.arange(0, BLOCK)

    row_max = -float("inf")
    row_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + columns, mask=start + columns < n_cols, other=-float("inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        row_max = new_max

    for start in range(0, n_cols, BLOCK):
        mask = start + columns < n_cols
        x = tl.load(x_row + start + columns, mask=mask, other=-float("inf"))
        tl.store(out_row + start + columns, tl.exp(x - row_max) / row_sum, mask=mask)

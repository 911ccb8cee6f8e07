"""Returns in two places before the end, the second after a loop: both branch to one block with a `tt.return`."""

import triton
import triton.language as tl


@triton.jit
def block_sparse_row_kernel(
    values_ptr, columns_ptr, row_begin_ptr, x_ptr, out_ptr, n_rows, threshold, BLOCK: tl.constexpr
):
    """One row of a sparse matrix times a vector; rows without entries, and rows of little weight, write nothing."""
    row = tl.program_id(0)
    if row >= n_rows:
        return
    begin = tl.load(row_begin_ptr + row)
    end = tl.load(row_begin_ptr + row + 1)
    weight = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(begin, end, BLOCK):
        entries = start + tl.arange(0, BLOCK)
        weight += tl.abs(tl.load(values_ptr + entries, mask=entries < end, other=0.0))
    if tl.sum(weight, axis=0) < threshold:
        return

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(begin, end, BLOCK):
        entries = start + tl.arange(0, BLOCK)
        inside = entries < end
        values = tl.load(values_ptr + entries, mask=inside, other=0.0)
        columns = tl.load(columns_ptr + entries, mask=inside, other=0)
        total += values * tl.load(x_ptr + columns, mask=inside, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))

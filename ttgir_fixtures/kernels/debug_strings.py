"""`tt.print` and `tt.assert`, whose strings look like IR."""

import triton
import triton.language as tl


@triton.jit
def checked_gather_kernel(index_ptr, table_ptr, out_ptr, n_indices, n_rows, BLOCK: tl.constexpr):
    """out[i] = table[index[i]]; says where an index is out of bounds."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_indices
    index = tl.load(index_ptr + offsets, mask=mask, other=0)
    tl.device_print('index } loc("x":1:2) { "quoted" #loc1 -> ', index)
    tl.device_assert((index >= 0) & (index < n_rows), 'not { 0 <= "index" < n_rows } // %d\\n', mask=mask)
    row = tl.load(table_ptr + index, mask=mask, other=0.0)
    if n_rows < 0:
        tl.device_print("^bb0: tt.return", n_rows, hex=True)
    tl.store(out_ptr + offsets, row, mask=mask)

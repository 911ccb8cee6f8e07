"""A return before the work: the function has several blocks and two `tt.return`."""

import triton
import triton.language as tl


@triton.jit
def ragged_mean_kernel(x_ptr, offsets_ptr, out_ptr, BLOCK: tl.constexpr):
    """Mean of each ragged row; row i is x[offsets[i] : offsets[i + 1]]. An empty row writes nothing."""
    row = tl.program_id(0)
    begin = tl.load(offsets_ptr + row)
    end = tl.load(offsets_ptr + row + 1)
    if begin == end:
        return

    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(begin, end, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + columns, mask=columns < end, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0) / (end - begin))

"""`tt.map_elementwise`: a region with real control flow, run once for each element."""

import triton
import triton.language as tl


@triton.jit
def _compare(a, b):
    """-1, 0 or 1, with a branch that a lane takes alone."""
    if a < b:
        return -1
    elif a == b:
        return 0
    else:
        return 1


@triton.jit
def three_way_compare_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    """out[i] says how x[i] compares with y[i]."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0)
    tl.store(out_ptr + offsets, tl.map_elementwise(_compare, x, y), mask=mask)

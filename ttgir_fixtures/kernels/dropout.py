"""Random numbers: Philox, an inlined library helper with a loop that is unrolled."""

import triton
import triton.language as tl


@triton.jit
def dropout_residual_kernel(x_ptr, residual_ptr, out_ptr, n_elements, p, seed, BLOCK: tl.constexpr):
    """out = residual + dropout(x); the same seed drops the same elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    kept = tl.rand(seed, offsets) > p
    dropped = tl.where(kept, x / (1 - p), 0.0)
    tl.store(out_ptr + offsets, dropped + tl.load(residual_ptr + offsets, mask=mask), mask=mask)

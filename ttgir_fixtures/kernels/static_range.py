"""A loop that the front end unrolls: one source line, many ops, no `scf.for`."""

import triton
import triton.language as tl


@triton.jit
def fir_filter_kernel(x_ptr, taps_ptr, out_ptr, n_samples, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    """A causal finite impulse response filter; samples before the first one are zero."""
    positions = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        source = positions - tap
        inside = (source >= 0) & (source < n_samples)
        acc += tl.load(taps_ptr + tap) * tl.load(x_ptr + source, mask=inside, other=0.0)
    tl.store(out_ptr + positions, acc, mask=positions < n_samples)

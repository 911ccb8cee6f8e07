"""`scf.if` with results inside `scf.if` with results, and one without an `else`."""

import triton
import triton.language as tl


@triton.jit
def activation_kernel(x_ptr, out_ptr, slope_ptr, largest_ptr, n_elements, kind, slope, ceiling, BLOCK: tl.constexpr):
    """Apply an activation that is chosen at run time: 0 ReLU, 1 leaky ReLU, 2 ELU, else clamped identity.

    Where a clamp took effect, the largest value before it is kept in largest. The slope below zero goes to the
    backward pass.
    """
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if kind <= 1:
        if kind == 0:
            y = tl.maximum(x, 0.0)
            below = 0.0
        else:
            y = tl.where(x > 0, x, x * slope)
            below = slope
    else:
        if kind == 2:
            y = tl.where(x > 0, x, slope * (tl.exp(x) - 1))
            below = slope
        else:
            largest = tl.max(x, axis=0)
            if largest > ceiling:
                tl.atomic_max(largest_ptr, largest)
            y = tl.minimum(x, ceiling)
            below = 1.0
    tl.store(out_ptr + offsets, y, mask=mask)
    tl.store(slope_ptr + tl.program_id(0), below)

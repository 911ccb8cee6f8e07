"""`tt.scan` with a combine region of its own: two operands, inlined helper, inside a loop."""

import triton
import triton.language as tl


@triton.jit
def _compose(decay_first, value_first, decay_second, value_second):
    """Two steps of h -> decay * h + value as one step."""
    return decay_first * decay_second, value_first * decay_second + value_second


@triton.jit
def linear_recurrence_kernel(
    decay_ptr, x_ptr, out_ptr, n_steps, n_channels, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr
):
    """h[t] = decay[t] * h[t - 1] + x[t] for each channel, BLOCK_T steps at a time."""
    channels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    steps = tl.arange(0, BLOCK_T)
    state = tl.zeros((BLOCK_C,), dtype=tl.float32)
    for start in range(0, n_steps, BLOCK_T):
        rows = start + steps
        offsets = rows[:, None] * n_channels + channels[None, :]
        mask = (rows[:, None] < n_steps) & (channels[None, :] < n_channels)
        decay = tl.load(decay_ptr + offsets, mask=mask, other=1.0)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        decays, values = tl.associative_scan((decay, x), axis=0, combine_fn=_compose)
        h = values + decays * state[None, :]
        tl.store(out_ptr + offsets, h, mask=mask)
        state = tl.sum(tl.where(steps[:, None] == BLOCK_T - 1, h, 0.0), axis=0)

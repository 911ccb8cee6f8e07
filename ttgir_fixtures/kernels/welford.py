"""`tt.reduce` over three operands with a combine region of its own, in a loop."""

import triton
import triton.language as tl


@triton.jit
def _merge(mean_a, deviation_a, count_a, mean_b, deviation_b, count_b):
    """Mean, summed squared deviation and count of two sets together."""
    count = count_a + count_b
    share_b = tl.where(count == 0, 0.0, count_b / count)
    delta = mean_b - mean_a
    mean = mean_a + delta * share_b
    return mean, deviation_a + deviation_b + delta * delta * count_a * share_b, count


@triton.jit
def batch_stats_kernel(x_ptr, mean_ptr, variance_ptr, n_rows, n_cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """Mean and variance of each column, by Welford's way of merging."""
    columns = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    mean = tl.zeros((BLOCK_C,), dtype=tl.float32)
    deviation = tl.zeros((BLOCK_C,), dtype=tl.float32)
    count = tl.zeros((BLOCK_C,), dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_R):
        rows = start + tl.arange(0, BLOCK_R)
        mask = (rows[:, None] < n_rows) & (columns[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * n_cols + columns[None, :], mask=mask, other=0.0)
        ones = mask.to(tl.float32)
        tile_mean, tile_deviation, tile_count = tl.reduce((x, tl.zeros_like(x), ones), axis=0, combine_fn=_merge)
        mean, deviation, count = _merge(mean, deviation, count, tile_mean, tile_deviation, tile_count)
    inside = columns < n_cols
    tl.store(mean_ptr + columns, mean, mask=inside)
    tl.store(variance_ptr + columns, deviation / count, mask=inside)

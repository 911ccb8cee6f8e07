"""Gluon: layouts chosen by hand, a `ttg.convert_layout` and the same through shared memory."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def transpose_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr):
    """out = x.T, a BLOCK x BLOCK tile for each program, which has WARPS warps of LANES threads."""
    by_row: gl.constexpr = gl.BlockedLayout([1, 4], [LANES // 8, 8], [WARPS, 1], [1, 0])
    by_column: gl.constexpr = gl.BlockedLayout([4, 1], [8, LANES // 8], [1, WARPS], [0, 1])
    row = gl.program_id(0) * BLOCK
    column = gl.program_id(1) * BLOCK
    rows = row + gl.arange(0, BLOCK, gl.SliceLayout(1, by_row))
    columns = column + gl.arange(0, BLOCK, gl.SliceLayout(0, by_row))
    mask = (rows < n_rows)[:, None] & (columns < n_cols)[None, :]
    x = gl.load(x_ptr + rows[:, None] * n_cols + columns[None, :], mask=mask, other=0.0)

    rows = row + gl.arange(0, BLOCK, gl.SliceLayout(1, by_column))
    columns = column + gl.arange(0, BLOCK, gl.SliceLayout(0, by_column))
    mask = (rows < n_rows)[:, None] & (columns < n_cols)[None, :]
    gl.store(out_ptr + columns[None, :] * n_rows + rows[:, None], gl.convert_layout(x, by_column), mask=mask)

"""Gluon: a hand-written software pipeline of `ttg.async_copy_global_to_local`, with its groups and waits."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

# Triton renamed it.
copy_to_shared = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared


@gluon.jit
def _issue(x_row, tile, n_cols, columns, smem, STAGES: gl.constexpr):
    """Start copying one tile of the row into its stage."""
    offsets = tile * smem.shape[1] + columns
    copy_to_shared(smem.index(tile % STAGES), x_row + offsets, mask=offsets < n_cols)
    async_copy.commit_group()


@gluon.jit
def row_sum_kernel(x_ptr, out_ptr, row_stride, n_cols, BLOCK: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr):
    """Sum of one row, with STAGES tiles of BLOCK columns in flight."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [WARPS], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, order=[0])
    row = gl.program_id(0)
    x_row = x_ptr + row * row_stride
    columns = gl.arange(0, BLOCK, layout)
    smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], shared)
    tiles = gl.cdiv(n_cols, BLOCK)

    for tile in gl.static_range(STAGES - 1):
        _issue(x_row, tile, n_cols, columns, smem, STAGES)
    total = gl.full([BLOCK], 0.0, gl.float32, layout)
    for tile in range(tiles):
        async_copy.wait_group(STAGES - 2)
        x = smem.index(tile % STAGES).load(layout)
        total += gl.where(tile * BLOCK + columns < n_cols, x, 0.0)
        _issue(x_row, tile + STAGES - 1, n_cols, columns, smem, STAGES)
    async_copy.wait_group(0)
    gl.store(out_ptr + row, gl.sum(total, axis=0))

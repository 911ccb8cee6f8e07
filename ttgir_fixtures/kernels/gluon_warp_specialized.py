"""Gluon: `ttg.warp_specialize` written by hand, a TMA producer and consumers that meet at mbarriers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

# Triton renamed it.
copy_to_shared = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@gluon.jit
def _load_partition(x_desc, row, tiles, smem, filled, emptied, STAGES: gl.constexpr):
    """Fill one stage after another, each as soon as it is empty."""
    for tile in range(tiles):
        stage = tile % STAGES
        phase = (tile // STAGES) & 1
        mbarrier.wait(emptied.index(stage), phase ^ 1)
        mbarrier.expect(filled.index(stage), x_desc.block_type.nbytes)
        copy_to_shared(x_desc, [row, tile * x_desc.block_shape[1]], filled.index(stage), smem.index(stage))


@gluon.jit
def _sum_partition(out_ptr, row, tiles, smem, filled, emptied, STAGES: gl.constexpr, layout: gl.constexpr):
    """Add up the stages and store a sum for each row."""
    rows: gl.constexpr = smem.shape[1]
    total = gl.full([rows], 0.0, gl.float32, gl.SliceLayout(1, layout))
    for tile in range(tiles):
        stage = tile % STAGES
        phase = (tile // STAGES) & 1
        mbarrier.wait(filled.index(stage), phase)
        x = smem.index(stage).load(layout)
        mbarrier.arrive(emptied.index(stage), count=1)
        total += gl.sum(x.to(gl.float32), axis=1)
    gl.store(out_ptr + row + gl.arange(0, rows, gl.SliceLayout(1, layout)), total)


@gluon.jit
def row_sums_kernel(x_desc, out_ptr, n_cols, STAGES: gl.constexpr, WARPS: gl.constexpr):
    """Sums of the rows of a descriptor's block, read by a warp of its own."""
    BLOCK_M: gl.constexpr = x_desc.block_shape[0]
    BLOCK_N: gl.constexpr = x_desc.block_shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    smem = gl.allocate_shared_memory(x_desc.dtype, [STAGES, BLOCK_M, BLOCK_N], x_desc.layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=1)

    row = gl.program_id(0) * BLOCK_M
    tiles = gl.cdiv(n_cols, BLOCK_N)
    gl.warp_specialize(
        [
            (_sum_partition, (out_ptr, row, tiles, smem, filled, emptied, STAGES, layout)),
            (_load_partition, (x_desc, row, tiles, smem, filled, emptied, STAGES)),
        ],
        [1],
        [40],
    )
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(filled.index(stage))
        mbarrier.invalidate(emptied.index(stage))

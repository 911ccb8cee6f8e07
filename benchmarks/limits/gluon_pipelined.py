"""C = A @ B.T in Gluon for Hopper, without partitions: all warps copy tiles ahead by TMA, and multiply by wgmma."""

from collections.abc import Callable

import torch
from gluon_matmul import copy_from_shared, copy_to_shared
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def gluon_pipelined_kernel(a_desc, b_desc, c_desc, K, BLOCK_K: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr):
    a_smem = gl.allocate_shared_memory(gl.float16, [STAGES] + a_desc.block_type.shape, a_desc.layout)  # noqa: RUF005 (Triton takes no star)
    b_smem = gl.allocate_shared_memory(gl.float16, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005 (Triton takes no star)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
    row = gl.program_id(0) * a_desc.block_type.shape[0]
    column = gl.program_id(1) * b_desc.block_type.shape[0]
    tiles = gl.cdiv(K, BLOCK_K)
    rows: gl.constexpr = a_smem.shape[1]
    columns: gl.constexpr = b_smem.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, columns, 16])
    acc = gl.zeros((rows, columns), gl.float32, layout)
    for tile in gl.static_range(STAGES - 1):
        mbarrier.expect(filled.index(tile), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        copy_to_shared(a_desc, [row, tile * BLOCK_K], filled.index(tile), a_smem.index(tile))
        copy_to_shared(b_desc, [column, tile * BLOCK_K], filled.index(tile), b_smem.index(tile))
    for tile in range(tiles):
        current = tile % STAGES
        mbarrier.wait(filled.index(current), (tile // STAGES) & 1)
        acc = warpgroup_mma(a_smem.index(current), b_smem.index(current).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        ahead = tile + STAGES - 1
        slot = ahead % STAGES
        more = ahead < tiles
        mbarrier.expect(filled.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=more)
        copy_to_shared(a_desc, [row, ahead * BLOCK_K], filled.index(slot), a_smem.index(slot), pred=more)
        copy_to_shared(b_desc, [column, ahead * BLOCK_K], filled.index(slot), b_smem.index(slot), pred=more)
    c_smem = gl.allocate_shared_memory(gl.float16, c_desc.block_type.shape, c_desc.layout)
    c_smem.store(acc.to(gl.float16))
    fence_async_shared()
    copy_from_shared(c_desc, [row, column], c_smem)
    tma.store_wait(0)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(filled.index(stage))


def launch_of(a: torch.Tensor, b: torch.Tensor, stages: int, warps: int = 8) -> Callable[[], object]:
    """Launches a @ b.T of two row-major matrices in fp16, whose sizes are multiples of 128 x 128 x 64."""
    c = torch.empty((len(a), len(b)), device=a.device, dtype=a.dtype)
    descriptors = [
        TensorDescriptor.from_tensor(one, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for one, block in ((a, [128, 64]), (b, [128, 64]), (c, [128, 128]))
    ]
    grid = (len(a) // 128, len(b) // 128)

    def launch() -> torch.Tensor:
        gluon_pipelined_kernel[grid](*descriptors, a.shape[1], BLOCK_K=64, STAGES=stages, WARPS=warps, num_warps=warps)
        return c

    return launch

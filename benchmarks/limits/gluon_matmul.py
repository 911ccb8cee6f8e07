"""C = A @ B.T in Gluon for Hopper: one partition copies tiles through TMA, the other multiplies them by wgmma."""

from collections.abc import Callable

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Triton renamed it.
copy_to_shared = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
copy_from_shared = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def load_partition(a_desc, b_desc, row, column, tiles, a_smem, b_smem, filled, emptied, STAGES: gl.constexpr):
    for tile in range(tiles):
        stage = tile % STAGES
        phase = (tile // STAGES) & 1
        mbarrier.wait(emptied.index(stage), phase ^ 1)
        mbarrier.expect(filled.index(stage), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        k = tile * a_desc.block_type.shape[1]
        copy_to_shared(a_desc, [row, k], filled.index(stage), a_smem.index(stage))
        copy_to_shared(b_desc, [column, k], filled.index(stage), b_smem.index(stage))


@gluon.jit
def multiply_partition(
    c_desc, row, column, tiles, a_smem, b_smem, c_smem, filled, emptied, STAGES: gl.constexpr, WARPS: gl.constexpr
):
    rows: gl.constexpr = a_smem.shape[1]
    columns: gl.constexpr = b_smem.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, columns, 16])
    acc = gl.zeros((rows, columns), gl.float32, layout)
    for tile in range(tiles):
        stage = tile % STAGES
        phase = (tile // STAGES) & 1
        mbarrier.wait(filled.index(stage), phase)
        acc = warpgroup_mma(a_smem.index(stage), b_smem.index(stage).permute((1, 0)), acc)
        mbarrier.arrive(emptied.index(stage), count=1)
    c_smem.store(acc.to(gl.float16))
    fence_async_shared()
    copy_from_shared(c_desc, [row, column], c_smem)
    tma.store_wait(0)


@gluon.jit
def gluon_matmul_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr, WARPS: gl.constexpr):
    a_smem = gl.allocate_shared_memory(gl.float16, [STAGES] + a_desc.block_type.shape, a_desc.layout)  # noqa: RUF005 (Triton takes no star)
    b_smem = gl.allocate_shared_memory(gl.float16, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005 (Triton takes no star)
    c_smem = gl.allocate_shared_memory(gl.float16, c_desc.block_type.shape, c_desc.layout)
    filled = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    emptied = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(filled.index(stage), count=1)
        mbarrier.init(emptied.index(stage), count=1)
    row = gl.program_id(0) * a_desc.block_type.shape[0]
    column = gl.program_id(1) * b_desc.block_type.shape[0]
    tiles = gl.cdiv(K, a_desc.block_type.shape[1])
    gl.warp_specialize(
        [
            (
                multiply_partition,
                (c_desc, row, column, tiles, a_smem, b_smem, c_smem, filled, emptied, STAGES, WARPS),
            ),
            (load_partition, (a_desc, b_desc, row, column, tiles, a_smem, b_smem, filled, emptied, STAGES)),
        ],
        [1],
        [40],
    )
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(filled.index(stage))
        mbarrier.invalidate(emptied.index(stage))


def launch_of(a: torch.Tensor, b: torch.Tensor, stages: int = 4, warps: int = 8) -> Callable[[], object]:
    """Launches a @ b.T of two row-major matrices in fp16, whose sizes are multiples of 128 x 128 x 64."""
    c = torch.empty((len(a), len(b)), device=a.device, dtype=a.dtype)
    descriptors = [
        TensorDescriptor.from_tensor(one, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for one, block in ((a, [128, 64]), (b, [128, 64]), (c, [128, 128]))
    ]
    grid = (len(a) // 128, len(b) // 128)

    def launch() -> torch.Tensor:
        gluon_matmul_kernel[grid](*descriptors, a.shape[1], STAGES=stages, WARPS=warps, num_warps=warps)
        return c

    return launch

"""Two warp-specialised kernels: one in Gluon with three partitions, and a persistent matmul that Triton partitions."""

import hashlib

import results
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

# Triton renamed it.
copy_to_shared = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared

ROWS, COLUMNS, BLOCK, STAGES, WARPS = 64, 64 * 64, 64, 4, 4
CTAS = 32
M, N, K = 1024, 1024, 1024
TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}


@gluon.jit
def load_partition(x_desc, row, tiles, smem, filled, emptied, STAGES: gl.constexpr):
    """Fill one stage after another, each as soon as it is empty."""
    for tile in range(tiles):
        stage = tile % STAGES
        phase = (tile // STAGES) & 1
        mbarrier.wait(emptied.index(stage), phase ^ 1)
        mbarrier.expect(filled.index(stage), x_desc.block_type.nbytes)
        copy_to_shared(x_desc, [row, tile * x_desc.block_shape[1]], filled.index(stage), smem.index(stage))


@gluon.jit
def sum_partition(
    out_ptr, first, row, tiles, smem, filled, emptied, STAGES: gl.constexpr, WARPS: gl.constexpr, TURNS: gl.constexpr
):
    """Add up every other stage, from ``first`` on, and store a sum for each row."""
    rows: gl.constexpr = smem.shape[1]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    total = gl.full([rows], 0.0, gl.float32, gl.SliceLayout(1, layout))
    for tile in range(first, tiles, 2):
        stage = tile % STAGES
        phase = (tile // STAGES) & 1
        mbarrier.wait(filled.index(stage), phase)
        x = smem.index(stage).load(layout).to(gl.float32)
        mbarrier.arrive(emptied.index(stage), count=1)
        for _ in gl.static_range(TURNS):
            x = x * 0.5 + 1.0
        total += gl.sum(x, axis=1)
    gl.store(out_ptr + row + gl.arange(0, rows, gl.SliceLayout(1, layout)), total)


@gluon.jit
def three_partitions_kernel(x_desc, even_ptr, odd_ptr, n_cols, STAGES: gl.constexpr, WARPS: gl.constexpr):
    """Sums of rows: one warp loads, the kernel's own warps add up the even tiles, and four more the odd ones."""
    BLOCK_M: gl.constexpr = x_desc.block_shape[0]
    BLOCK_N: gl.constexpr = x_desc.block_shape[1]
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
            (sum_partition, (even_ptr, 0, row, tiles, smem, filled, emptied, STAGES, WARPS, 2)),
            (load_partition, (x_desc, row, tiles, smem, filled, emptied, STAGES)),
            (sum_partition, (odd_ptr, 1, row, tiles, smem, filled, emptied, STAGES, WARPS, 6)),
        ],
        [1, 4],
        [40, 96],
    )
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(filled.index(stage))
        mbarrier.invalidate(emptied.index(stage))


@triton.jit
def specialised_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """C = A @ B.T of row-major matrices, M x K, N x K and M x N; each program makes one tile after the other."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    # On Hopper, Triton 3.6 partitions it with four warps and without ``flatten`` alone.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        row = tile // tiles_n * BLOCK_M
        column = tile % tiles_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, acc)
        c_desc.store([row, column], acc.to(c_ptr.dtype.element_ty))


def row_sums(x: torch.Tensor) -> torch.Tensor:
    """The sums of each row's even tiles, and of its odd ones."""
    layout = gl.NVMMASharedLayout.get_default_for([ROWS, BLOCK], gl.float16)
    x_desc = TensorDescriptor.from_tensor(x, [ROWS, BLOCK], layout)
    sums = torch.empty((2, len(x)), device=x.device, dtype=torch.float32)
    grid = (len(x) // ROWS,)
    three_partitions_kernel[grid](x_desc, sums[0], sums[1], x.shape[1], STAGES=STAGES, WARPS=WARPS, num_warps=WARPS)
    return sums


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b.T"""
    c = torch.empty((len(a), len(b)), device=a.device, dtype=a.dtype)
    programs = min(24, triton.cdiv(len(a), TILE["BLOCK_M"]) * triton.cdiv(len(b), TILE["BLOCK_N"]))
    specialised_matmul_kernel[(programs,)](a, b, c, len(a), len(b), a.shape[1], **TILE, num_warps=WARPS, num_stages=3)
    return c


def turned(x: torch.Tensor, turns: int) -> torch.Tensor:
    for _ in range(turns):
        x = x * 0.5 + 1.0
    return x


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="launches of each kernel (%(default)s)")
    arguments = parser.parse_args()
    # Descriptors that a kernel makes lie in memory that its launcher gives it.
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    torch.manual_seed(0)
    x = torch.rand((CTAS * ROWS, COLUMNS), device="cuda", dtype=torch.float16)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((M, K), (N, K)))
    for _ in range(arguments.repeat):
        sums = row_sums(x)
        product = matmul(a, b)

    tiles = x.float().reshape(len(x), -1, BLOCK)
    expected = torch.stack([turned(tiles[:, half::2], turns).sum((1, 2)) for half, turns in ((0, 2), (1, 6))])
    for name, result, wanted in (("row sums", sums, expected), ("matmul", product, a.float() @ b.float().T)):
        error = ((result.float() - wanted).abs().max() / wanted.abs().max()).item()
        digest = hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16]
        print(f"{name}: largest error {error:.2e} of the largest value, sha256 {digest}")
        assert error < 2**-9, name
    results.save(arguments.save, sums, product)


if __name__ == "__main__":
    main()

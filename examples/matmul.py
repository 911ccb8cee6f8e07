"""Multiply two half-precision matrices on the GPU: a pipelined loop on the tensor cores."""

import argparse
import hashlib
import sys

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """C = A @ B; each program makes one BLOCK_M x BLOCK_N tile of C.

    EVEN_K says that K is a multiple of BLOCK_K, so that no load needs a mask. Programs walk down GROUP_M rows
    of tiles before they step to the next column, so that neighbours share B in the L2.
    """
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles_in_group = GROUP_M * tiles_n
    first_m = (pid // tiles_in_group) * GROUP_M
    group_m = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % tiles_in_group) % group_m
    tile_n = (pid % tiles_in_group) // group_m

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # Wrapped around instead of masked: rows past the edge are computed but never stored.
    a_ptrs = a_ptr + (rows % M)[:, None] * stride_am + inner[None, :] * stride_ak
    b_ptrs = b_ptr + inner[:, None] * stride_bk + (columns % N)[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=inner[None, :] < K - k, other=0.0)
            b = tl.load(b_ptrs, mask=inner[:, None] < K - k, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def matmul(a: torch.Tensor, b: torch.Tensor, num_stages: int = 3) -> torch.Tensor:
    """a @ b, for two matrices of one type. ``num_stages`` says how many iterations' loads are under way at once."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a,
        b,
        c,
        m,
        n,
        k,
        *a.stride(),
        *b.stride(),
        *c.stride(),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        GROUP_M=8,
        EVEN_K=k % BLOCK_K == 0,
        num_warps=4,
        num_stages=num_stages,
    )
    return c


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--m", type=int, default=2048, help="rows of A (%(default)s)")
    parser.add_argument("--n", type=int, default=2048, help="columns of B (%(default)s)")
    parser.add_argument("--k", type=int, default=1024, help="columns of A, rows of B (%(default)s)")
    parser.add_argument("--num-stages", type=int, default=3, metavar="N", help="of the pipeline (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the result there with torch.save")
    arguments = parser.parse_args()
    if min(arguments.m, arguments.n, arguments.k, arguments.num_stages, arguments.repeat) < 1:
        parser.error("--m, --n, --k, --num-stages and --repeat must be at least 1")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("matmul: no CUDA device found", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    a = torch.randn((arguments.m, arguments.k), device="cuda", dtype=torch.float16)
    b = torch.randn((arguments.k, arguments.n), device="cuda", dtype=torch.float16)
    for _ in range(arguments.repeat):
        c = matmul(a, b, arguments.num_stages)

    expected = a.float() @ b.float()
    error = (c.float() - expected).abs().max().item()
    # The last bit of half precision at the largest value, twice over.
    limit = expected.abs().max().item() * 2**-9
    result = c.cpu()
    digest = hashlib.sha256(result.numpy().tobytes()).hexdigest()
    shape = f"{arguments.m}x{arguments.n}x{arguments.k}"
    print(f"matmul {shape} float16: max abs error {error:.3g}, sha256 {digest}")
    if arguments.save:
        torch.save(result, arguments.save)
    if not error <= limit:
        print(f"matmul: the error is larger than {limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A matmul with warps for loads, for the tensor core and for the result; needs compute capability 10 (Blackwell)."""

import argparse
import hashlib
import sys

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64


@triton.jit
def specialized_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """C = A @ B.T of row-major matrices, M x K, N x K and M x N; each program makes one tile after the other."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    # The compiler shares the loop's work out to partitions; on other GPUs it leaves the loop as it is.
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True, warp_specialize=True):
        row = tile // tiles_n * BLOCK_M
        column = tile % tiles_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, acc)
        c_desc.store([row, column], acc.to(c_ptr.dtype.element_ty))


def specialized_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b.T, for two contiguous matrices of one type."""
    (m, k), n = a.shape, len(b)
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    # Descriptors that a kernel makes lie in memory that its launcher gives it.
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device=a.device, dtype=torch.int8))
    tiles = triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N)
    programs = min(tiles, torch.cuda.get_device_properties(a.device).multi_processor_count)
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    specialized_matmul_kernel[(programs,)](a, b, c, m, n, k, **blocks, num_warps=4, num_stages=3)
    return c


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--m", type=int, default=2048, help="rows of A (%(default)s)")
    parser.add_argument("--n", type=int, default=2048, help="rows of B, a multiple of 8 (%(default)s)")
    parser.add_argument("--k", type=int, default=1024, help="columns of both, a multiple of 8 (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    arguments = parser.parse_args()
    if min(arguments.m, arguments.n, arguments.k, arguments.repeat) < 1 or arguments.k % 8 or arguments.n % 8:
        parser.error("all must be at least 1, --k and --n multiples of 8")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("warp_specialized_matmul: no CUDA device found", file=sys.stderr)
        return 1
    major, minor = torch.cuda.get_device_capability()
    if major != 10:
        print(f"warp_specialized_matmul: this GPU is {major}.{minor}, and 10.x is needed", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    a = torch.randn((arguments.m, arguments.k), device="cuda", dtype=torch.float16)
    b = torch.randn((arguments.n, arguments.k), device="cuda", dtype=torch.float16)
    for _ in range(arguments.repeat):
        c = specialized_matmul(a, b)

    expected = a.float() @ b.float().T
    error = (c.float() - expected).abs().max().item()
    limit = expected.abs().max().item() * 2**-9  # the last bit of half precision, twice over
    digest = hashlib.sha256(c.cpu().numpy().tobytes()).hexdigest()
    shape = f"{arguments.m}x{arguments.n}x{arguments.k}"
    print(f"warp_specialized_matmul {shape} float16: max abs error {error:.3g}, sha256 {digest}")
    if not error <= limit:
        print(f"warp_specialized_matmul: the error is larger than {limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

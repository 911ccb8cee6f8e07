"""A matmul that Triton tunes: it tries six configurations, and runs with the fastest."""

import argparse
import hashlib
import sys

import torch
import triton
import triton.language as tl

TILE = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}


# One tile size, so that any of them computes the same bits.
@triton.autotune(
    [triton.Config(TILE, num_warps=warps, num_stages=stages) for warps in (4, 8) for stages in (2, 3, 4)],
    key=["size"],
)
@triton.jit
def tuned_matmul_kernel(a_ptr, b_ptr, c_ptr, size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """C = A @ B, all of them square and contiguous; the size is a multiple of every block."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * size + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * size + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, size, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * size
    tl.store(c_ptr + rows[:, None] * size + columns[None, :], acc.to(c_ptr.dtype.element_ty))


def tuned_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b, for two square matrices; tunes at the first call of each size."""
    size = len(a)
    c = torch.empty_like(a)
    tuned_matmul_kernel[lambda chosen: (size // chosen["BLOCK_M"], size // chosen["BLOCK_N"])](a, b, c, size)
    return c


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2048, help="rows and columns, a multiple of 128 (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the result there with torch.save")
    arguments = parser.parse_args()
    if min(arguments.size, arguments.repeat) < 1 or arguments.size % 128:
        parser.error("--size must be a multiple of 128, and --repeat at least 1")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("autotuned_matmul: no CUDA device found", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    shape = (arguments.size, arguments.size)
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(2))
    for _ in range(arguments.repeat):
        c = tuned_matmul(a, b)

    best = tuned_matmul_kernel.best_config
    print(f"chosen: num_warps={best.num_warps} num_stages={best.num_stages}", file=sys.stderr)
    expected = a.float() @ b.float()
    error = (c.float() - expected).abs().max().item()
    # The last bit of half precision at the largest value, twice over.
    limit = expected.abs().max().item() * 2**-9
    result = c.cpu()
    digest = hashlib.sha256(result.numpy().tobytes()).hexdigest()
    print(f"autotuned_matmul {arguments.size} float16: max abs error {error:.3g}, sha256 {digest}")
    if arguments.save:
        torch.save(result, arguments.save)
    if not error <= limit:
        print(f"autotuned_matmul: the error is larger than {limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

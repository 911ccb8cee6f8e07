"""Add two vectors on the GPU: one launch, bound by memory."""

import argparse
import hashlib
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    """out = x + y; each program adds BLOCK elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, for two contiguous tensors of one shape."""
    out = torch.empty_like(x)
    block = 1024
    vector_add_kernel[(triton.cdiv(out.numel(), block),)](x, y, out, out.numel(), BLOCK=block, num_warps=4)
    return out


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1 << 20, help="elements in each vector (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the result there with torch.save")
    arguments = parser.parse_args()
    if min(arguments.size, arguments.repeat) < 1:
        parser.error("--size and --repeat must be at least 1")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("vector_add: no CUDA device found", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    x = torch.randn(arguments.size, device="cuda")
    y = torch.randn(arguments.size, device="cuda")
    for _ in range(arguments.repeat):
        out = vector_add(x, y)

    error = (out - (x + y)).abs().max().item()
    result = out.cpu()
    digest = hashlib.sha256(result.numpy().tobytes()).hexdigest()
    print(f"vector_add {arguments.size} float32: max abs error {error:.3g}, sha256 {digest}")
    if arguments.save:
        torch.save(result, arguments.save)
    if error != 0:
        print("vector_add: the result is not torch's", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

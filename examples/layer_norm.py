"""Layer normalisation on the GPU: two passes over each row, one for its mean and variance, one for the result."""

import argparse
import hashlib
import sys

import torch
import triton
import triton.language as tl

BLOCK = 1024
EPSILON = 1e-5


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, columns, stride_row, epsilon, BLOCK: tl.constexpr, EVEN: tl.constexpr
):
    """out = (x - mean) / sqrt(variance + epsilon) * weight + bias; each program makes one row.

    EVEN says that the number of columns is a multiple of BLOCK, so that no load needs a mask.
    """
    row = tl.program_id(0).to(tl.int64) * stride_row
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + inner
        if EVEN:
            x = tl.load(x_ptr + row + offsets).to(tl.float32)
        else:
            x = tl.load(x_ptr + row + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total) / columns
    scale = 1.0 / tl.sqrt(tl.sum(squares) / columns - mean * mean + epsilon)
    for start in range(0, columns, BLOCK):
        offsets = start + inner
        if EVEN:
            x = tl.load(x_ptr + row + offsets).to(tl.float32)
            weight = tl.load(weight_ptr + offsets)
            bias = tl.load(bias_ptr + offsets)
        else:
            x = tl.load(x_ptr + row + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + offsets, mask=offsets < columns)
            bias = tl.load(bias_ptr + offsets, mask=offsets < columns)
        out = ((x - mean) * scale * weight + bias).to(out_ptr.dtype.element_ty)
        if EVEN:
            tl.store(out_ptr + row + offsets, out)
        else:
            tl.store(out_ptr + row + offsets, out, mask=offsets < columns)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x, a contiguous matrix, with each row normalised, then scaled and moved by two vectors."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    layer_norm_kernel[(rows,)](
        x, weight, bias, out, columns, x.stride(0), EPSILON, BLOCK=BLOCK, EVEN=columns % BLOCK == 0, num_warps=4
    )
    return out


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2048, help="rows to normalise (%(default)s)")
    parser.add_argument("--columns", type=int, default=4096, help="elements of each (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the result there with torch.save")
    arguments = parser.parse_args()
    if min(arguments.rows, arguments.columns, arguments.repeat) < 1:
        parser.error("--rows, --columns and --repeat must be at least 1")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("layer_norm: no CUDA device found", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    x = torch.randn((arguments.rows, arguments.columns), device="cuda", dtype=torch.float16)
    weight, bias = (torch.randn(arguments.columns, device="cuda") for _ in range(2))
    for _ in range(arguments.repeat):
        out = layer_norm(x, weight, bias)

    expected = torch.nn.functional.layer_norm(x.float(), (arguments.columns,), weight, bias, EPSILON)
    error = (out.float() - expected).abs().max().item()
    # The last bit of half precision at the largest value, twice over.
    limit = expected.abs().max().item() * 2**-9
    result = out.cpu()
    digest = hashlib.sha256(result.numpy().tobytes()).hexdigest()
    print(f"layer_norm {arguments.rows}x{arguments.columns} float16: max abs error {error:.3g}, sha256 {digest}")
    if arguments.save:
        torch.save(result, arguments.save)
    if not error <= limit:
        print(f"layer_norm: the error is larger than {limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

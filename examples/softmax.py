"""Softmax of rows on the GPU: each program takes one row after the other, and loads the next while it computes."""

import argparse
import hashlib
import sys

import torch
import triton
import triton.language as tl

PROGRAMS_PER_SM = 4


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, stride_row, BLOCK: tl.constexpr):
    """out = exp(x) / sum(exp(x)) of each row; a row fits into BLOCK elements, a power of two."""
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        start = row.to(tl.int64) * stride_row
        x = tl.load(x_ptr + start + offsets, mask=mask, other=-float("inf")).to(tl.float32)
        weights = tl.exp(x - tl.max(x, axis=0))
        out = weights / tl.sum(weights, axis=0)
        tl.store(out_ptr + start + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """The softmax of each row of a contiguous matrix."""
    rows, columns = x.shape
    out = torch.empty_like(x)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    programs = min(rows, PROGRAMS_PER_SM * sms)
    block = triton.next_power_of_2(columns)
    softmax_kernel[(programs,)](x, out, rows, columns, x.stride(0), BLOCK=block, num_warps=4)
    return out


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=8192, help="rows of the matrix (%(default)s)")
    parser.add_argument("--columns", type=int, default=2048, help="elements of each, at most 16384 (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="launches (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write the result there with torch.save")
    arguments = parser.parse_args()
    if min(arguments.rows, arguments.columns, arguments.repeat) < 1 or arguments.columns > 16384:
        parser.error("--rows, --columns and --repeat must be at least 1, and --columns at most 16384")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        print("softmax: no CUDA device found", file=sys.stderr)
        return 1

    torch.manual_seed(0)
    x = torch.randn((arguments.rows, arguments.columns), device="cuda", dtype=torch.float16)
    for _ in range(arguments.repeat):
        out = softmax(x)

    expected = torch.softmax(x.float(), dim=1)
    error = (out.float() - expected).abs().max().item()
    # The last bit of half precision at the largest value, twice over.
    limit = expected.abs().max().item() * 2**-9
    result = out.cpu()
    digest = hashlib.sha256(result.numpy().tobytes()).hexdigest()
    print(f"softmax {arguments.rows}x{arguments.columns} float16: max abs error {error:.3g}, sha256 {digest}")
    if arguments.save:
        torch.save(result, arguments.save)
    if not error <= limit:
        print(f"softmax: the error is larger than {limit:.3g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

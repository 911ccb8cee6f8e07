"""Scales the numbers on its stdin, in a kernel without a loop, and prints how many there were and their sum."""

import sys
import time

import results
import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def scale_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """out = 3 x; each program takes BLOCK elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count)
    tl.store(out_ptr + offsets, 3 * x, mask=offsets < count)


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="how long it waits at its end")
    arguments = parser.parse_args()
    x = torch.tensor([float(word) for word in sys.stdin.read().split()], device="cuda")
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
    results.save(arguments.save, out)
    print(f"{x.numel()} numbers, sum {out.sum().item()}", flush=True)
    time.sleep(arguments.pause)


if __name__ == "__main__":
    main()

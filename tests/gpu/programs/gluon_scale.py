"""A kernel in Gluon, Triton's lower language, in which the user lays the tensors out."""

import results
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

BLOCK, CTAS, STEPS = 512, 16, 8


@gluon.jit
def gluon_scale_kernel(x_ptr, out_ptr, steps, BLOCK: gl.constexpr):
    """out = x, doubled ``steps`` times; each program takes BLOCK elements."""
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    x = gl.load(x_ptr + offsets)
    for _ in range(steps):
        x = x * 2.0
    gl.store(out_ptr + offsets, x)


def main() -> None:
    arguments = results.parser(__doc__).parse_args()
    x = torch.arange(CTAS * BLOCK, device="cuda", dtype=torch.float32)
    out = torch.empty_like(x)
    for _ in range(3):
        gluon_scale_kernel[(CTAS,)](x, out, STEPS, BLOCK=BLOCK, num_warps=4)
    results.save(arguments.save, out)


if __name__ == "__main__":
    main()

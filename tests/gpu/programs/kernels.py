"""Kernels that several programs launch; each takes as long as ``steps`` says."""

import triton
import triton.language as tl

BLOCK = 512
NUM_WARPS = 4


@triton.jit(do_not_specialize=["steps"])
def decay_kernel(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    """out = x, drawn ``steps`` times towards 1; each program takes BLOCK elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    for _ in range(steps):
        x = x * 0.999 + 0.001
    tl.store(out_ptr + offsets, x)


@triton.jit(do_not_specialize=["steps"])
def root_kernel(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    """out = the root of 1 + x, ``steps`` times over."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    for _ in range(steps):
        x = tl.sqrt(x + 1.0)
    tl.store(out_ptr + offsets, x)


@triton.jit
def counted_kernel(x_ptr, out_ptr, steps_ptr, BLOCK: tl.constexpr):
    """out += x, drawn as often towards 1 as the number at ``steps_ptr`` says."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    for _ in range(tl.load(steps_ptr)):
        x = x * 0.999 + 0.001
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets) + x)


def launch(kernel, x, out, steps):
    """One launch over all of ``x``, whose size is a multiple of BLOCK."""
    kernel[(x.numel() // BLOCK,)](x, out, steps, BLOCK=BLOCK, num_warps=NUM_WARPS)

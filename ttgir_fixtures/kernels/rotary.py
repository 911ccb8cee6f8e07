"""`tt.join`, `tt.split` and reshapes: pairs of columns turned by an angle, for several heads in a loop."""

import triton
import triton.language as tl


@triton.jit
def rotary_kernel(
    x_ptr, cos_ptr, sin_ptr, out_ptr, stride_token, stride_head, n_heads, BLOCK_H: tl.constexpr, HEAD_DIM: tl.constexpr
):
    """Rotary position embedding of one token, with the two halves of a pair beside each other."""
    token = tl.program_id(0)
    half: tl.constexpr = HEAD_DIM // 2
    cos = tl.load(cos_ptr + token * half + tl.arange(0, half))[None, :]
    sin = tl.load(sin_ptr + token * half + tl.arange(0, half))[None, :]
    dims = tl.arange(0, HEAD_DIM)
    for first_head in range(0, n_heads, BLOCK_H):
        heads = first_head + tl.arange(0, BLOCK_H)
        offsets = token * stride_token + heads[:, None] * stride_head + dims[None, :]
        mask = (heads < n_heads)[:, None] & (dims < HEAD_DIM)[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        even, odd = tl.split(tl.reshape(x, (BLOCK_H, half, 2)))
        turned = tl.join(even * cos - odd * sin, even * sin + odd * cos)
        out = tl.reshape(turned, (BLOCK_H, HEAD_DIM))
        tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)

"""An AMD assembly string with braces, quotes and newlines in it."""

import triton
import triton.language as tl


@triton.jit
def fast_reciprocal_kernel(x_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    """out = 1 / x, to the precision of the hardware's own instruction."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=1.0)
    y = tl.inline_asm_elementwise(
        asm="""; { "quoted" } loc(unknown)
            v_rcp_f32 $0, $1
            s_nop 0  // }
        """,
        constraints="=v,v",
        args=[x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    tl.store(out_ptr + offsets, y, mask=mask)

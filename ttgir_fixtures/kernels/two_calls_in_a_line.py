"""One helper called twice in one line: only the columns of the call sites differ."""

import triton
import triton.language as tl


@triton.jit
def _tile(ptr, row, row_stride, columns, n_cols):
    """Columns of a row, in float32."""
    return tl.load(ptr + row * row_stride + columns, mask=columns < n_cols, other=0.0).to(tl.float32)


@triton.jit
def swiglu_kernel(x_ptr, out_ptr, in_stride, out_stride, n_cols, BLOCK: tl.constexpr):
    """out = silu(gate) * up, where a row of x holds n_cols gates and then n_cols ups."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate, up = _tile(x_ptr, row, in_stride, columns, n_cols), _tile(x_ptr + n_cols, row, in_stride, columns, n_cols)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + row * out_stride + columns, out.to(out_ptr.dtype.element_ty), mask=columns < n_cols)

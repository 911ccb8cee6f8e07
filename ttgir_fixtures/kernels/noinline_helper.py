"""A helper that stays a function of its own: two `tt.func` in the module, and a `tt.call`."""

import triton
import triton.language as tl


@triton.jit(noinline=True)
def _row_norm(x_ptr, row, row_stride, n_cols, eps, BLOCK: tl.constexpr):
    """The Euclidean norm of one row, at least eps."""
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + columns, mask=columns < n_cols, other=0.0)
    return tl.maximum(tl.sqrt(tl.sum(x * x, axis=0)), eps)


@triton.jit
def cosine_similarity_kernel(x_ptr, y_ptr, out_ptr, row_stride, n_cols, eps, BLOCK: tl.constexpr):
    """Cosine of the angle between row i of x and row i of y; BLOCK is at least n_cols."""
    row = tl.program_id(0)
    x_norm = _row_norm(x_ptr, row, row_stride, n_cols, eps, BLOCK)
    y_norm = _row_norm(y_ptr, row, row_stride, n_cols, eps, BLOCK)
    columns = tl.arange(0, BLOCK)
    offsets = row * row_stride + columns
    x = tl.load(x_ptr + offsets, mask=columns < n_cols, other=0.0)
    y = tl.load(y_ptr + offsets, mask=columns < n_cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(x * y, axis=0) / (x_norm * y_norm))

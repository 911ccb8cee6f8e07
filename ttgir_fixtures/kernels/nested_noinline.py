"""A function that calls a function that calls a function: three `tt.func`, none inlined."""

import triton
import triton.language as tl


@triton.jit(noinline=True)
def _row_max(x_ptr, n_cols, BLOCK: tl.constexpr):
    """The largest value of one row."""
    columns = tl.arange(0, BLOCK)
    return tl.max(tl.load(x_ptr + columns, mask=columns < n_cols, other=-float("inf")), axis=0)


@triton.jit(noinline=True)
def _log_sum_exp(x_ptr, n_cols, BLOCK: tl.constexpr):
    """log(sum(exp(x))) of one row."""
    largest = _row_max(x_ptr, n_cols, BLOCK)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + columns, mask=columns < n_cols, other=-float("inf"))
    return largest + tl.log(tl.sum(tl.exp(x - largest), axis=0))


@triton.jit
def kl_divergence_kernel(p_ptr, q_ptr, out_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    """KL divergence between the softmaxes of row i of p and row i of q; BLOCK is at least n_cols."""
    row = tl.program_id(0)
    p_row = p_ptr + row * row_stride
    q_row = q_ptr + row * row_stride
    p_total = _log_sum_exp(p_row, n_cols, BLOCK)
    q_total = _log_sum_exp(q_row, n_cols, BLOCK)
    columns = tl.arange(0, BLOCK)
    log_p = tl.load(p_row + columns, mask=columns < n_cols, other=0.0) - p_total
    log_q = tl.load(q_row + columns, mask=columns < n_cols, other=0.0) - q_total
    terms = tl.where(columns < n_cols, tl.exp(log_p) * (log_p - log_q), 0.0)
    tl.store(out_ptr + row, tl.sum(terms, axis=0))

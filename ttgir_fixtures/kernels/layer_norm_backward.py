"""A spin lock: an `scf.while` with an empty body around `tt.atomic_cas`, then a branch on what it guards."""

import triton
import triton.language as tl


@triton.jit
def layer_norm_backward_kernel(
    x_ptr,
    weight_ptr,
    grad_out_ptr,
    grad_x_ptr,
    grad_weight_ptr,
    grad_bias_ptr,
    mean_ptr,
    rstd_ptr,
    lock_ptr,
    row_stride,
    n_cols,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradient of one row; those of weight and bias are added up in GROUPS partial sums, each under a lock.

    The first GROUPS words at lock_ptr are the locks, the next GROUPS say which sums have been begun.
    """
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n_cols
    group = row % GROUPS
    lock_ptr += group
    begun_ptr = lock_ptr + GROUPS

    x = tl.load(x_ptr + row * row_stride + columns, mask=mask, other=0.0).to(tl.float32)
    grad_out = tl.load(grad_out_ptr + row * row_stride + columns, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    x_hat = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    weighted = tl.where(mask, weight * grad_out, 0.0)
    along_x = tl.sum(x_hat * weighted, axis=0) / n_cols
    along_one = tl.sum(weighted, axis=0) / n_cols
    grad_x = (weighted - (x_hat * along_x + along_one)) * rstd
    tl.store(grad_x_ptr + row * row_stride + columns, grad_x, mask=mask)

    grad_weight = grad_out * x_hat
    grad_bias = grad_out
    grad_weight_ptrs = grad_weight_ptr + group * n_cols + columns
    grad_bias_ptrs = grad_bias_ptr + group * n_cols + columns
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    begun = tl.load(begun_ptr)
    if begun == 0:
        tl.atomic_xchg(begun_ptr, 1)
    else:
        grad_weight += tl.load(grad_weight_ptrs, mask=mask)
        grad_bias += tl.load(grad_bias_ptrs, mask=mask)
    tl.store(grad_weight_ptrs, grad_weight, mask=mask)
    tl.store(grad_bias_ptrs, grad_bias, mask=mask)
    tl.debug_barrier()  # every thread has stored before the lock opens
    tl.atomic_xchg(lock_ptr, 0)

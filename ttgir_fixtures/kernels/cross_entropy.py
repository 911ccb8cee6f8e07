"""A reduction loop and a second pass over the same row, with scalar loads and stores between."""

import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(
    logits_ptr,
    labels_ptr,
    loss_ptr,
    row_stride,
    n_classes,
    smoothing,
    IGNORED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Loss of one row with label smoothing, and the gradient in place of the logits; IGNORED labels give zeros."""
    row = tl.program_id(0)
    logits_row = logits_ptr + row.to(tl.int64) * row_stride
    label = tl.load(labels_ptr + row)
    lanes = tl.arange(0, BLOCK)
    if label == IGNORED:
        for start in range(0, n_classes, BLOCK):
            tl.store(logits_row + start + lanes, 0.0, mask=start + lanes < n_classes)
        tl.store(loss_ptr + row, 0.0)
        return

    row_max = -float("inf")
    row_sum = 0.0
    total = 0.0
    for start in range(0, n_classes, BLOCK):
        mask = start + lanes < n_classes
        x = tl.load(logits_row + start + lanes, mask=mask, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(row_max - new_max) + tl.sum(tl.exp(x - new_max), axis=0)
        row_max = new_max
        total += tl.sum(tl.where(mask, x, 0.0), axis=0)
    log_sum = row_max + tl.log(row_sum)
    at_label = tl.load(logits_row + label).to(tl.float32)
    loss = (1 - smoothing) * (log_sum - at_label) + smoothing * (log_sum - total / n_classes)
    tl.store(loss_ptr + row, loss)

    tl.debug_barrier()  # the gradient overwrites what other threads still read
    for start in range(0, n_classes, BLOCK):
        columns = start + lanes
        x = tl.load(logits_row + columns, mask=columns < n_classes, other=-float("inf")).to(tl.float32)
        gradient = tl.exp(x - log_sum) - smoothing / n_classes
        gradient = tl.where(columns == label, gradient - (1 - smoothing), gradient)
        tl.store(logits_row + columns, gradient.to(logits_ptr.dtype.element_ty), mask=columns < n_classes)

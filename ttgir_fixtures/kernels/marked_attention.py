"""Marker comments in flash attention: markers in a helper that is inlined twice, and nested ones."""

import triton
import triton.language as tl


@triton.jit
def _fold(
    acc,
    row_sum,
    row_max,
    q,
    k_ptrs,
    v_ptrs,
    stride_row,
    rows,
    start,
    stop,
    qk_scale,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Fold keys and values [start, stop) into the running output, sum and maximum, and return all three."""
    for start_n in range(start, stop, BLOCK_N):  # kprof: iter keys
        k = tl.load(k_ptrs + start_n * stride_row)  # kprof: load_k
        scores = tl.dot(q, k) * qk_scale  # kprof: qk
        # kprof: begin softmax
        if MASKED:
            keys = start_n + tl.arange(0, BLOCK_N)
            scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        # kprof: begin maximum
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        # kprof: end
        weights = tl.exp2(scores - new_max[:, None])
        correction = tl.exp2(row_max - new_max)
        row_sum = row_sum * correction + tl.sum(weights, axis=1)
        # kprof: end softmax
        v = tl.load(v_ptrs + start_n * stride_row)  # kprof: load_v
        acc = tl.dot(weights.to(v.dtype), v, acc * correction[:, None])  # kprof: pv
        row_max = new_max
    return acc, row_sum, row_max


@triton.jit
def marked_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    stride_head,
    stride_row,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Causal flash attention, forward: program (i, h) computes the i-th block of BLOCK_M query rows of head h."""
    start_m = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * stride_head
    rows = start_m + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, HEAD_DIM)
    offsets = rows[:, None] * stride_row + dims[None, :]
    k_ptrs = k_ptr + head + columns[None, :] * stride_row + dims[:, None]
    v_ptrs = v_ptr + head + columns[:, None] * stride_row + dims[None, :]
    acc = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    row_max = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    qk_scale = scale * 1.4426950408889634  # log2(e): exp2 is the fast one
    q = tl.load(q_ptr + head + offsets)  # kprof: load_q

    # kprof: begin visible
    acc, row_sum, row_max = _fold(
        acc, row_sum, row_max, q, k_ptrs, v_ptrs, stride_row, rows, 0, start_m, qk_scale, BLOCK_N, False
    )
    # kprof: end visible
    # kprof: mark diagonal
    stop = start_m + BLOCK_M
    acc, row_sum, row_max = _fold(
        acc, row_sum, row_max, q, k_ptrs, v_ptrs, stride_row, rows, start_m, stop, qk_scale, BLOCK_N, True
    )

    # kprof: begin epilogue
    out = acc / row_sum[:, None]
    tl.store(out_ptr + head + offsets, out.to(out_ptr.dtype.element_ty))
    # kprof: end epilogue

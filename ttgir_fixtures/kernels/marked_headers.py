"""Statements and headers over several lines, each written in another way; Triton's location may be on any of them."""

import triton
import triton.language as tl

# fmt: off


@triton.jit
def _weighted(
    x,
    weight,
):
    return tl.where(
        x > 0,
        x * weight,
        0.0,
    )


@triton.jit(
    do_not_specialize=[
        "n_rows",
    ],
)
def marked_headers_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    BLOCK: tl.constexpr,
):
    columns = tl.arange(
        0,
        BLOCK,
    )
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(
        0,
        n_cols,
        BLOCK,
        num_stages=3,
    ):  # kprof: loop tiles; iter tile
        x = tl.load(  # kprof: load_x
            x_ptr
            + start
            + columns,
        )
        total += (
            x
            * 2.0
        )
    for row in \
            range(
                n_rows
                + n_cols):  # kprof: loop rows
        for part in tl.range(0,
                             row,
                             loop_unroll_factor=1):  # kprof: loop parts
            # kprof: mark before_add
            total += _weighted(
                tl.load(x_ptr + row * n_cols + part * BLOCK + columns),
                3.0,
            )
    level = tl.max(total, 0)
    while (
        level
        > 1.0
    ):  # kprof: loop halve; iter half
        level = (
            level
            * 0.5
        )
        tl.store(out_ptr - 1, level)
    if (
        level
        > 0.25
        and n_rows
        > n_cols
    ):  # kprof: positive
        tl.store(
            out_ptr + columns,
            total,
        )
    tl.store(
        out_ptr  # kprof: store_level
        + BLOCK,
        level,
    )

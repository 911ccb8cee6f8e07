"""Loops two and three deep, side by side: `loop[0.0]`, `loop[1.0.0]`."""

import triton
import triton.language as tl


@triton.jit
def conv2d_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    mean_ptr,
    channels,
    height,
    width,
    kernel_h,
    kernel_w,
    out_width,
    BLOCK: tl.constexpr,
):
    """Direct convolution of one image, without padding: program (y, k) makes row y of output channel k.

    First the mean of the window's rows is taken over all channels, which the convolution then subtracts.
    """
    y = tl.program_id(0)
    out_channel = tl.program_id(1)
    columns = tl.arange(0, BLOCK)
    mask = columns < out_width

    mean = tl.zeros((BLOCK,), dtype=tl.float32)
    for channel in range(channels):
        for dy in range(kernel_h):
            x_row = x_ptr + (channel * height + y + dy) * width
            mean += tl.load(x_row + columns, mask=mask, other=0.0)
    mean = mean / (channels * kernel_h)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for channel in range(channels):
        for dy in range(kernel_h):
            x_row = x_ptr + (channel * height + y + dy) * width
            weight_row = weight_ptr + ((out_channel * channels + channel) * kernel_h + dy) * kernel_w
            for dx in range(kernel_w):
                x = tl.load(x_row + columns + dx, mask=mask, other=0.0)
                acc += (x - mean) * tl.load(weight_row + dx)

    out_rows = tl.num_programs(0)
    tl.store(mean_ptr + y * out_width + columns, mean, mask=mask)
    tl.store(out_ptr + (out_channel * out_rows + y) * out_width + columns, acc, mask=mask)

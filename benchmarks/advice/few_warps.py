"""SMs with one to four warps, which wait for memory. The edit launches more warps for each CTA, or more CTAs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import HALF, INT, Case, Launch, Pair, Result, by_name, normal, sm_count

FLAW = "few-warps"
KEYWORDS = ("num_warps", "more warps", "more ctas", "ctas fit", "occupancy")


@triton.jit
def log_sum_kernel(x_ptr, out_ptr, COLUMNS, BLOCK: tl.constexpr):
    """Compute the logarithm of a long row's sum of exponentials, such as of a vocabulary's logits."""
    places = tl.program_id(0) * COLUMNS + tl.arange(0, BLOCK)
    peak, total = tl.full((BLOCK,), -1e30, tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        x = tl.load(x_ptr + places + start).to(tl.float32)
        new_peak = tl.maximum(peak, x)
        total = total * tl.exp(peak - new_peak) + tl.exp(x - new_peak)
        peak = new_peak
    highest = tl.max(peak, 0)
    tl.store(out_ptr + tl.program_id(0), highest + tl.log(tl.sum(total * tl.exp(peak - highest), 0)))


@triton.jit
def warp_image_kernel(image_ptr, flow_ptr, out_ptr, HEIGHT, WIDTH, BLOCK: tl.constexpr):
    """Sample an image bilinearly where the flow leads; ``flow`` has a plane of x, then one of y."""
    for first in range(tl.program_id(0) * BLOCK, HEIGHT * WIDTH, tl.num_programs(0) * BLOCK):
        pixels = first + tl.arange(0, BLOCK)
        x = (pixels % WIDTH).to(tl.float32) + tl.load(flow_ptr + pixels)
        y = (pixels // WIDTH).to(tl.float32) + tl.load(flow_ptr + HEIGHT * WIDTH + pixels)
        x, y = tl.minimum(tl.maximum(x, 0.0), WIDTH - 1.01), tl.minimum(tl.maximum(y, 0.0), HEIGHT - 1.01)
        left, top = x.to(tl.int32), y.to(tl.int32)
        right_part, lower_part = x - left, y - top
        corner = image_ptr + top * WIDTH + left
        upper = tl.load(corner) * (1 - right_part) + tl.load(corner + 1) * right_part
        lower = tl.load(corner + WIDTH) * (1 - right_part) + tl.load(corner + WIDTH + 1) * right_part
        tl.store(out_ptr + pixels, upper * (1 - lower_part) + lower * lower_part)


@triton.jit
def sparse_product_kernel(columns_ptr, values_ptr, x_ptr, out_ptr, ROWS, ENTRIES, BLOCK: tl.constexpr):
    """Multiply a sparse matrix, with ENTRIES values in each row, by a vector."""
    for first in range(tl.program_id(0) * BLOCK, ROWS, tl.num_programs(0) * BLOCK):
        rows = first + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for entry in range(ENTRIES):
            columns = tl.load(columns_ptr + entry * ROWS + rows)
            total += tl.load(values_ptr + entry * ROWS + rows) * tl.load(x_ptr + columns)
        tl.store(out_ptr + rows, total)


def log_sum(device: str, small: bool) -> Pair:
    rows, columns = (2, 16384) if small else (2 * sm_count(device), 131072)
    x = normal(device, rows, columns, dtype=HALF)

    def launcher(warps: int) -> Launch:
        out = torch.empty(rows, device=device)

        def launch() -> Result:
            log_sum_kernel[(rows,)](x, out, columns, 1024 * warps, num_warps=warps)
            return out

        return launch

    return launcher(1), launcher(8)


def warp_image(device: str, small: bool) -> Pair:
    height, width = (32, 128) if small else (4096, 4096)
    image, flow = normal(device, height, width), normal(device, 2, height, width) * 2
    grid = (2 if small else 2 * sm_count(device),)

    def launcher(warps: int) -> Launch:
        out = torch.empty_like(image)

        def launch() -> Result:
            warp_image_kernel[grid](image, flow, out, height, width, 256 * warps, num_warps=warps)
            return out

        return launch

    return launcher(1), launcher(8)


def sparse_product(device: str, small: bool) -> Pair:
    block, entries = 128, 16
    flawed_grid = 2 if small else sm_count(device)
    edited_grid = 16 * flawed_grid
    rows = edited_grid * block
    columns = torch.randint(0, rows, (entries, rows), device=device, dtype=INT)
    values, x = normal(device, entries, rows), normal(device, rows)

    def launcher(grid: int) -> Launch:
        out = torch.empty(rows, device=device)

        def launch() -> Result:
            sparse_product_kernel[(grid,)](columns, values, x, out, rows, entries, block)
            return out

        return launch

    return launcher(flawed_grid), launcher(edited_grid)


CASES = by_name(
    Case("log-sum", FLAW, log_sum, KEYWORDS),
    Case("warp-image", FLAW, warp_image, KEYWORDS),
    Case("sparse-product", FLAW, sparse_product, KEYWORDS),
)

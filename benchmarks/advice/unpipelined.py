"""Loops with dots that do not load ahead: ``num_stages=1``. The edit is three or four stages."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import HALF, Case, Launch, Pair, Result, by_name, normal

FLAW = "unpipelined"
KEYWORDS = ("num_stages", "not pipelined", "pipeline the loop", "more stages")


@triton.jit
def gated_mlp_kernel(
    x_ptr,
    gate_ptr,
    up_ptr,
    out_ptr,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute silu(x @ gate) * (x @ up)."""
    tiles_n = N // BLOCK_N
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows[:, None] * K + inner[None, :]
    weights = inner[:, None] * N + columns[None, :]
    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(x_ptrs)
        gate = tl.dot(x, tl.load(gate_ptr + weights), gate)
        up = tl.dot(x, tl.load(up_ptr + weights), up)
        x_ptrs += BLOCK_K
        weights += BLOCK_K * N
    out = gate / (1 + tl.exp(-gate)) * up
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], out.to(tl.float16))


@triton.jit
def adapter_kernel(
    x_ptr,
    down_ptr,
    up_ptr,
    out_ptr,
    WIDTH,
    RANK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Multiply activations by two thin matrices, as a low-rank adapter does: out = (x down) up."""
    rows, inner, ranks = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K), tl.arange(0, RANK)
    hidden = tl.zeros((BLOCK_M, RANK), tl.float32)
    for start in range(0, WIDTH, BLOCK_K):
        x = tl.load(x_ptr + rows[:, None] * WIDTH + (start + inner)[None, :])
        hidden = tl.dot(x, tl.load(down_ptr + (start + inner)[:, None] * RANK + ranks[None, :]), hidden)
    added = tl.dot(hidden.to(tl.float16), tl.load(up_ptr + ranks[:, None] * BLOCK_K + inner[None, :]))
    tl.store(out_ptr + rows[:, None] * BLOCK_K + inner[None, :], added.to(tl.float16))


@triton.jit
def convolution_kernel(
    x_ptr,
    weight_ptr,
    out_ptr,
    HEIGHT,
    WIDTH,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Convolve images with 3 x 3 filters, with the channels last, as an implicit matrix product."""
    pixels = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    filters = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    y, x = pixels // WIDTH % HEIGHT, pixels % WIDTH
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, 9 * CHANNELS // BLOCK_K):
        tap = step // (CHANNELS // BLOCK_K)
        channels = step % (CHANNELS // BLOCK_K) * BLOCK_K + tl.arange(0, BLOCK_K)
        down, right = tap // 3 - 1, tap % 3 - 1
        is_inside = (y + down >= 0) & (y + down < HEIGHT) & (x + right >= 0) & (x + right < WIDTH)
        source = pixels + down * WIDTH + right
        a = tl.load(x_ptr + source[:, None] * CHANNELS + channels[None, :], mask=is_inside[:, None], other=0.0)
        b = tl.load(weight_ptr + (tap * CHANNELS + channels)[:, None] * FILTERS + filters[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(out_ptr + pixels[:, None] * FILTERS + filters[None, :], acc.to(tl.float16))


def gated_mlp(device: str, small: bool) -> Pair:
    m, n, k = (128, 128, 128) if small else (4096, 2048, 2048)
    x = normal(device, m, k, dtype=HALF)
    gate, up = (normal(device, k, n, dtype=HALF) * k**-0.5 for _ in range(2))

    def launcher(stages: int) -> Launch:
        out = torch.empty((m, n), device=device, dtype=HALF)

        def launch() -> Result:
            grid = (m // 128 * (n // 128),)
            gated_mlp_kernel[grid](x, gate, up, out, n, k, 128, 128, 64, num_warps=8, num_stages=stages)
            return out

        return launch

    return launcher(1), launcher(3)


def adapter(device: str, small: bool) -> Pair:
    count, width, rank, block_k = (128, 256, 64, 64) if small else (16384, 8192, 64, 64)
    x = normal(device, count, width, dtype=HALF)
    down, up = normal(device, width, rank, dtype=HALF) * width**-0.5, normal(device, rank, block_k, dtype=HALF)

    def launcher(stages: int) -> Launch:
        out = torch.empty((count, block_k), device=device, dtype=HALF)

        def launch() -> Result:
            adapter_kernel[(count // 64,)](x, down, up, out, width, rank, 64, block_k, num_stages=stages)
            return out

        return launch

    return launcher(1), launcher(4)


def convolution(device: str, small: bool) -> Pair:
    images, height, width, channels, filters = (1, 8, 16, 64, 128) if small else (8, 64, 64, 256, 256)
    x = normal(device, images, height, width, channels, dtype=HALF)
    weight = normal(device, 3, 3, channels, filters, dtype=HALF) * (9 * channels) ** -0.5

    def launcher(stages: int) -> Launch:
        out = torch.empty((images, height, width, filters), device=device, dtype=HALF)

        def launch() -> Result:
            grid = (images * height * width // 128, filters // 128)
            convolution_kernel[grid](
                x, weight, out, height, width, channels, filters, 128, 128, 64, num_warps=8, num_stages=stages
            )
            return out

        return launch

    return launcher(1), launcher(3)


CASES = by_name(
    Case("gated-mlp", FLAW, gated_mlp, KEYWORDS),
    Case("adapter", FLAW, adapter, KEYWORDS, relative=1e-2, absolute=1e-2),
    Case("convolution", FLAW, convolution, KEYWORDS),
)

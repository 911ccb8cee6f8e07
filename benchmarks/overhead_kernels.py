"""Kernels for ``overhead.py`` that are unlike our examples, and not tuned for records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


@triton.jit
def block_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B, by block pointers."""
    row, column = tl.program_id(0), tl.program_id(1)
    left = tl.make_block_ptr(a, (M, K), (K, 1), (row * BM, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(b, (K, N), (N, 1), (0, column * BN), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left = tl.advance(left, (0, BK))
        right = tl.advance(right, (BK, 0))
    out = tl.make_block_ptr(c, (M, N), (N, 1), (row * BM, column * BN), (BM, BN), (1, 0))
    tl.store(out, total.to(tl.float16))


def matmul(m: int, n: int, k: int, block_n: int, warps: int) -> Callable[[], Any]:
    a, b, c = half(m, k), half(k, n), half(m, n)
    grid = (m // 128, n // block_n)
    return lambda: block_matmul[grid](a, b, c, m, n, k, 128, block_n, 64, num_warps=warps, num_stages=4)


@triton.jit
def flash(q, k, v, o, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """Attention without a mask, one head for each program_id(1)."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    base = tl.program_id(1) * N * D
    d, columns = tl.arange(0, D), tl.arange(0, BN)
    query = tl.load(q + base + rows[:, None] * D + d[None, :])
    peak = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        key = tl.load(k + base + (start + columns)[None, :] * D + d[:, None])
        score = tl.dot(query, key) * scale
        new_peak = tl.maximum(peak, tl.max(score, 1))
        weight = tl.exp2(score - new_peak[:, None])
        fade = tl.exp2(peak - new_peak)
        value = tl.load(v + base + (start + columns)[:, None] * D + d[None, :])
        total = total * fade + tl.sum(weight, 1)
        out = tl.dot(weight.to(tl.float16), value, out * fade[:, None])
        peak = new_peak
    tl.store(o + base + rows[:, None] * D + d[None, :], (out / total[:, None]).to(tl.float16))


def attention() -> Callable[[], Any]:
    heads, n, d = 64, 2048, 64
    q, k, v, o = (half(heads, n, d) for _ in range(4))
    return lambda: flash[(n // 128, heads)](q, k, v, o, n, 0.18, 128, 64, d, num_warps=8, num_stages=3)


@triton.jit
def rms(x, y, n, BLOCK: tl.constexpr):
    """A row for each program, in two passes."""
    row = tl.program_id(0)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        part = tl.load(x + row * n + start + tl.arange(0, BLOCK)).to(tl.float32)
        squares += part * part
    scale = tl.rsqrt(tl.sum(squares) / n)
    for start in range(0, n, BLOCK):
        at = row * n + start + tl.arange(0, BLOCK)
        tl.store(y + at, (tl.load(x + at).to(tl.float32) * scale).to(tl.float16))


@triton.jit
def whole_row_softmax(x, y, n, BLOCK: tl.constexpr):
    """A row for each program, kept in registers."""
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < n
    row = tl.load(x + at, mask=inside, other=float("-inf")).to(tl.float32)
    part = tl.exp(row - tl.max(row))
    tl.store(y + at, (part / tl.sum(part)).to(tl.float16), mask=inside)


def by_rows(kernel: Any, rows: int, columns: int, block: int, warps: int) -> Callable[[], Any]:
    x = half(rows, columns)
    y = torch.empty_like(x)
    return lambda: kernel[(rows,)](x, y, columns, block, num_warps=warps)


@triton.jit
def gelu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, (value * tl.sigmoid(1.702 * value)).to(tl.float16), mask=at < n)


@triton.jit
def scaled_sum(x, y, z, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) * scale + tl.load(y + at, mask=at < n), mask=at < n)


def elementwise(kernel: Any, block: int, *tensors: torch.Tensor) -> Callable[[], Any]:
    n = tensors[0].numel()
    scale = () if kernel is gelu else (0.5,)
    return lambda: kernel[(triton.cdiv(n, block),)](*tensors, n, *scale, block, num_warps=4)


KERNELS: dict[str, Callable[[], Callable[[], Any]]] = {
    "block matmul 4096": lambda: matmul(4096, 4096, 4096, 256, 8),
    "block matmul of 8 µs": lambda: matmul(1024, 2048, 512, 128, 4),
    "flash 64x2048x64": attention,
    "rms 16384x4096": lambda: by_rows(rms, 16384, 4096, 1024, 4),
    "whole-row softmax": lambda: by_rows(whole_row_softmax, 8192, 3000, 4096, 8),
    "gelu, 65536 CTAs": lambda: elementwise(gelu, 1024, half(1 << 26), half(1 << 26)),
    "scaled sum, 65536 CTAs": lambda: elementwise(scaled_sum, 512, *(half(1 << 25) for _ in range(3))),
}

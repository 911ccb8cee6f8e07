"""Reductions across threads in each iteration, whose results are only accumulated.

The edit accumulates elementwise and reduces once, after the loop.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import BFLOAT, HALF, Case, Pair, Result, by_name, normal

FLAW = "reduction-in-loop"
KEYWORDS = ("after the loop", "reduce once", "reduction", "elementwise")


@triton.jit
def load_divergence(p_ptr, q_ptr, places):
    p, q = tl.load(p_ptr + places).to(tl.float32), tl.load(q_ptr + places).to(tl.float32)
    return tl.exp(p) * (p - q)


@triton.jit
def divergence_flawed(p_ptr, q_ptr, out_ptr, COLUMNS, BLOCK: tl.constexpr):
    """Compute the Kullback-Leibler divergence of rows of log-probabilities."""
    places = tl.program_id(0) * COLUMNS + tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, COLUMNS, BLOCK):
        total += tl.sum(load_divergence(p_ptr, q_ptr, places + start), 0)
    tl.store(out_ptr + tl.program_id(0), total)


@triton.jit
def divergence_edited(p_ptr, q_ptr, out_ptr, COLUMNS, BLOCK: tl.constexpr):
    """Sum elementwise first."""
    places = tl.program_id(0) * COLUMNS + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        total += load_divergence(p_ptr, q_ptr, places + start)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def load_difference(x_ptr, y_ptr, places):
    return tl.abs(tl.load(x_ptr + places).to(tl.float32) - tl.load(y_ptr + places).to(tl.float32))


@triton.jit
def peak_error_flawed(x_ptr, y_ptr, out_ptr, COLUMNS, BLOCK: tl.constexpr):
    """Compute the largest difference of two signals."""
    places = tl.program_id(0) * COLUMNS + tl.arange(0, BLOCK)
    peak = 0.0
    for start in range(0, COLUMNS, BLOCK):
        peak = tl.maximum(peak, tl.max(load_difference(x_ptr, y_ptr, places + start), 0))
    tl.store(out_ptr + tl.program_id(0), peak)


@triton.jit
def peak_error_edited(x_ptr, y_ptr, out_ptr, COLUMNS, BLOCK: tl.constexpr):
    """Take the maximum elementwise first."""
    places = tl.program_id(0) * COLUMNS + tl.arange(0, BLOCK)
    peak = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        peak = tl.maximum(peak, load_difference(x_ptr, y_ptr, places + start))
    tl.store(out_ptr + tl.program_id(0), tl.max(peak, 0))


@triton.jit
def load_gradient(gradient_ptr, active_ptr, places):
    is_active = tl.load(active_ptr + places) > 0
    return tl.where(is_active, tl.load(gradient_ptr + places).to(tl.float32), 0.0)


@triton.jit
def bias_gradient_flawed(gradient_ptr, active_ptr, out_ptr, ROWS, COLUMNS, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Sum the gradient of a ReLU's input over all rows, for WIDTH columns; a column's threads exchange sums."""
    columns = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    places = tl.arange(0, BLOCK)[:, None] * COLUMNS + columns[None, :]
    total = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, ROWS, BLOCK):
        total += tl.sum(load_gradient(gradient_ptr, active_ptr, places + start * COLUMNS), 0)
    tl.store(out_ptr + columns, total)


@triton.jit
def bias_gradient_edited(gradient_ptr, active_ptr, out_ptr, ROWS, COLUMNS, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Sum each thread's rows first."""
    columns = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    places = tl.arange(0, BLOCK)[:, None] * COLUMNS + columns[None, :]
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, ROWS, BLOCK):
        total += load_gradient(gradient_ptr, active_ptr, places + start * COLUMNS)
    tl.store(out_ptr + columns, tl.sum(total, 0))


def divergence(device: str, small: bool) -> Pair:
    rows, columns = (2, 4096) if small else (132, 131072)
    p, q = (normal(device, rows, columns).log_softmax(1).to(HALF) for _ in range(2))
    flawed_out, edited_out = (torch.empty(rows, device=device) for _ in range(2))

    def flawed() -> Result:
        divergence_flawed[(rows,)](p, q, flawed_out, columns, 1024)
        return flawed_out

    def edited() -> Result:
        divergence_edited[(rows,)](p, q, edited_out, columns, 1024)
        return edited_out

    return flawed, edited


def peak_error(device: str, small: bool) -> Pair:
    rows, columns = (2, 4096) if small else (132, 131072)
    x, y = (normal(device, rows, columns, dtype=BFLOAT) for _ in range(2))
    flawed_out, edited_out = (torch.empty(rows, device=device) for _ in range(2))

    def flawed() -> Result:
        peak_error_flawed[(rows,)](x, y, flawed_out, columns, 2048, num_warps=8)
        return flawed_out

    def edited() -> Result:
        peak_error_edited[(rows,)](x, y, edited_out, columns, 2048, num_warps=8)
        return edited_out

    return flawed, edited


def bias_gradient(device: str, small: bool) -> Pair:
    rows, columns, width = (256, 128, 64) if small else (8192, 132 * 64, 64)
    gradient, active = (normal(device, rows, columns, dtype=BFLOAT) for _ in range(2))
    flawed_out, edited_out = (torch.empty(columns, device=device) for _ in range(2))

    def flawed() -> Result:
        bias_gradient_flawed[(columns // width,)](gradient, active, flawed_out, rows, columns, 64, width)
        return flawed_out

    def edited() -> Result:
        bias_gradient_edited[(columns // width,)](gradient, active, edited_out, rows, columns, 64, width)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("divergence", FLAW, divergence, KEYWORDS),
    Case("peak-error", FLAW, peak_error, KEYWORDS),
    Case("bias-gradient", FLAW, bias_gradient, KEYWORDS, absolute=1e-2),
)

"""Accesses whose lanes run along a strided dimension. The edit has them run along the contiguous one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import BFLOAT, HALF, Case, Launch, Pair, Result, by_name, normal

FLAW = "wrong-dimension"
KEYWORDS = ("coalesc", "contiguous dimension", "contiguous axis", "lanes", "sector", "strided")


@triton.jit
def column_scale_flawed(x_ptr, out_ptr, ROWS, COLUMNS, BLOCK: tl.constexpr):
    """Compute the int8 scale of one column from its largest magnitude."""
    rows = tl.arange(0, BLOCK)
    peak = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, ROWS, BLOCK):
        x = tl.load(x_ptr + (start + rows) * COLUMNS + tl.program_id(0))
        peak = tl.maximum(peak, tl.abs(x.to(tl.float32)))
    tl.store(out_ptr + tl.program_id(0), tl.max(peak, 0) / 127)


@triton.jit
def column_scale_edited(x_ptr, out_ptr, ROWS, COLUMNS, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """Load WIDTH columns at once."""
    rows, columns = tl.arange(0, BLOCK), tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    peak = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, ROWS, BLOCK):
        x = tl.load(x_ptr + (start + rows)[:, None] * COLUMNS + columns[None, :])
        peak = tl.maximum(peak, tl.abs(x.to(tl.float32)))
    tl.store(out_ptr + columns, tl.max(peak, 0) / 127)


@triton.jit
def swiglu_kernel(x_ptr, out_ptr, WIDTH, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Compute silu(gate) * up for a tile; rows of ``x`` have WIDTH gates, then WIDTH values."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    places = rows[:, None] * 2 * WIDTH + columns[None, :]
    gate, up = tl.load(x_ptr + places).to(tl.float32), tl.load(x_ptr + places + WIDTH).to(tl.float32)
    out = gate / (1 + tl.exp(-gate)) * up
    tl.store(out_ptr + rows[:, None] * WIDTH + columns[None, :], out.to(tl.bfloat16))


@triton.jit
def feature_major_flawed(x_ptr, out_ptr, TOKENS, DIM: tl.constexpr):
    """Scale one token's embedding to length 1 and store it as a column."""
    token, dims = tl.program_id(0), tl.arange(0, DIM)
    x = tl.load(x_ptr + token * DIM + dims)
    tl.store(out_ptr + dims * TOKENS + token, (x * tl.rsqrt(tl.sum(x * x, 0))).to(tl.float16))


@triton.jit
def feature_major_edited(x_ptr, out_ptr, TOKENS, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Store the columns of BLOCK tokens."""
    tokens, dims = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DIM)
    x = tl.load(x_ptr + tokens[:, None] * DIM + dims[None, :])
    x *= tl.rsqrt(tl.sum(x * x, 1))[:, None]
    tl.store(out_ptr + dims[:, None] * TOKENS + tokens[None, :], tl.trans(x).to(tl.float16))


def column_scale(device: str, small: bool) -> Pair:
    rows, columns = (1024, 32) if small else (8192, 4096)
    x = normal(device, rows, columns, dtype=BFLOAT)
    flawed_out, edited_out = (torch.empty(columns, device=device) for _ in range(2))

    def flawed() -> Result:
        column_scale_flawed[(columns,)](x, flawed_out, rows, columns, 1024)
        return flawed_out

    def edited() -> Result:
        column_scale_edited[(columns // 32,)](x, edited_out, rows, columns, 256, 32, num_warps=8)
        return edited_out

    return flawed, edited


def swiglu(device: str, small: bool) -> Pair:
    rows, width = (512, 512) if small else (8192, 4096)
    x = normal(device, rows, 2 * width, dtype=BFLOAT)

    def launcher(tile_rows: int, tile_columns: int) -> Launch:
        out = torch.empty((rows, width), device=device, dtype=BFLOAT)

        def launch() -> Result:
            grid = (rows // tile_rows, width // tile_columns)
            swiglu_kernel[grid](x, out, width, tile_rows, tile_columns)
            return out

        return launch

    return (launcher(512, 128), launcher(128, 512)) if small else (launcher(512, 4), launcher(4, 512))


def feature_major(device: str, small: bool) -> Pair:
    tokens, dim = (64, 512) if small else (16384, 512)
    x = normal(device, tokens, dim)
    flawed_out, edited_out = (torch.empty((dim, tokens), device=device, dtype=HALF) for _ in range(2))

    def flawed() -> Result:
        feature_major_flawed[(tokens,)](x, flawed_out, tokens, dim)
        return flawed_out

    def edited() -> Result:
        feature_major_edited[(tokens // 32,)](x, edited_out, tokens, dim, 32, num_warps=8)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("column-scale", FLAW, column_scale, KEYWORDS),
    Case("swiglu", FLAW, swiglu, KEYWORDS, relative=1e-2, absolute=1e-2),
    Case("feature-major", FLAW, feature_major, KEYWORDS, relative=1e-2, absolute=1e-3),
)

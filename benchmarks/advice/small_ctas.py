"""Hundreds of thousands of CTAs with 64 to 128 elements each. The edit gives each CTA 32 times as many."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import BFLOAT, HALF, INT, INT8, Case, Pair, Result, by_name, normal

FLAW = "small-ctas"
KEYWORDS = ("larger ctas", "larger blocks", "bigger blocks", "larger tiles", "more work per cta")


@triton.jit
def rotary_flawed(x_ptr, cosine_ptr, sine_ptr, out_ptr, HEADS, PAIRS: tl.constexpr):
    """Rotate one head's pairs by the token's angles (rotary embedding)."""
    pairs = tl.arange(0, PAIRS)
    token, first = tl.program_id(0) // HEADS, tl.program_id(0) * 2 * PAIRS + pairs
    cosine, sine = tl.load(cosine_ptr + token * PAIRS + pairs), tl.load(sine_ptr + token * PAIRS + pairs)
    a, b = tl.load(x_ptr + first).to(tl.float32), tl.load(x_ptr + first + PAIRS).to(tl.float32)
    tl.store(out_ptr + first, (a * cosine - b * sine).to(tl.bfloat16))
    tl.store(out_ptr + first + PAIRS, (b * cosine + a * sine).to(tl.bfloat16))


@triton.jit
def rotary_edited(x_ptr, cosine_ptr, sine_ptr, out_ptr, HEADS: tl.constexpr, PAIRS: tl.constexpr):
    """Rotate all heads of a token."""
    token, heads, pairs = tl.program_id(0), tl.arange(0, HEADS), tl.arange(0, PAIRS)
    first = (token * HEADS + heads)[:, None] * 2 * PAIRS + pairs[None, :]
    cosine = tl.load(cosine_ptr + token * PAIRS + pairs)[None, :]
    sine = tl.load(sine_ptr + token * PAIRS + pairs)[None, :]
    a, b = tl.load(x_ptr + first).to(tl.float32), tl.load(x_ptr + first + PAIRS).to(tl.float32)
    tl.store(out_ptr + first, (a * cosine - b * sine).to(tl.bfloat16))
    tl.store(out_ptr + first + PAIRS, (b * cosine + a * sine).to(tl.bfloat16))


@triton.jit
def quantize_flawed(x_ptr, out_ptr, scale_ptr, GROUP: tl.constexpr):
    """Quantize one group of GROUP values to int8, with a scale of its own."""
    places = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + places).to(tl.float32)
    scale = tl.max(tl.abs(x), 0) / 127 + 1e-8
    tl.store(out_ptr + places, (x / scale).to(tl.int8))
    tl.store(scale_ptr + tl.program_id(0), scale)


@triton.jit
def quantize_edited(x_ptr, out_ptr, scale_ptr, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Quantize BLOCK groups."""
    groups = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + places).to(tl.float32)
    scale = tl.max(tl.abs(x), 1) / 127 + 1e-8
    tl.store(out_ptr + places, (x / scale[:, None]).to(tl.int8))
    tl.store(scale_ptr + groups, scale)


@triton.jit
def embedding_bag_flawed(table_ptr, indices_ptr, out_ptr, BAG: tl.constexpr, DIM: tl.constexpr):
    """Sum the BAG rows of the table that one bag names."""
    bag, dims = tl.program_id(0), tl.arange(0, DIM)
    total = tl.zeros((DIM,), tl.float32)
    for item in tl.static_range(BAG):
        row = tl.load(indices_ptr + bag * BAG + item)
        total += tl.load(table_ptr + row * DIM + dims).to(tl.float32)
    tl.store(out_ptr + bag * DIM + dims, total.to(tl.float16))


@triton.jit
def embedding_bag_edited(table_ptr, indices_ptr, out_ptr, BAG: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Sum the rows of BLOCK bags."""
    bags, dims = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, DIM)
    total = tl.zeros((BLOCK, DIM), tl.float32)
    for item in tl.static_range(BAG):
        rows = tl.load(indices_ptr + bags * BAG + item)
        total += tl.load(table_ptr + rows[:, None] * DIM + dims[None, :]).to(tl.float32)
    tl.store(out_ptr + bags[:, None] * DIM + dims[None, :], total.to(tl.float16))


def rotary(device: str, small: bool) -> Pair:
    tokens, heads, pairs = (2, 32, 64) if small else (8192, 32, 64)
    x = normal(device, tokens, heads, 2 * pairs, dtype=BFLOAT)
    angles = torch.rand((tokens, pairs), device=device) * 6.28
    cosine, sine = angles.cos(), angles.sin()
    flawed_out, edited_out = (torch.empty_like(x) for _ in range(2))

    def flawed() -> Result:
        rotary_flawed[(tokens * heads,)](x, cosine, sine, flawed_out, heads, pairs, num_warps=1)
        return flawed_out

    def edited() -> Result:
        rotary_edited[(tokens,)](x, cosine, sine, edited_out, heads, pairs)
        return edited_out

    return flawed, edited


def quantize(device: str, small: bool) -> Pair:
    groups, group, block = 64 if small else 1 << 18, 128, 32
    x = normal(device, groups, group, dtype=HALF)
    flawed_out, edited_out = (torch.empty((groups, group), device=device, dtype=INT8) for _ in range(2))
    flawed_scale, edited_scale = (torch.empty(groups, device=device) for _ in range(2))

    def flawed() -> Result:
        quantize_flawed[(groups,)](x, flawed_out, flawed_scale, group)
        return flawed_out, flawed_scale

    def edited() -> Result:
        quantize_edited[(groups // block,)](x, edited_out, edited_scale, group, block)
        return edited_out, edited_scale

    return flawed, edited


def embedding_bag(device: str, small: bool) -> Pair:
    bags, bag, dim, block = 64 if small else 1 << 18, 4, 64, 32
    table = normal(device, 1000 if small else 100_000, dim, dtype=HALF)
    indices = torch.randint(0, len(table), (bags, bag), device=device, dtype=INT)
    flawed_out, edited_out = (torch.empty((bags, dim), device=device, dtype=HALF) for _ in range(2))

    def flawed() -> Result:
        embedding_bag_flawed[(bags,)](table, indices, flawed_out, bag, dim, num_warps=1)
        return flawed_out

    def edited() -> Result:
        embedding_bag_edited[(bags // block,)](table, indices, edited_out, bag, dim, block)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("rotary", FLAW, rotary, KEYWORDS, relative=1e-2, absolute=1e-2),
    Case("quantize", FLAW, quantize, KEYWORDS),
    Case("embedding-bag", FLAW, embedding_bag, KEYWORDS, relative=1e-2, absolute=1e-2),
)

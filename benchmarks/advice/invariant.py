"""Loops that load and compute the same values in each iteration, as they also store. The edit does it once, before.

Triton moves loads out of loops only if nothing in the loop writes memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import HALF, Case, Pair, Result, by_name, normal

FLAW = "invariant"
KEYWORDS = ("before the loop", "out of the loop", "outside the loop", "invariant", "hoist")


@triton.jit
def low_pass(frequency_ptr, quality_ptr, channels):
    """Load a filter's frequency and quality, and return its coefficients b0, a1 and a2 (b1 = 2 b0, b2 = b0)."""
    angle = tl.load(frequency_ptr + channels)
    alpha = tl.sin(angle) / (2 * tl.load(quality_ptr + channels))
    cosine, scale = tl.cos(angle), 1 / (1 + alpha)
    return (1 - cosine) * 0.5 * scale, -2 * cosine * scale, (1 - alpha) * scale


@triton.jit
def filter_flawed(x_ptr, frequency_ptr, quality_ptr, out_ptr, STEPS, CHANNELS, BLOCK: tl.constexpr):
    """Filter channels by a low pass of the second order (an IIR filter), sample by sample."""
    channels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        b0, a1, a2 = low_pass(frequency_ptr, quality_ptr, channels)
        x = tl.load(x_ptr + step * CHANNELS + channels).to(tl.float32)
        y = b0 * x + first
        first = 2 * b0 * x - a1 * y + second
        second = b0 * x - a2 * y
        tl.store(out_ptr + step * CHANNELS + channels, y.to(tl.float16))


@triton.jit
def filter_edited(x_ptr, frequency_ptr, quality_ptr, out_ptr, STEPS, CHANNELS, BLOCK: tl.constexpr):
    """Compute the coefficients before the loop."""
    channels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    b0, a1, a2 = low_pass(frequency_ptr, quality_ptr, channels)
    for step in range(STEPS):
        x = tl.load(x_ptr + step * CHANNELS + channels).to(tl.float32)
        y = b0 * x + first
        first = 2 * b0 * x - a1 * y + second
        second = b0 * x - a2 * y
        tl.store(out_ptr + step * CHANNELS + channels, y.to(tl.float16))


@triton.jit
def load_gain(flat_ptr, dark, exposure_ptr, columns):
    return tl.exp2(tl.load(exposure_ptr + columns)) / (tl.load(flat_ptr + columns) - dark)


@triton.jit
def flat_field_flawed(raw_ptr, dark_ptr, flat_ptr, exposure_ptr, out_ptr, ROWS, COLUMNS, BLOCK: tl.constexpr):
    """Correct ROWS lines of an 8-bit camera by the dark level and the gain of each column."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * ROWS
    for row in range(ROWS):
        dark = tl.load(dark_ptr + columns)
        gain = load_gain(flat_ptr, dark, exposure_ptr, columns)
        raw = tl.load(raw_ptr + (first + row) * COLUMNS + columns).to(tl.float32)
        value = tl.minimum(tl.maximum((raw - dark) * gain, 0.0), 255.0)
        tl.store(out_ptr + (first + row) * COLUMNS + columns, value.to(tl.uint8))


@triton.jit
def flat_field_edited(raw_ptr, dark_ptr, flat_ptr, exposure_ptr, out_ptr, ROWS, COLUMNS, BLOCK: tl.constexpr):
    """Compute the gain before the loop."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1) * ROWS
    dark = tl.load(dark_ptr + columns)
    gain = load_gain(flat_ptr, dark, exposure_ptr, columns)
    for row in range(ROWS):
        raw = tl.load(raw_ptr + (first + row) * COLUMNS + columns).to(tl.float32)
        value = tl.minimum(tl.maximum((raw - dark) * gain, 0.0), 255.0)
        tl.store(out_ptr + (first + row) * COLUMNS + columns, value.to(tl.uint8))


@triton.jit
def load_direction(query_ptr, dims):
    """Load the query and scale it to length 1."""
    query = tl.load(query_ptr + dims)
    return query * tl.rsqrt(tl.sum(query * query, 0))


@triton.jit
def similarity_flawed(query_ptr, keys_ptr, out_ptr, KEYS, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the cosine similarity of one query with KEYS keys, BLOCK at a time."""
    dims, rows = tl.arange(0, DIM), tl.program_id(0) * KEYS + tl.arange(0, BLOCK)
    for start in range(0, KEYS, BLOCK):
        query = load_direction(query_ptr, dims)
        keys = tl.load(keys_ptr + (start + rows)[:, None] * DIM + dims[None, :]).to(tl.float32)
        lengths = tl.rsqrt(tl.sum(keys * keys, 1))
        tl.store(out_ptr + start + rows, tl.sum(keys * query[None, :], 1) * lengths)


@triton.jit
def similarity_edited(query_ptr, keys_ptr, out_ptr, KEYS, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Scale the query before the loop."""
    dims, rows = tl.arange(0, DIM), tl.program_id(0) * KEYS + tl.arange(0, BLOCK)
    query = load_direction(query_ptr, dims)
    for start in range(0, KEYS, BLOCK):
        keys = tl.load(keys_ptr + (start + rows)[:, None] * DIM + dims[None, :]).to(tl.float32)
        lengths = tl.rsqrt(tl.sum(keys * keys, 1))
        tl.store(out_ptr + start + rows, tl.sum(keys * query[None, :], 1) * lengths)


def low_pass_filter(device: str, small: bool) -> Pair:
    steps, channels, block = (16, 256, 128) if small else (128, 132 * 4 * 128, 128)
    x = normal(device, steps, channels, dtype=HALF)
    frequency, quality = torch.rand(channels, device=device) * 2 + 0.1, torch.rand(channels, device=device) + 0.5
    flawed_out, edited_out = (torch.empty_like(x) for _ in range(2))

    def flawed() -> Result:
        filter_flawed[(channels // block,)](x, frequency, quality, flawed_out, steps, channels, block)
        return flawed_out

    def edited() -> Result:
        filter_edited[(channels // block,)](x, frequency, quality, edited_out, steps, channels, block)
        return edited_out

    return flawed, edited


def flat_field(device: str, small: bool) -> Pair:
    rows, columns, rows_of_cta = (16, 2048, 8) if small else (4096, 8192, 32)
    raw = torch.randint(0, 256, (rows, columns), device=device, dtype=torch.uint8)
    dark, exposure = torch.rand(columns, device=device) * 4, torch.rand(columns, device=device) - 0.5
    flat = torch.rand(columns, device=device) * 0.5 + 4.5
    flawed_out, edited_out = (torch.empty_like(raw) for _ in range(2))
    grid = (columns // 1024, rows // rows_of_cta)

    def flawed() -> Result:
        flat_field_flawed[grid](raw, dark, flat, exposure, flawed_out, rows_of_cta, columns, 1024)
        return flawed_out

    def edited() -> Result:
        flat_field_edited[grid](raw, dark, flat, exposure, edited_out, rows_of_cta, columns, 1024)
        return edited_out

    return flawed, edited


def similarity(device: str, small: bool) -> Pair:
    ctas, keys_of_cta, dim, block = (2, 16, 512, 4) if small else (132, 256, 512, 4)
    keys, query = normal(device, ctas * keys_of_cta, dim, dtype=HALF), normal(device, dim)
    flawed_out, edited_out = (torch.empty(len(keys), device=device) for _ in range(2))

    def flawed() -> Result:
        similarity_flawed[(ctas,)](query, keys, flawed_out, keys_of_cta, dim, block)
        return flawed_out

    def edited() -> Result:
        similarity_edited[(ctas,)](query, keys, edited_out, keys_of_cta, dim, block)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("low-pass-filter", FLAW, low_pass_filter, KEYWORDS, relative=1e-2, absolute=1e-3),
    Case("flat-field", FLAW, flat_field, KEYWORDS),
    Case("similarity", FLAW, similarity, KEYWORDS),
)

"""Grids of 8 to 16 CTAs, on a device with many more SMs. The edit divides the same work among more CTAs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import FLOAT, HALF, Case, Launch, Pair, Result, by_name, normal

FLAW = "few-ctas"
KEYWORDS = ("more ctas", "split-k", "smaller tiles", "several problems in one launch")


@triton.jit
def gram_flawed(x_ptr, out_ptr, SAMPLES, DIM: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """Compute x.T @ x; a CTA sums over all samples."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    samples = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, SAMPLES, BLOCK_K):
        a = tl.load(x_ptr + (start + samples)[:, None] * DIM + rows[None, :])
        b = tl.load(x_ptr + (start + samples)[:, None] * DIM + columns[None, :])
        acc = tl.dot(tl.trans(a), b, acc)
    tl.store(out_ptr + rows[:, None] * DIM + columns[None, :], acc)


@triton.jit
def gram_edited(x_ptr, out_ptr, SLICE, DIM: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """Compute x.T @ x; a CTA sums over a slice of the samples."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    samples = tl.program_id(2) * SLICE + tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, SLICE, BLOCK_K):
        a = tl.load(x_ptr + (start + samples)[:, None] * DIM + rows[None, :])
        b = tl.load(x_ptr + (start + samples)[:, None] * DIM + columns[None, :])
        acc = tl.dot(tl.trans(a), b, acc)
    tl.atomic_add(out_ptr + rows[:, None] * DIM + columns[None, :], acc, sem="relaxed")


@triton.jit
def decode_flawed(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, LENGTH, GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr
):
    """Attend from one token's GROUP query heads, which share a KV head, to its whole cache."""
    head = tl.program_id(0)
    queries, dims, keys = tl.arange(0, GROUP), tl.arange(0, DIM), tl.arange(0, BLOCK)
    q = tl.load(q_ptr + (head * GROUP + queries)[:, None] * DIM + dims[None, :])
    cache = (head * LENGTH + keys) * DIM
    acc = tl.zeros((GROUP, DIM), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    peak = tl.full((GROUP,), -1e30, tl.float32)
    for start in range(0, LENGTH, BLOCK):
        k = tl.load(k_ptr + start * DIM + cache[None, :] + dims[:, None])
        scores = tl.dot(q, k) * scale
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - new_peak[:, None]), tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_ptr + start * DIM + cache[:, None] + dims[None, :])
        acc = tl.dot(weights.to(tl.float16), v, acc * shrink[:, None])
        peak = new_peak
    tl.store(out_ptr + (head * GROUP + queries)[:, None] * DIM + dims[None, :], acc / total[:, None])


@triton.jit
def decode_edited(
    q_ptr,
    k_ptr,
    v_ptr,
    part_ptr,
    total_ptr,
    peak_ptr,
    scale,
    LENGTH,
    SLICE,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Attend to a slice of the cache."""
    head, part = tl.program_id(0), tl.program_id(1)
    queries, dims, keys = tl.arange(0, GROUP), tl.arange(0, DIM), tl.arange(0, BLOCK)
    q = tl.load(q_ptr + (head * GROUP + queries)[:, None] * DIM + dims[None, :])
    cache = (head * LENGTH + part * SLICE + keys) * DIM
    acc = tl.zeros((GROUP, DIM), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    peak = tl.full((GROUP,), -1e30, tl.float32)
    for start in range(0, SLICE, BLOCK):
        k = tl.load(k_ptr + start * DIM + cache[None, :] + dims[:, None])
        scores = tl.dot(q, k) * scale
        new_peak = tl.maximum(peak, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - new_peak[:, None]), tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_ptr + start * DIM + cache[:, None] + dims[None, :])
        acc = tl.dot(weights.to(tl.float16), v, acc * shrink[:, None])
        peak = new_peak
    place = (head * tl.num_programs(1) + part) * GROUP + queries
    tl.store(part_ptr + place[:, None] * DIM + dims[None, :], acc)
    tl.store(total_ptr + place, total)
    tl.store(peak_ptr + place, peak)


@triton.jit
def combine_edited(
    part_ptr, total_ptr, peak_ptr, out_ptr, GROUP: tl.constexpr, DIM: tl.constexpr, SLICES: tl.constexpr
):
    """Combine the slices of one query head."""
    head, query = tl.program_id(0) // GROUP, tl.program_id(0) % GROUP
    place = (head * SLICES + tl.arange(0, SLICES)) * GROUP + query
    peaks = tl.load(peak_ptr + place)
    weights = tl.exp2(peaks - tl.max(peaks, 0))
    dims = tl.arange(0, DIM)
    parts = tl.load(part_ptr + place[:, None] * DIM + dims[None, :])
    total = tl.sum(weights * tl.load(total_ptr + place), 0)
    tl.store(out_ptr + tl.program_id(0) * DIM + dims, tl.sum(weights[:, None] * parts, 0) / total)


@triton.jit
def gravity_kernel(bodies_ptr, out_ptr, COUNT, BLOCK: tl.constexpr, OTHERS: tl.constexpr):
    """Sum the accelerations of BLOCK bodies by all; ``bodies`` has rows of x, y, z and mass."""
    rows, others = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, OTHERS)
    body = bodies_ptr + rows
    x, y, z = tl.load(body), tl.load(body + COUNT), tl.load(body + 2 * COUNT)
    acc_x = tl.zeros((BLOCK, OTHERS), tl.float32)
    acc_y = tl.zeros((BLOCK, OTHERS), tl.float32)
    acc_z = tl.zeros((BLOCK, OTHERS), tl.float32)
    for start in range(0, COUNT, OTHERS):
        other = bodies_ptr + start + others
        dx = tl.load(other)[None, :] - x[:, None]
        dy = tl.load(other + COUNT)[None, :] - y[:, None]
        dz = tl.load(other + 2 * COUNT)[None, :] - z[:, None]
        inverse = tl.rsqrt(dx * dx + dy * dy + dz * dz + 0.01)
        pull = tl.load(other + 3 * COUNT)[None, :] * inverse * inverse * inverse
        acc_x += pull * dx
        acc_y += pull * dy
        acc_z += pull * dz
    tl.store(out_ptr + rows, tl.sum(acc_x, 1))
    tl.store(out_ptr + COUNT + rows, tl.sum(acc_y, 1))
    tl.store(out_ptr + 2 * COUNT + rows, tl.sum(acc_z, 1))


def gram(device: str, small: bool) -> Pair:
    samples, dim, slices = (512, 128, 2) if small else (14 * 2304, 384, 14)
    x = normal(device, samples, dim, dtype=HALF)
    flawed_out, edited_out = (torch.zeros((dim, dim), device=device) for _ in range(2))
    tiles = dim // 128

    def flawed() -> Result:
        gram_flawed[(tiles, tiles)](x, flawed_out, samples, dim, 128, 64, num_warps=8, num_stages=4)
        return flawed_out

    def edited() -> Result:
        grid = (tiles, tiles, slices)
        gram_edited[grid](x, edited_out, samples // slices, dim, 128, 64, num_warps=8, num_stages=4)
        return edited_out

    return flawed, edited


def decode_attention(device: str, small: bool) -> Pair:
    heads, length, slices = (2, 512, 4) if small else (8, 16384, 32)
    group, dim = 16, 128
    q = normal(device, heads, group, dim, dtype=HALF)
    k, v = (normal(device, heads, length, dim, dtype=HALF) for _ in range(2))
    flawed_out, edited_out = (torch.empty((heads, group, dim), device=device) for _ in range(2))
    parts = torch.empty((heads, slices, group, dim), device=device)
    totals, peaks = (torch.empty((heads, slices, group), device=device) for _ in range(2))
    scale = 1.44 * dim**-0.5

    def flawed() -> Result:
        decode_flawed[(heads,)](q, k, v, flawed_out, scale, length, group, dim, 64, num_warps=4, num_stages=3)
        return flawed_out

    def edited() -> Result:
        decode_edited[(heads, slices)](
            q, k, v, parts, totals, peaks, scale, length, length // slices, group, dim, 64, num_warps=4, num_stages=3
        )
        combine_edited[(heads * group,)](parts, totals, peaks, edited_out, group, dim, slices)
        return edited_out

    return flawed, edited


def gravity(device: str, small: bool) -> Pair:
    count = 256 if small else 4096
    bodies = normal(device, 4, count)

    def launcher(block: int, warps: int) -> Launch:
        out = torch.empty((3, count), device=device, dtype=FLOAT)

        def launch() -> Result:
            gravity_kernel[(count // block,)](bodies, out, count, block, 16, num_warps=warps)
            return out

        return launch

    return launcher(256, 8), launcher(32, 4)


CASES = by_name(
    Case("gram", FLAW, gram, KEYWORDS, absolute=0.1),
    Case("decode-attention", FLAW, decode_attention, KEYWORDS, relative=1e-2, absolute=1e-3),
    Case("gravity", FLAW, gravity, KEYWORDS, absolute=1e-1),
)

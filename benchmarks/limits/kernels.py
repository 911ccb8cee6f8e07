"""Kernels of known kinds, each of which is limited by one thing: what the speed of light is judged by.

    python kernels.py [--only NAME,...] [--launches N] [--times FILE] [--list]

Launches each kernel N times, in an NVTX range of its name; FILE gets when.
Sizes are such that every SM of an H100 or H200 has work, unless the name says otherwise.
"""

import argparse
import functools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from foreign_kernels import FOREIGN


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """C = A B; sizes are multiples of the blocks'. Neighbours share columns of B, eight rows of tiles at a time."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = 8 * tl.cdiv(N, BLOCK_N)
    first_m = pid // in_group * 8
    group_m = min(tiles_m - first_m, 8)
    tile_m = first_m + pid % in_group % group_m
    tile_n = pid % in_group // group_m
    rows, columns = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + inner[None, :] * stride_ak
    b_ptrs = b_ptr + inner[:, None] * stride_bk + columns[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc, input_precision=PRECISION)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def descriptor_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """C = A @ B.T by tensor descriptors; each program makes one tile after the other."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles_n, tl.num_programs(0)):
        row, column = tile // tiles_n * BLOCK_M, tile % tiles_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, acc)
        c_desc.store([row, column], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    sums_ptr,
    scale,
    length,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
):
    """Of (heads, length, DIM): program (i, h) makes BLOCK_M rows of head h. ``sums`` are for the backward pass."""
    first, head = tl.program_id(0) * BLOCK_M, tl.program_id(1) * length * DIM
    rows, dims, keys = first + tl.arange(0, BLOCK_M), tl.arange(0, DIM), tl.arange(0, BLOCK_N)
    q = tl.load(q_ptr + head + rows[:, None] * DIM + dims[None, :])
    k_ptrs = k_ptr + head + keys[None, :] * DIM + dims[:, None]
    v_ptrs = v_ptr + head + keys[:, None] * DIM + dims[None, :]
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    greatest = tl.full((BLOCK_M,), -1e30, dtype=tl.float32)
    stop = first + BLOCK_M if CAUSAL else length
    for start in range(0, stop, BLOCK_N):
        scores = tl.dot(q, tl.load(k_ptrs + start * DIM)) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= (start + keys)[None, :], scores, -1e30)
        new = tl.maximum(greatest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        fewer = tl.exp2(greatest - new)
        total = total * fewer + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.float16), tl.load(v_ptrs + start * DIM), acc * fewer[:, None])
        greatest = new
    tl.store(out_ptr + head + rows[:, None] * DIM + dims[None, :], (acc / total[:, None]).to(tl.float16))
    tl.store(sums_ptr + tl.program_id(1) * length + rows, greatest + tl.log2(total))


@triton.jit
def attention_backward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    grad_ptr,
    sums_ptr,
    deltas_ptr,
    grad_k_ptr,
    grad_v_ptr,
    scale,
    length,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
):
    """The gradients of BLOCK_N keys and values."""
    first, head = tl.program_id(0) * BLOCK_N, tl.program_id(1) * length * DIM
    keys, dims, queries = first + tl.arange(0, BLOCK_N), tl.arange(0, DIM), tl.arange(0, BLOCK_M)
    k = tl.load(k_ptr + head + keys[:, None] * DIM + dims[None, :])
    v = tl.load(v_ptr + head + keys[:, None] * DIM + dims[None, :])
    grad_k, grad_v = tl.zeros((BLOCK_N, DIM), dtype=tl.float32), tl.zeros((BLOCK_N, DIM), dtype=tl.float32)
    row = tl.program_id(1) * length
    for start in range(0, length, BLOCK_M):
        rows = start + queries
        q_t = tl.load(q_ptr + head + rows[None, :] * DIM + dims[:, None])
        weights = tl.exp2(tl.dot(k, q_t) * scale - tl.load(sums_ptr + row + rows)[None, :])
        grad = tl.load(grad_ptr + head + rows[:, None] * DIM + dims[None, :])
        grad_v = tl.dot(weights.to(tl.float16), grad, grad_v)
        slope = weights * (tl.dot(v, tl.trans(grad)) - tl.load(deltas_ptr + row + rows)[None, :])
        grad_k = tl.dot(slope.to(tl.float16), tl.trans(q_t), grad_k)
    offsets = head + keys[:, None] * DIM + dims[None, :]
    tl.store(grad_k_ptr + offsets, grad_k.to(tl.float16))
    tl.store(grad_v_ptr + offsets, grad_v.to(tl.float16))


@triton.jit
def grouped_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    group_of_tile_ptr,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Each row of tiles of A belongs to a group, which has a B of its own."""
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    group = tl.load(group_of_tile_ptr + tile_m)
    rows, columns = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + group * K * N + inner[:, None] * N + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, rows, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
        powers = tl.exp(x - tl.max(x, 0))
        tl.store(out_ptr + row * columns + offsets, powers / tl.sum(powers, 0), mask=offsets < columns)


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    places = tl.arange(0, BLOCK)
    total, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + places).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total) / columns
    scale = tl.rsqrt(tl.sum(squares) / columns - mean * mean + 1e-5)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + places).to(tl.float32)
        weight, bias = tl.load(weight_ptr + start + places), tl.load(bias_ptr + start + places)
        tl.store(out_ptr + row + start + places, ((x - mean) * scale * weight + bias).to(tl.float16))


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x_ptr + tl.program_id(0) * columns + start + places)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total))


@triton.jit
def transpose_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows[:, None] * size + columns[None, :])
    tl.store(out_ptr + columns[:, None] * size + rows[None, :], tl.trans(x))


@triton.jit
def gather_kernel(index_ptr, table_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.load(index_ptr + tl.program_id(0)).to(tl.int64)
    places = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0) * width + places, tl.load(table_ptr + row * width + places))


@triton.jit
def count_kernel(x_ptr, counts_ptr, BLOCK: tl.constexpr):
    """Atomics that meet at a few addresses."""
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(counts_ptr + x, 1)


@triton.jit
def exponential_kernel(x_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    for _ in range(turns):
        x = tl.exp2(-x)
    tl.store(out_ptr + offsets, x)


@triton.jit
def polynomial_kernel(x_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    y = x
    for _ in range(turns):
        for _ in tl.static_range(8):
            y = y * x + 0.5
    tl.store(out_ptr + offsets, y)


@triton.jit
def chase_kernel(next_ptr, out_ptr, steps):
    """Each load's address is what the one before gave."""
    place = tl.program_id(0)
    for _ in range(steps):
        place = tl.load(next_ptr + place)
    tl.store(out_ptr + tl.program_id(0), place)


@triton.jit
def scan_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    carry = 0.0
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + tl.arange(0, BLOCK))
        tl.store(out_ptr + row + start + tl.arange(0, BLOCK), tl.cumsum(x, 0) + carry)
        carry += tl.sum(x, 0)


@triton.jit
def sort_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.sort(tl.load(x_ptr + offsets)))


@triton.jit
def random_kernel(out_ptr, seed, turns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in range(turns):
        total += tl.rand(seed + turn, offsets)
    tl.store(out_ptr + offsets, total)


@triton.jit
def hash_kernel(x_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    """The finisher of MurmurHash3, several times."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets).to(tl.uint32)
    for _ in range(turns):
        x = (x ^ (x >> 16)) * 0x85EBCA6B
        x = (x ^ (x >> 13)) * 0xC2B2AE35
        x ^= x >> 15
    tl.store(out_ptr + offsets, x)


@triton.jit
def clip_kernel(x_ptr, low_ptr, high_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    """Chosen and bounded again and again: nothing that multiplies or adds."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, low, high = tl.load(x_ptr + offsets), tl.load(low_ptr + offsets), tl.load(high_ptr + offsets)
    for _ in range(turns):
        x = tl.where(x > low, -x, high)
        low = tl.minimum(-low, x)
        high = tl.maximum(-high, x)
    tl.store(out_ptr + offsets, x + low + high)


@triton.jit
def unpack_kernel(x_ptr, scale_ptr, out_ptr, BLOCK: tl.constexpr):
    """Eight integers of 4 bits in each word become halves."""
    words = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    shifts = 4 * tl.arange(0, 8)
    nibbles = (tl.load(x_ptr + words)[:, None] >> shifts[None, :]) & 0xF
    halves = (nibbles - 8).to(tl.float32) * tl.load(scale_ptr + words // 16)[:, None]
    tl.store(out_ptr + words[:, None] * 8 + tl.arange(0, 8)[None, :], halves.to(tl.float16))


HALF, FLOAT = torch.float16, torch.float32
Launch = Callable[[], object]


def _random(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def _matmul(
    m: int,
    n: int,
    k: int,
    dtype: torch.dtype = HALF,
    blocks: tuple[int, int, int] = (128, 128, 64),
    warps: int = 8,
    stages: int = 4,
    precision: str = "tf32",
) -> Launch:
    return _product(_random(m, k, dtype=dtype), _random(n, k, dtype=dtype).T, blocks, warps, stages, precision)


def _matmul_of_rows(m: int, n: int, k: int) -> Launch:
    """With B in rows along N, which threads store to shared memory as columns: tensor cores take tf32 along K alone."""
    return _product(_random(m, k, dtype=FLOAT), _random(k, n, dtype=FLOAT), (128, 128, 32), 8, 3, "tf32")


def _product(
    a: torch.Tensor, b: torch.Tensor, blocks: tuple[int, int, int], warps: int, stages: int, precision: str
) -> Launch:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device="cuda", dtype=FLOAT if a.dtype == FLOAT else HALF)
    grid = (m // blocks[0] * (n // blocks[1]),)
    return lambda: matmul_kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), n, *blocks, precision, num_warps=warps, num_stages=stages
    )


def _with_stages(stages: int) -> Launch:
    return _matmul(2048, 2048, 4096, blocks=(128, 128, 32), stages=stages)


def _descriptor_matmul(m: int, n: int, k: int) -> Launch:
    a, b, c = _random(m, k), _random(n, k), _random(m, n)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    return lambda: descriptor_matmul_kernel[(132,)](a, b, c, m, n, k, 128, 128, 64, num_warps=8, num_stages=3)


def _attention(heads: int, length: int, dim: int, causal: bool, block_m: int = 128) -> Launch:
    q, k, v = (_random(heads, length, dim) for _ in range(3))
    out, sums = torch.empty_like(q), torch.empty((heads, length), device="cuda")
    scale = 1.44 / dim**0.5
    return lambda: attention_kernel[(length // block_m, heads)](
        q, k, v, out, sums, scale, length, causal, block_m, 64, dim, num_warps=block_m // 16, num_stages=3
    )


def _attention_backward(heads: int, length: int, dim: int) -> Launch:
    q, k, v, grad = (_random(heads, length, dim) for _ in range(4))
    sums, deltas = torch.full((heads, length), 12.0, device="cuda"), _random(heads, length, dtype=FLOAT)
    grads = torch.empty_like(k), torch.empty_like(v)
    return lambda: attention_backward_kernel[(length // 128, heads)](
        q, k, v, grad, sums, deltas, *grads, 1.44 / dim**0.5, length, 64, 128, dim, num_warps=8, num_stages=2
    )


def _grouped(groups: int, m: int, n: int, k: int) -> Launch:
    a, b, c = _random(m, k), _random(groups, k, n), _random(m, n)
    group_of_tile = torch.randint(0, groups, (m // 128,), device="cuda", dtype=torch.int32)
    return lambda: grouped_matmul_kernel[(m // 128, n // 128)](
        a, b, c, group_of_tile, n, k, 128, 128, 64, num_warps=8, num_stages=3
    )


def _flex() -> Launch:
    """What Inductor makes of attention with a score of the user's own."""
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = (_random(4, 8, 2048, 64) for _ in range(3))
    compiled = torch.compile(flex_attention, dynamic=False)

    def nearer(score: torch.Tensor, batch: int, head: int, query: int, key: int) -> torch.Tensor:
        return score - 0.01 * (query - key).abs()

    return lambda: compiled(q, k, v, score_mod=nearer)


def _inductor_norm() -> Launch:
    x = _random(8192, 4096)
    compiled = torch.compile(lambda x: torch.nn.functional.layer_norm(x, (4096,)).relu())
    return lambda: compiled(x)


def _copy(megabytes: int) -> Launch:
    n = megabytes << 18
    x, out = _random(n, dtype=FLOAT), torch.empty(n, device="cuda")
    return lambda: copy_kernel[(triton.cdiv(n, 8192),)](x, out, n, 8192, num_warps=8)


def _add(n: int) -> Launch:
    x, y, out = _random(n, dtype=FLOAT), _random(n, dtype=FLOAT), torch.empty(n, device="cuda")
    return lambda: add_kernel[(triton.cdiv(n, 4096),)](x, y, out, n, 4096)


def _softmax(rows: int, columns: int) -> Launch:
    x = _random(rows, columns, dtype=FLOAT)
    out, block = torch.empty_like(x), triton.next_power_of_2(columns)
    return lambda: softmax_kernel[(132 * 4,)](x, out, columns, rows, block, num_warps=8)


def _layer_norm(rows: int, columns: int) -> Launch:
    x, weight, bias = _random(rows, columns), _random(columns, dtype=FLOAT), _random(columns, dtype=FLOAT)
    out = torch.empty_like(x)
    return lambda: layer_norm_kernel[(rows,)](x, weight, bias, out, columns, 1024)


def _row_sum(rows: int, columns: int) -> Launch:
    x, out = _random(rows, columns, dtype=FLOAT), torch.empty(rows, device="cuda")
    return lambda: row_sum_kernel[(rows,)](x, out, columns, 2048)


def _transpose(size: int) -> Launch:
    x = _random(size, size, dtype=FLOAT)
    out = torch.empty_like(x)
    return lambda: transpose_kernel[(size // 64, size // 64)](x, out, size, 64)


def _gather(rows: int, width: int) -> Launch:
    table, out = _random(1 << 18, width), torch.empty((rows, width), device="cuda", dtype=HALF)
    index = torch.randint(0, 1 << 18, (rows,), device="cuda", dtype=torch.int32)
    return lambda: gather_kernel[(rows,)](index, table, out, width, width)


def _count(n: int, bins: int) -> Launch:
    x = torch.randint(0, bins, (n,), device="cuda", dtype=torch.int32)
    counts = torch.zeros(bins, device="cuda", dtype=torch.int32)
    return lambda: count_kernel[(n // 1024,)](x, counts, 1024)


def _of_elements(kernel: object, n: int, turns: int) -> Launch:
    x, out = torch.rand(n, device="cuda"), torch.empty(n, device="cuda")
    return lambda: kernel[(n // 1024,)](x, out, turns, 1024)  # type: ignore[index]


def _chase(programs: int, steps: int) -> Launch:
    order = torch.randperm(1 << 24, device="cuda", dtype=torch.int32)
    following = torch.empty_like(order)
    following[order.long()] = order.roll(-1)
    out = torch.empty(programs, device="cuda", dtype=torch.int32)
    return lambda: chase_kernel[(programs,)](following, out, steps, num_warps=1)


def _scan(rows: int, columns: int) -> Launch:
    x = _random(rows, columns, dtype=FLOAT)
    out = torch.empty_like(x)
    return lambda: scan_kernel[(rows,)](x, out, columns, 1024)


def _sort(n: int) -> Launch:
    x, out = _random(n, dtype=FLOAT), torch.empty(n, device="cuda")
    return lambda: sort_kernel[(n // 1024,)](x, out, 1024)


def _random_numbers(n: int, turns: int) -> Launch:
    out = torch.empty(n, device="cuda")
    return lambda: random_kernel[(n // 1024,)](out, 1234, turns, 1024)


def _hash(n: int, turns: int) -> Launch:
    x = torch.randint(0, 1 << 31, (n,), device="cuda", dtype=torch.int32)
    return lambda: hash_kernel[(n // 1024,)](x, torch.empty_like(x), turns, 1024)


def _clip(n: int, turns: int) -> Launch:
    x, low, high = (_random(n, dtype=FLOAT) for _ in range(3))
    return lambda: clip_kernel[(n // 1024,)](x, low, high, torch.empty_like(x), turns, 1024)


def _unpack(words: int) -> Launch:
    x = torch.randint(0, 1 << 31, (words,), device="cuda", dtype=torch.int32)
    scales, out = _random(words // 16, dtype=FLOAT), torch.empty(8 * words, device="cuda", dtype=HALF)
    return lambda: unpack_kernel[(words // 256,)](x, scales, out, 256)


def _gluon_matmul(m: int, n: int, k: int) -> Launch:
    import gluon_matmul

    return gluon_matmul.launch_of(_random(m, k), _random(n, k))


FP8 = torch.float8_e4m3fn
KERNELS: dict[str, Callable[[], Launch]] = {
    "matmul-fp16-4096": lambda: _matmul(4096, 4096, 4096, blocks=(128, 256, 64)),
    "matmul-fp16-2048": lambda: _matmul(2048, 2048, 1024),
    "matmul-fp16-512": lambda: _matmul(512, 512, 512, blocks=(64, 64, 64), warps=4),
    "matmul-fp16-thin": lambda: _matmul(128, 8192, 4096, blocks=(128, 64, 64), warps=4),
    "matmul-fp16-deep": lambda: _matmul(1024, 1024, 16384),
    "matmul-bf16-4096": lambda: _matmul(4096, 4096, 4096, torch.bfloat16),
    "matmul-bf16-8192": lambda: _matmul(8192, 8192, 2048, torch.bfloat16, (128, 256, 64)),
    "matmul-fp8-4096": lambda: _matmul(4096, 4096, 4096, FP8, (128, 256, 128), 8, 3),
    "matmul-fp8-2048": lambda: _matmul(2048, 4096, 2048, FP8, (128, 128, 128), 8, 3),
    "matmul-tf32-2048": lambda: _matmul(2048, 2048, 2048, FLOAT, (128, 128, 32), 8, 3),
    "matmul-tf32-rows": lambda: _matmul_of_rows(2048, 2048, 2048),
    "matmul-tf32x3-1024": lambda: _matmul(1024, 2048, 1024, FLOAT, (64, 64, 32), 4, 3, "tf32x3"),
    "matmul-ieee-1024": lambda: _matmul(1024, 1024, 1024, FLOAT, (64, 64, 16), 4, 3, "ieee"),
    "matmul-throttled": lambda: _matmul(8192, 8192, 8192, blocks=(128, 256, 64)),
    "matmul-unpipelined": lambda: _matmul(4096, 4096, 2048, stages=1),
    "matmul-two-stages": lambda: _matmul(4096, 4096, 2048, blocks=(128, 128, 32), stages=2),
    **{f"matmul-stages-{stages}": functools.partial(_with_stages, stages) for stages in range(1, 6)},
    "matmul-descriptors": lambda: _descriptor_matmul(4096, 4096, 2048),
    "matmul-gluon": lambda: _gluon_matmul(4096, 4096, 2048),
    "matmul-gluon-2048": lambda: _gluon_matmul(2048, 2048, 2048),
    "attention": lambda: _attention(32, 4096, 64, False),
    "attention-128": lambda: _attention(32, 2048, 128, False),
    "attention-causal": lambda: _attention(32, 4096, 64, True),
    "attention-narrow": lambda: _attention(64, 4096, 16, False),
    "attention-backward": lambda: _attention_backward(32, 2048, 64),
    "grouped-matmul": lambda: _grouped(16, 8192, 2048, 1024),
    "inductor-attention": _flex,
    "inductor-norm": _inductor_norm,
    "copy-512-mb": lambda: _copy(256),
    "copy-8-mb": lambda: _copy(4),
    "add": lambda: _add(40_000_001),
    "softmax": lambda: _softmax(16384, 4096),
    "softmax-odd": lambda: _softmax(16384, 3000),
    "layer-norm": lambda: _layer_norm(16384, 8192),
    "row-sum": lambda: _row_sum(8192, 16384),
    "transpose": lambda: _transpose(8192),
    "gather": lambda: _gather(65536, 1024),
    "atomics": lambda: _count(1 << 24, 64),
    "exponentials": lambda: _of_elements(exponential_kernel, 1 << 22, 200),
    "polynomial": lambda: _of_elements(polynomial_kernel, 1 << 22, 200),
    "latency-chain": lambda: _chase(132, 200),
    "scan": lambda: _scan(4096, 8192),
    "sort": lambda: _sort(1 << 22),
    "random": lambda: _random_numbers(1 << 22, 20),
    "hash": lambda: _hash(1 << 22, 100),
    "clip": lambda: _clip(1 << 22, 200),
    "unpack": lambda: _unpack(1 << 24),
    **FOREIGN,
}


def kernel_names() -> set[str]:
    """All kernels that are written here."""
    files = [*Path(__file__).parent.glob("*kernels.py"), *Path(__file__).parent.glob("gluon_*.py")]
    return {name for file in files for name in re.findall(r"^def (\w+_kernel)\(", file.read_text(), re.MULTILINE)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KERNELS), help="the names, with commas between")
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--times", type=Path, help="write for each its name and the host time before and after, in ns")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(KERNELS))
        return
    torch.manual_seed(0)
    for name in arguments.only.split(","):
        launch = KERNELS[name]()
        begun_ns = time.time_ns()
        torch.cuda.nvtx.range_push(name)
        for _ in range(arguments.launches):
            launch()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        if arguments.times:
            with arguments.times.open("a") as file:
                file.write(json.dumps([name, begun_ns, time.time_ns()]) + "\n")


if __name__ == "__main__":
    main()

"""Kernels as other projects write them: masks that cover a part, operands that several threads share, quantised
weights, and what Inductor makes of a few lines of torch.

Each launch has the sizes of a language model, and ``kernels.py`` launches them with its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

Launch = Callable[[], object]
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32


@triton.jit
def tutorial_matmul_kernel(
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
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """As in Triton's third tutorial: rows and columns wrap around, and K is masked."""
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first_m = pid // in_group * GROUP_M
    group_m = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + pid % in_group % group_m
    tile_n = pid % in_group // group_m
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (rows[:, None] * stride_am + inner[None, :] * stride_ak)
    b_ptrs = b_ptr + (inner[:, None] * stride_bk + columns[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=inner[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=inner[:, None] < K - k * BLOCK_K, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    acc = tl.where(acc >= 0, acc, 0.01 * acc)
    rows, columns = tile_m * BLOCK_M + tl.arange(0, BLOCK_M), tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(c_ptrs, acc.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def int4_matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    scales_ptr,
    zeros_ptr,
    M,
    N,
    K,
    group_size,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    """Eight weights of 4 bits in a word, along K; the parts of K are added up by atomics."""
    pid, part = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = part * BLOCK_K + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + (inner[:, None] // 8) * N + columns[None, :]
    shifts = (inner % 8) * 4
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K * SPLIT_K)):
        a = tl.load(a_ptrs, mask=rows[:, None] < M, other=0.0)
        b = tl.load(b_ptrs)
        group = (k * SPLIT_K + part) * BLOCK_K // group_size
        scales = tl.load(scales_ptr + group * N + columns)
        zeros = tl.load(zeros_ptr + group * (N // 8) + columns // 8)
        zeros = (zeros >> ((columns % 8) * 4)) & 0xF
        b = (b >> shifts[:, None]) & 0xF
        b = ((b - zeros[None, :]) * scales[None, :]).to(tl.float16)
        acc += tl.dot(a, b)
        a_ptrs += BLOCK_K * SPLIT_K
        b_ptrs += (BLOCK_K * SPLIT_K // 8) * N
    places = c_ptr + rows[:, None] * N + columns[None, :]
    tl.atomic_add(places, acc.to(tl.float16), mask=rows[:, None] < M)


@triton.jit
def swiglu_kernel(a_ptr, b_ptr, c_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    places = tl.arange(0, BLOCK)
    mask = places < columns
    a = tl.load(a_ptr + row + places, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + row + places, mask=mask, other=0)
    tl.store(c_ptr + row + places, (a * tl.sigmoid(a)).cast(b.dtype) * b, mask=mask)


@triton.jit
def swiglu_backward_kernel(grad_ptr, a_ptr, b_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    places = tl.arange(0, BLOCK)
    mask = places < columns
    grad = tl.load(grad_ptr + row + places, mask=mask, other=0)
    a = tl.load(a_ptr + row + places, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + row + places, mask=mask, other=0)
    sigmoid = tl.sigmoid(a)
    silu = a * sigmoid
    tl.store(a_ptr + row + places, grad * (silu * (1 - sigmoid) + sigmoid) * b, mask=mask)
    tl.store(b_ptr + row + places, grad * silu, mask=mask)


@triton.jit
def geglu_kernel(a_ptr, b_ptr, c_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    places = tl.arange(0, BLOCK)
    mask = places < columns
    a = tl.load(a_ptr + row + places, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + row + places, mask=mask, other=0)
    inner = 0.7978845608028654 * (a + 0.044715 * a * a * a)
    tl.store(c_ptr + row + places, (0.5 * a * (1 + libdevice.tanh(inner))).cast(b.dtype) * b, mask=mask)


@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, loss_ptr, columns, BLOCK: tl.constexpr):
    """The maximum and the sum in one pass, and the gradient in a second one."""
    row = tl.program_id(0).to(tl.int64) * columns
    target = tl.load(target_ptr + tl.program_id(0))
    greatest, total = float("-inf"), 0.0
    at_target = tl.load(x_ptr + row + target).to(tl.float32)
    for start in range(0, columns, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + places, mask=places < columns, other=float("-inf")).to(tl.float32)
        new = tl.maximum(greatest, tl.max(x))
        total = total * tl.exp(greatest - new) + tl.sum(tl.exp(x - new))
        greatest = new
    for start in range(0, columns, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + places, mask=places < columns, other=float("-inf")).to(tl.float32)
        x = tl.where(places != target, tl.exp(x - greatest) / total, tl.exp(x - greatest) / total - 1)
        tl.store(x_ptr + row + places, x, mask=places < columns)
    tl.store(loss_ptr + tl.program_id(0), greatest + tl.log(total) - at_target)


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    places = tl.arange(0, BLOCK)
    mask = places < columns
    x = tl.load(x_ptr + row + places, mask=mask, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + 1e-6)
    weight = tl.load(weight_ptr + places, mask=mask, other=0)
    tl.store(out_ptr + row + places, (x * scale).to(weight.dtype) * weight, mask=mask)


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, heads, HEADS: tl.constexpr, DIM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    head, half = tl.arange(0, HEADS), tl.arange(0, DIM // 2)
    cos = tl.load(cos_ptr + row * (DIM // 2) + half)[None, :]
    sin = tl.load(sin_ptr + row * (DIM // 2) + half)[None, :]
    first = x_ptr + row * heads * DIM + head[:, None] * DIM + half[None, :]
    mask = (head < heads)[:, None]
    x, y = tl.load(first, mask=mask, other=0).to(tl.float32), tl.load(first + DIM // 2, mask=mask, other=0)
    tl.store(first, x * cos - y * sin, mask=mask)
    tl.store(first + DIM // 2, y * cos + x * sin, mask=mask)


@triton.jit
def decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, pages_ptr, scale, length, PAGE: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr
):
    """Attention of one token in pages of keys and values, whose places are looked up."""
    sequence, head = tl.program_id(0), tl.program_id(1)
    dims, keys, queries = tl.arange(0, DIM), tl.arange(0, PAGE), tl.arange(0, GROUP)
    heads = tl.num_programs(1)
    q = tl.load(q_ptr + ((sequence * heads + head) * GROUP + queries[:, None]) * DIM + dims[None, :])
    acc = tl.zeros((GROUP, DIM), dtype=tl.float32)
    total = tl.zeros((GROUP,), dtype=tl.float32)
    greatest = tl.full((GROUP,), -1e30, dtype=tl.float32)
    for page in range(0, length // PAGE):
        place = tl.load(pages_ptr + sequence * (length // PAGE) + page).to(tl.int64)
        base = (place * heads + head) * PAGE * DIM
        k = tl.load(k_ptr + base + keys[None, :] * DIM + dims[:, None])
        v = tl.load(v_ptr + base + keys[:, None] * DIM + dims[None, :])
        scores = tl.dot(q, k) * scale
        new = tl.maximum(greatest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        fewer = tl.exp2(greatest - new)
        total = total * fewer + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.float16), v, acc * fewer[:, None])
        greatest = new
    out = (acc / total[:, None]).to(tl.float16)
    tl.store(out_ptr + ((sequence * heads + head) * GROUP + queries[:, None]) * DIM + dims[None, :], out)


@triton.jit
def _compose(decay, x, other_decay, y):
    return decay * other_decay, other_decay * x + y


@triton.jit
def recurrence_kernel(decay_ptr, x_ptr, out_ptr, length, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """h = decay * h + x along the rows, block by block."""
    lanes = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    width = tl.num_programs(1) * WIDTH
    state = tl.zeros((WIDTH,), dtype=tl.float32)
    for start in range(0, length, BLOCK):
        steps = (tl.program_id(0) * length + start + tl.arange(0, BLOCK))[:, None] * width + lanes[None, :]
        decay = tl.exp(-tl.load(decay_ptr + steps).to(tl.float32))
        decays, sums = tl.associative_scan((decay, tl.load(x_ptr + steps).to(tl.float32)), 0, _compose)
        h = sums + decays * state[None, :]
        tl.store(out_ptr + steps, h.to(tl.float16))
        state = tl.sum(tl.where(tl.arange(0, BLOCK)[:, None] == BLOCK - 1, h, 0.0), 0)


@triton.jit
def convolution_kernel(x_ptr, weight_ptr, out_ptr, length, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    """Of rows, with windows that overlap: most of what a thread reads another one has read."""
    row = tl.program_id(1) * length
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    taps = tl.arange(0, TAPS)
    where = places[:, None] + taps[None, :] - TAPS // 2
    x = tl.load(x_ptr + row + where, mask=(where >= 0) & (where < length), other=0.0)
    total = tl.sum(x.to(tl.float32) * tl.load(weight_ptr + taps).to(tl.float32)[None, :], 1)
    tl.store(out_ptr + row + places, total.to(tl.float16), mask=places < length)


@triton.jit
def strided_copies_kernel(x_ptr, out_ptr, turns, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    """Each element of a row is read STRIDE times."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(turns):
        total += tl.load(x_ptr + places // STRIDE + turn)
    tl.store(out_ptr + places, total)


@triton.jit
def quantise_kernel(x_ptr, out_ptr, scales_ptr, columns, GROUP: tl.constexpr, GROUPS: tl.constexpr):
    """To fp8, with a scale for each group."""
    row = tl.program_id(0).to(tl.int64) * columns + tl.program_id(1) * GROUPS * GROUP
    places = tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row + places).to(tl.float32)
    scale = tl.max(tl.abs(x), 1) / 448.0 + 1e-12
    y = tl.clamp(x / scale[:, None], -448.0, 448.0).to(tl.float8e4nv)
    tl.store(out_ptr + row + places, y)
    tl.store(scales_ptr + row // GROUP + tl.arange(0, GROUPS), scale)


@triton.jit
def masked_kernel(x_ptr, out_ptr, turns, kept, BLOCK: tl.constexpr):
    """Of each block, only the first elements are wanted."""
    inside = tl.arange(0, BLOCK)
    places = tl.program_id(0) * BLOCK + inside
    x = tl.load(x_ptr + places, mask=inside < kept, other=1.0)
    for _ in tl.static_range(8):
        x = tl.exp2(-x) * x + 1.5
    tl.store(out_ptr + places, x, mask=inside < kept)


@triton.jit
def logarithm_kernel(x_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places)
    for _ in range(turns):
        x = tl.abs(tl.log(x + 1.5)) + 0.1
    tl.store(out_ptr + places, x)


@triton.jit
def choices_kernel(x_ptr, y_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    """Values that are chosen or kept under a condition, as in a masked reduction."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + places).to(tl.float32), tl.load(y_ptr + places).to(tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(turns):
        x = tl.where(x > 0, x, x * 0.5 + turn)
        total = tl.where(places % 7 < turn, total + x * y, total)
    tl.store(out_ptr + places, total)


@triton.jit
def half_chain_kernel(x_ptr, y_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    """In fp16 alone, which the compiler may do in pairs."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + places), tl.load(y_ptr + places)
    for _ in range(turns):
        x = (x.to(tl.float32) * y.to(tl.float32)).to(tl.float16)
        x = tl.maximum(x.to(tl.float32), y.to(tl.float32)).to(tl.float16)
    tl.store(out_ptr + places, x)


@triton.jit
def bfloat_chain_kernel(x_ptr, y_ptr, out_ptr, turns, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + places), tl.load(y_ptr + places)
    for _ in range(turns):
        x = (x.to(tl.float32) + y.to(tl.float32)).to(tl.bfloat16)
        x = tl.minimum(x.to(tl.float32), y.to(tl.float32)).to(tl.bfloat16)
    tl.store(out_ptr + places, x)


@triton.jit
def argmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    places = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + places, mask=places < columns, other=float("-inf")).to(tl.float32)
    tl.store(out_ptr + tl.program_id(0), tl.argmax(x, 0))


def _random(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def _tutorial(m: int, n: int, k: int, blocks: tuple[int, int, int], warps: int, stages: int, fp8: bool) -> Launch:
    a, b = _random(m, k), _random(k, n)
    if fp8:
        a, b = a.to(torch.float8_e5m2), b.T.contiguous().T.to(torch.float8_e5m2)
    c = torch.empty((m, n), device="cuda", dtype=HALF)
    grid = (triton.cdiv(m, blocks[0]) * triton.cdiv(n, blocks[1]),)
    return lambda: tutorial_matmul_kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), *blocks, 8, num_warps=warps, num_stages=stages
    )


def _int4(m: int, n: int, k: int, split: int, stages: int = 3) -> Launch:
    a, c = _random(m, k), torch.zeros((m, n), device="cuda", dtype=HALF)
    b = torch.randint(0, 1 << 31, (k // 8, n), device="cuda", dtype=torch.int32)
    scales = _random(k // 128, n)
    zeros = torch.randint(0, 1 << 31, (k // 128, n // 8), device="cuda", dtype=torch.int32)
    grid = (triton.cdiv(m, 16) * (n // 64), split)
    return lambda: int4_matmul_kernel[grid](
        a, b, c, scales, zeros, m, n, k, 128, 16, 64, 128, split, num_warps=4, num_stages=stages
    )


def _rows(kernel: object, rows: int, columns: int, inputs: int, warps: int, dtype: torch.dtype = BFLOAT) -> Launch:
    """A kernel with one program for each row of a few matrices."""
    tensors = [_random(rows, columns, dtype=dtype) for _ in range(inputs)]
    block = triton.next_power_of_2(columns)
    return lambda: kernel[(rows,)](*tensors, columns, columns, block, num_warps=warps)  # type: ignore[index]


def _cross_entropy(rows: int, columns: int) -> Launch:
    x, loss = _random(rows, columns, dtype=BFLOAT), torch.empty(rows, device="cuda")
    target = torch.randint(0, columns, (rows,), device="cuda")
    return lambda: cross_entropy_kernel[(rows,)](x, target, loss, columns, 32768, num_warps=32)


def _rms_norm(rows: int, columns: int) -> Launch:
    x, weight = _random(rows, columns, dtype=BFLOAT), _random(columns, dtype=BFLOAT)
    out, block = torch.empty_like(x), triton.next_power_of_2(columns)
    return lambda: rms_norm_kernel[(rows,)](x, weight, out, columns, block, num_warps=8)


def _rotary(rows: int, heads: int, dim: int) -> Launch:
    x, cos, sin = _random(rows, heads, dim, dtype=BFLOAT), _random(rows, dim // 2), _random(rows, dim // 2)
    return lambda: rotary_kernel[(rows,)](x, cos, sin, heads, triton.next_power_of_2(heads), dim)


def _decode(sequences: int, heads: int, length: int) -> Launch:
    q = _random(sequences, heads, 16, 128)
    k, v = (_random(sequences * length // 64, heads, 64, 128) for _ in range(2))
    pages = torch.randperm(sequences * length // 64, device="cuda", dtype=torch.int32)
    out = torch.empty_like(q)
    return lambda: decode_kernel[(sequences, heads)](q, k, v, out, pages, 0.1, length, 64, 128, 16)


def _recurrence(rows: int, length: int, width: int) -> Launch:
    decay, x = _random(rows, length, width).abs(), _random(rows, length, width)
    out = torch.empty_like(x)
    return lambda: recurrence_kernel[(rows, width // 32)](decay, x, out, length, 32, 64)


def _convolution(rows: int, length: int) -> Launch:
    x, weight = _random(rows, length), _random(16)
    out = torch.empty_like(x)
    return lambda: convolution_kernel[(length // 512, rows)](x, weight, out, length, 16, 512)


def _strided(n: int, stride: int) -> Launch:
    x, out = _random(n // stride + 64, dtype=FLOAT), torch.empty(n, device="cuda")
    return lambda: strided_copies_kernel[(n // 1024,)](x, out, 64, stride, 1024)


def _quantise(rows: int, columns: int) -> Launch:
    x = _random(rows, columns, dtype=BFLOAT)
    out, scales = torch.empty_like(x, dtype=torch.float8_e4m3fn), torch.empty(rows * columns // 128, device="cuda")
    return lambda: quantise_kernel[(rows, columns // 2048)](x, out, scales, columns, 128, 16)


def _masked(n: int, kept: int) -> Launch:
    x, out = torch.rand(n, device="cuda"), torch.empty(n, device="cuda")
    return lambda: masked_kernel[(n // 2048,)](x, out, 1, kept, 2048, num_warps=8)


def _pairs(kernel: object, n: int, turns: int, dtype: torch.dtype) -> Launch:
    x, y = _random(n, dtype=dtype), _random(n, dtype=dtype)
    return lambda: kernel[(n // 1024,)](x, y, torch.empty_like(x), turns, 1024)  # type: ignore[index]


def _logarithms(n: int, turns: int) -> Launch:
    x, out = torch.rand(n, device="cuda"), torch.empty(n, device="cuda")
    return lambda: logarithm_kernel[(n // 1024,)](x, out, turns, 1024)


def _argmax(rows: int, columns: int) -> Launch:
    x, out = _random(rows, columns), torch.empty(rows, device="cuda", dtype=torch.int32)
    return lambda: argmax_kernel[(rows,)](x, out, columns, triton.next_power_of_2(columns), num_warps=16)


def _inductor(function: Callable[..., object], *tensors: torch.Tensor) -> Launch:
    compiled = torch.compile(function)
    return lambda: compiled(*tensors)


def _pipelined(m: int, n: int, k: int, stages: int) -> Launch:
    import gluon_pipelined

    return gluon_pipelined.launch_of(_random(m, k), _random(n, k), stages)


FOREIGN: dict[str, Callable[[], Launch]] = {
    "tutorial-4096": lambda: _tutorial(4096, 4096, 4096, (128, 256, 64), 8, 3, False),
    "tutorial-2048": lambda: _tutorial(2048, 2048, 2048, (128, 128, 32), 4, 4, False),
    "tutorial-512": lambda: _tutorial(512, 512, 512, (64, 32, 32), 2, 5, False),
    "tutorial-small-tiles": lambda: _tutorial(4096, 4096, 4096, (64, 64, 32), 4, 4, False),
    "tutorial-odd": lambda: _tutorial(2000, 2000, 2000, (128, 128, 32), 4, 4, False),
    "tutorial-fp8": lambda: _tutorial(4096, 4096, 4096, (128, 256, 128), 8, 3, True),
    "int4-split": lambda: _int4(16, 8192, 8192, 4),
    "int4-split-64": lambda: _int4(64, 4096, 11008 // 128 * 128, 2),
    "int4-unpipelined": lambda: _int4(16, 8192, 8192, 4, stages=1),
    "swiglu": lambda: _rows(swiglu_kernel, 8192, 11008, 3, 32),
    "swiglu-small": lambda: _rows(swiglu_kernel, 2048, 2816, 3, 8),
    "swiglu-fp32": lambda: _rows(swiglu_kernel, 8192, 4097, 3, 16, FLOAT),
    "swiglu-backward": lambda: _rows(swiglu_backward_kernel, 8192, 11008, 3, 32),
    "geglu": lambda: _rows(geglu_kernel, 8192, 11008, 3, 32),
    "cross-entropy": lambda: _cross_entropy(4096, 32000),
    "rms-norm": lambda: _rms_norm(16384, 5120),
    "rotary": lambda: _rotary(8192, 24, 128),
    "decode": lambda: _decode(32, 8, 4096),
    "recurrence": lambda: _recurrence(8, 2048, 2048),
    "convolution": lambda: _convolution(4096, 4096),
    "each-four-times": lambda: _strided(1 << 24, 4),
    "quantise": lambda: _quantise(8192, 8192),
    "masked-most": lambda: _masked(1 << 26, 300),
    "masked-none": lambda: _masked(1 << 26, 2048),
    "logarithms": lambda: _logarithms(1 << 22, 100),
    "choices": lambda: _pairs(choices_kernel, 1 << 22, 100, HALF),
    "half-chain": lambda: _pairs(half_chain_kernel, 1 << 22, 200, HALF),
    "bfloat-chain": lambda: _pairs(bfloat_chain_kernel, 1 << 22, 200, BFLOAT),
    "argmax": lambda: _argmax(16384, 16384),
    "gluon-pipelined": lambda: _pipelined(4096, 4096, 4096, 2),
    "gluon-pipelined-3": lambda: _pipelined(4096, 4096, 4096, 3),
    "inductor-softmax": lambda: _inductor(lambda x: torch.softmax(x.float(), -1), _random(8192, 8192)),
    "inductor-sum": lambda: _inductor(lambda x: x.float().sum(-1), _random(4096, 40000)),
    "inductor-variance": lambda: _inductor(lambda x: torch.var_mean(x.float(), -1), _random(8192, 10000)),
    "inductor-columns": lambda: _inductor(lambda x: (x.float() * 2).amax(0), _random(16384, 4096)),
    "inductor-loss": lambda: _inductor(
        torch.nn.functional.cross_entropy,
        _random(8192, 32000, dtype=BFLOAT),
        torch.randint(0, 32000, (8192,), device="cuda"),
    ),
    "inductor-gelu": lambda: _inductor(torch.nn.functional.gelu, _random(8192, 8192, dtype=BFLOAT)),
    "inductor-silu": lambda: _inductor(torch.nn.functional.silu, _random(8192, 8192)),
}

"""Dots with 8-bit operands whose rows do not run along K, which Hopper's tensor cores need.

The edit stores the operand transposed, before the kernel, as is done with weights.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import FLOAT, FP8, HALF, INT8, Case, Launch, Pair, Result, by_name, normal

FLAW = "transposed-fp8"
KEYWORDS = ("transpose", "along k", "k-major")


@triton.jit
def scaled_blocks_kernel(
    a_ptr,
    a_scale_ptr,
    b_ptr,
    b_scale_ptr,
    out_ptr,
    N,
    K,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Multiply fp8 matrices with a scale for BLOCK_K values of a row of A, and for a block of B."""
    tiles_n = N // BLOCK_N
    tile_n = tl.program_id(0) % tiles_n
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * stride_bk + columns[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, K // BLOCK_K):
        product = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs))
        a_scale = tl.load(a_scale_ptr + rows * (K // BLOCK_K) + step)
        acc += product * (a_scale * tl.load(b_scale_ptr + step * tiles_n + tile_n))[:, None]
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


@triton.jit
def linkage_kernel(
    genotypes_ptr,
    mean_ptr,
    deviation_ptr,
    out_ptr,
    SAMPLES,
    SITES,
    stride_sample,
    stride_site,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Correlate sites of int8 genotypes over all samples (linkage disequilibrium)."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    samples = tl.arange(0, BLOCK_K)
    a_ptrs = genotypes_ptr + rows[:, None] * stride_site + samples[None, :] * stride_sample
    b_ptrs = genotypes_ptr + samples[:, None] * stride_sample + columns[None, :] * stride_site
    acc = tl.zeros((BLOCK, BLOCK), tl.int32)
    for _ in range(0, SAMPLES, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc, out_dtype=tl.int32)
        a_ptrs += BLOCK_K * stride_sample
        b_ptrs += BLOCK_K * stride_sample
    means = tl.load(mean_ptr + rows)[:, None] * tl.load(mean_ptr + columns)[None, :]
    deviations = tl.load(deviation_ptr + rows)[:, None] * tl.load(deviation_ptr + columns)[None, :]
    correlation = (acc.to(tl.float32) / SAMPLES - means) / deviations
    tl.store(out_ptr + rows[:, None] * SITES + columns[None, :], correlation)


@triton.jit
def sigmoid_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    LENGTH,
    stride_key,
    stride_dim,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DIM: tl.constexpr,
):
    """Attend with sigmoids as weights, which need no sum, and with weights and values in fp8."""
    head = tl.program_id(1) * LENGTH * DIM
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims, keys = tl.arange(0, DIM), tl.arange(0, BLOCK_N)
    q = tl.load(q_ptr + head + rows[:, None] * DIM + dims[None, :])
    k_ptrs = k_ptr + head + keys[None, :] * DIM + dims[:, None]
    v_ptrs = v_ptr + head + keys[:, None] * stride_key + dims[None, :] * stride_dim
    acc = tl.zeros((BLOCK_M, DIM), tl.float32)
    for _ in range(0, LENGTH, BLOCK_N):
        weights = 1 / (1 + tl.exp(-tl.dot(q, tl.load(k_ptrs)) * scale))
        acc = tl.dot(weights.to(tl.float8e4nv), tl.load(v_ptrs), acc)
        k_ptrs += BLOCK_N * DIM
        v_ptrs += BLOCK_N * stride_key
    tl.store(out_ptr + head + rows[:, None] * DIM + dims[None, :], acc.to(tl.float16))


def scaled_blocks(device: str, small: bool) -> Pair:
    m, n, k = (128, 128, 256) if small else (2048, 4096, 4096)
    block = 128
    a, b = normal(device, m, k).to(FP8), normal(device, k, n).to(FP8)
    a_scale = torch.rand((m, k // block), device=device) / k
    b_scale = torch.rand((k // block, n // block), device=device)

    def launcher(b: torch.Tensor) -> Launch:
        out = torch.empty((m, n), device=device, dtype=HALF)

        def launch() -> Result:
            scaled_blocks_kernel[(m // block * (n // block),)](
                a, a_scale, b, b_scale, out, n, k, *b.stride(), block, block, block, num_warps=8, num_stages=3
            )
            return out

        return launch

    return launcher(b), launcher(b.T.contiguous().T)


def linkage(device: str, small: bool) -> Pair:
    samples, sites = (256, 128) if small else (8192, 2048)
    genotypes = torch.randint(0, 3, (samples, sites), device=device, dtype=INT8)
    mean, deviation = genotypes.to(FLOAT).mean(0), genotypes.to(FLOAT).std(0)

    def launcher(genotypes: torch.Tensor) -> Launch:
        out = torch.empty((sites, sites), device=device)

        def launch() -> Result:
            linkage_kernel[(sites // 128, sites // 128)](
                genotypes, mean, deviation, out, samples, sites, *genotypes.stride(), 128, 128, num_warps=8
            )
            return out

        return launch

    return launcher(genotypes), launcher(genotypes.T.contiguous().T)


def sigmoid_attention(device: str, small: bool) -> Pair:
    heads, length, dim = (1, 256, 64) if small else (32, 2048, 128)
    q, k = (normal(device, heads, length, dim, dtype=HALF) for _ in range(2))
    v = normal(device, heads, length, dim).to(FP8)

    def launcher(v: torch.Tensor) -> Launch:
        out = torch.empty((heads, length, dim), device=device, dtype=HALF)

        def launch() -> Result:
            sigmoid_attention_kernel[(length // 128, heads)](
                q, k, v, out, dim**-0.5, length, *v.stride()[1:], 128, 64, dim, num_warps=8, num_stages=3
            )
            return out

        return launch

    return launcher(v), launcher(v.transpose(1, 2).contiguous().transpose(1, 2))


CASES = by_name(
    Case("scaled-blocks", FLAW, scaled_blocks, KEYWORDS, relative=1e-2, absolute=1e-2),
    Case("linkage", FLAW, linkage, KEYWORDS),
    Case("sigmoid-attention", FLAW, sigmoid_attention, KEYWORDS, relative=1e-2, absolute=1e-2),
)

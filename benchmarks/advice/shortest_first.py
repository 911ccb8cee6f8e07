"""Uneven CTAs, in an order in which the longest ones start last. The edit starts them first."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import FLOAT, HALF, INT, Case, Pair, Result, by_name, normal

FLAW = "shortest-first"
KEYWORDS = ("longest", "long ctas first", "order of the ctas", "order of ctas", "reverse")


@triton.jit
def pool_sequence(x_ptr, offsets_ptr, out_ptr, sequence, DIM: tl.constexpr, BLOCK: tl.constexpr):
    begin, end = tl.load(offsets_ptr + sequence), tl.load(offsets_ptr + sequence + 1)
    rows, dims = tl.arange(0, BLOCK), tl.arange(0, DIM)
    total = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(begin, end, BLOCK):
        place = start + rows
        x = tl.load(x_ptr + place[:, None] * DIM + dims[None, :], mask=(place < end)[:, None], other=0.0)
        x = tl.maximum(x.to(tl.float32), 0.0)
        total += x * x * x
    mean = tl.sum(total, 0) / (end - begin)
    tl.store(out_ptr + sequence * DIM + dims, tl.exp(tl.log(mean + 1e-6) / 3))


@triton.jit
def pooling_flawed(x_ptr, offsets_ptr, out_ptr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Compute the generalized mean (of third powers) of each sequence; they are sorted by length."""
    pool_sequence(x_ptr, offsets_ptr, out_ptr, tl.program_id(0), DIM, BLOCK)


@triton.jit
def pooling_edited(x_ptr, offsets_ptr, out_ptr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Begin with the longest sequence."""
    pool_sequence(x_ptr, offsets_ptr, out_ptr, tl.num_programs(0) - 1 - tl.program_id(0), DIM, BLOCK)


@triton.jit
def multiply_rows(a_ptr, b_ptr, out_ptr, tile, K, N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    tile_m, tile_n = tile // (N // BLOCK), tile % (N // BLOCK)
    rows, columns = tile_m * BLOCK + tl.arange(0, BLOCK), tile_n * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, (tile_m + 1) * BLOCK, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * K + (start + inner)[None, :])
        b = tl.load(b_ptr + (start + inner)[:, None] * N + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


@triton.jit
def triangular_flawed(a_ptr, b_ptr, out_ptr, K, N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """Multiply a lower triangular matrix by a narrow one; the last rows have the most work."""
    multiply_rows(a_ptr, b_ptr, out_ptr, tl.program_id(0), K, N, BLOCK, BLOCK_K)


@triton.jit
def triangular_edited(a_ptr, b_ptr, out_ptr, K, N: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """Begin with the last rows."""
    multiply_rows(a_ptr, b_ptr, out_ptr, tl.num_programs(0) - 1 - tl.program_id(0), K, N, BLOCK, BLOCK_K)


@triton.jit
def average_neighbours(x_ptr, offsets_ptr, neighbours_ptr, out_ptr, node, DIM: tl.constexpr, BLOCK: tl.constexpr):
    begin, end = tl.load(offsets_ptr + node), tl.load(offsets_ptr + node + 1)
    edges, dims = tl.arange(0, BLOCK), tl.arange(0, DIM)
    total = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(begin, end, BLOCK):
        is_edge = start + edges < end
        neighbours = tl.load(neighbours_ptr + start + edges, mask=is_edge, other=0)
        x = tl.load(x_ptr + neighbours[:, None] * DIM + dims[None, :], mask=is_edge[:, None], other=0.0)
        total += x.to(tl.float32)
    tl.store(out_ptr + node * DIM + dims, tl.sum(total, 0) / (end - begin))


@triton.jit
def aggregation_flawed(x_ptr, offsets_ptr, neighbours_ptr, out_ptr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Average the features of each node's neighbours; nodes are sorted by degree."""
    average_neighbours(x_ptr, offsets_ptr, neighbours_ptr, out_ptr, tl.program_id(0), DIM, BLOCK)


@triton.jit
def aggregation_edited(x_ptr, offsets_ptr, neighbours_ptr, out_ptr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Begin with the node that has the most neighbours."""
    node = tl.num_programs(0) - 1 - tl.program_id(0)
    average_neighbours(x_ptr, offsets_ptr, neighbours_ptr, out_ptr, node, DIM, BLOCK)


def offsets_of(device: str, shortest: int, longest_of_most: int, count: int, longest: int, few: int) -> torch.Tensor:
    """Return where ragged rows begin: ``count`` rows with ascending lengths, and ``few`` much longer ones."""
    lengths = torch.cat([torch.linspace(shortest, longest_of_most, count).to(INT), torch.full((few,), longest)])
    offsets = torch.zeros(count + few + 1, dtype=INT)
    offsets[1:] = lengths.cumsum(0)
    return offsets.to(device)


def pooling(device: str, small: bool) -> Pair:
    dim = 128
    offsets = offsets_of(device, 10, 70, 6, 300, 2) if small else offsets_of(device, 64, 512, 4096, 8192, 32)
    count = len(offsets) - 1
    x = normal(device, int(offsets[-1]), dim, dtype=HALF)
    flawed_out, edited_out = (torch.empty((count, dim), device=device) for _ in range(2))

    def flawed() -> Result:
        pooling_flawed[(count,)](x, offsets, flawed_out, dim, 64, num_warps=8)
        return flawed_out

    def edited() -> Result:
        pooling_edited[(count,)](x, offsets, edited_out, dim, 64, num_warps=8)
        return edited_out

    return flawed, edited


def triangular_product(device: str, small: bool) -> Pair:
    size, width = (384, 128) if small else (8192, 512)
    a, b = normal(device, size, size, dtype=HALF).tril(), normal(device, size, width, dtype=HALF) * size**-0.5
    flawed_out, edited_out = (torch.empty((size, width), device=device, dtype=HALF) for _ in range(2))
    grid = (size // 128 * (width // 128),)

    def flawed() -> Result:
        triangular_flawed[grid](a, b, flawed_out, size, width, 128, 64, num_warps=8, num_stages=4)
        return flawed_out

    def edited() -> Result:
        triangular_edited[grid](a, b, edited_out, size, width, 128, 64, num_warps=8, num_stages=4)
        return edited_out

    return flawed, edited


def neighbour_mean(device: str, small: bool) -> Pair:
    dim = 128
    offsets = offsets_of(device, 8, 64, 10, 200, 2) if small else offsets_of(device, 8, 64, 49152, 8192, 32)
    nodes = len(offsets) - 1
    x = normal(device, nodes, dim, dtype=HALF)
    neighbours = torch.randint(0, nodes, (int(offsets[-1]),), device=device, dtype=INT)
    flawed_out, edited_out = (torch.empty((nodes, dim), device=device, dtype=FLOAT) for _ in range(2))

    def flawed() -> Result:
        aggregation_flawed[(nodes,)](x, offsets, neighbours, flawed_out, dim, 64)
        return flawed_out

    def edited() -> Result:
        aggregation_edited[(nodes,)](x, offsets, neighbours, edited_out, dim, 64)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("pooling", FLAW, pooling, KEYWORDS),
    Case("triangular-product", FLAW, triangular_product, KEYWORDS),
    Case("neighbour-mean", FLAW, neighbour_mean, KEYWORDS),
)

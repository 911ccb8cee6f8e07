"""Tiles in an order in which operands larger than the L2 are read from DRAM again and again.

The edit orders program ids such that CTAs that run at the same time share operands.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from case import FLOAT, HALF, Case, Pair, Result, by_name, normal

FLAW = "tile-order"
KEYWORDS = ("order of", "program id", "reuse", "grouped", "group the", "swizzle", "group_m")


@triton.jit
def nearest_in_tile(
    queries_ptr,
    keys_ptr,
    squares_ptr,
    out_ptr,
    tile_m,
    tile_n,
    QUERIES,
    DIM,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows, columns = tile_m * BLOCK + tl.arange(0, BLOCK), tile_n * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, DIM, BLOCK_K):
        queries = tl.load(queries_ptr + rows[:, None] * DIM + (start + inner)[None, :])
        keys = tl.load(keys_ptr + columns[None, :] * DIM + (start + inner)[:, None])
        acc = tl.dot(queries, keys, acc)
    distances = tl.load(squares_ptr + columns)[None, :] - 2 * acc
    tl.store(out_ptr + tile_n * QUERIES + rows, tl.min(distances, 1))


@triton.jit
def nearest_key_flawed(
    queries_ptr, keys_ptr, squares_ptr, out_ptr, QUERIES, KEYS, DIM, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Compute the distance of each query to the nearest of BLOCK keys; CTAs go through all keys for a row of tiles."""
    tiles_n = KEYS // BLOCK
    tile_m, tile_n = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    nearest_in_tile(queries_ptr, keys_ptr, squares_ptr, out_ptr, tile_m, tile_n, QUERIES, DIM, BLOCK, BLOCK_K)


@triton.jit
def nearest_key_edited(
    queries_ptr, keys_ptr, squares_ptr, out_ptr, QUERIES, KEYS, DIM, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr
):
    """Go through the queries first."""
    tiles_m = QUERIES // BLOCK
    tile_m, tile_n = tl.program_id(0) % tiles_m, tl.program_id(0) // tiles_m
    nearest_in_tile(queries_ptr, keys_ptr, squares_ptr, out_ptr, tile_m, tile_n, QUERIES, DIM, BLOCK, BLOCK_K)


@triton.jit
def diffuse_tile(x_ptr, out_ptr, tile_x, tile_y, z, DEPTH, SIZE, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tile_y * ROWS + tl.arange(0, ROWS), tile_x * COLUMNS + tl.arange(0, COLUMNS)
    is_inside = (
        (rows > 0)[:, None] & (rows < SIZE - 1)[:, None] & (columns > 0)[None, :] & (columns < SIZE - 1)[None, :]
    )
    plane = SIZE * SIZE
    # 64 bits, as DEPTH planes may have more bytes than 32 bits count.
    center = x_ptr + z.to(tl.int64) * plane + rows[:, None] * SIZE + columns[None, :]
    x = tl.load(center)
    total = tl.load(center - 1, mask=is_inside, other=0.0) + tl.load(center + 1, mask=is_inside, other=0.0)
    total += tl.load(center - SIZE, mask=is_inside, other=0.0) + tl.load(center + SIZE, mask=is_inside, other=0.0)
    total += tl.load(center - plane, mask=is_inside & (z > 0), other=0.0)
    total += tl.load(center + plane, mask=is_inside & (z < DEPTH - 1), other=0.0)
    places = z.to(tl.int64) * plane + rows[:, None] * SIZE + columns[None, :]
    tl.store(out_ptr + places, x + 0.1 * (total - 6 * x))


@triton.jit
def diffusion_flawed(x_ptr, out_ptr, DEPTH, SIZE, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Make a step of diffusion (a stencil of seven points), plane by plane."""
    tiles_x, tiles_y = SIZE // COLUMNS, SIZE // ROWS
    tile_x, tile_y = tl.program_id(0) % tiles_x, tl.program_id(0) // tiles_x % tiles_y
    z = tl.program_id(0) // (tiles_x * tiles_y)
    diffuse_tile(x_ptr, out_ptr, tile_x, tile_y, z, DEPTH, SIZE, ROWS, COLUMNS)


@triton.jit
def diffusion_edited(x_ptr, out_ptr, DEPTH, SIZE, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Go through the planes first."""
    tiles_x = SIZE // COLUMNS
    z, tile = tl.program_id(0) % DEPTH, tl.program_id(0) // DEPTH
    diffuse_tile(x_ptr, out_ptr, tile % tiles_x, tile // tiles_x, z, DEPTH, SIZE, ROWS, COLUMNS)


@triton.jit
def score_document(
    queries_ptr,
    documents_ptr,
    out_ptr,
    query,
    document,
    DOCUMENTS,
    LENGTH,
    TOKENS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tokens, dims, words = tl.arange(0, TOKENS), tl.arange(0, DIM), tl.arange(0, BLOCK)
    tokens_of_query = tl.load(queries_ptr + (query * TOKENS + tokens)[:, None] * DIM + dims[None, :])
    best = tl.full((TOKENS, BLOCK), -1e30, tl.float32)
    for start in range(0, LENGTH, BLOCK):
        place = document * LENGTH + start + words
        tokens_of_document = tl.load(documents_ptr + place[None, :] * DIM + dims[:, None])
        best = tl.maximum(best, tl.dot(tokens_of_query, tokens_of_document))
    tl.store(out_ptr + query * DOCUMENTS + document, tl.sum(tl.max(best, 1), 0))


@triton.jit
def late_interaction_flawed(
    queries_ptr,
    documents_ptr,
    out_ptr,
    QUERIES,
    DOCUMENTS,
    LENGTH,
    TOKENS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum over a query's tokens the similarity of the nearest token of a document, document by document."""
    query, document = tl.program_id(0) // DOCUMENTS, tl.program_id(0) % DOCUMENTS
    score_document(queries_ptr, documents_ptr, out_ptr, query, document, DOCUMENTS, LENGTH, TOKENS, DIM, BLOCK)


@triton.jit
def late_interaction_edited(
    queries_ptr,
    documents_ptr,
    out_ptr,
    QUERIES,
    DOCUMENTS,
    LENGTH,
    TOKENS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Go through the queries first."""
    query, document = tl.program_id(0) % QUERIES, tl.program_id(0) // QUERIES
    score_document(queries_ptr, documents_ptr, out_ptr, query, document, DOCUMENTS, LENGTH, TOKENS, DIM, BLOCK)


def nearest_key(device: str, small: bool) -> Pair:
    query_count, key_count, dim = (256, 256, 128) if small else (2048, 16384, 2048)
    queries, keys = normal(device, query_count, dim, dtype=HALF), normal(device, key_count, dim, dtype=HALF)
    squares = keys.to(FLOAT).square().sum(1)
    tiles_n = key_count // 128
    flawed_out, edited_out = (torch.empty((tiles_n, query_count), device=device) for _ in range(2))
    grid = (query_count // 128 * tiles_n,)

    def flawed() -> Result:
        nearest_key_flawed[grid](
            queries, keys, squares, flawed_out, query_count, key_count, dim, 128, 64, num_warps=8, num_stages=4
        )
        return flawed_out

    def edited() -> Result:
        nearest_key_edited[grid](
            queries, keys, squares, edited_out, query_count, key_count, dim, 128, 64, num_warps=8, num_stages=4
        )
        return edited_out

    return flawed, edited


def diffusion(device: str, small: bool) -> Pair:
    depth, size, rows, columns = (3, 256, 64, 128) if small else (8, 4096, 8, 256)
    x = normal(device, depth, size, size)
    flawed_out, edited_out = (torch.empty_like(x) for _ in range(2))
    grid = (depth * (size // rows) * (size // columns),)

    def flawed() -> Result:
        diffusion_flawed[grid](x, flawed_out, depth, size, rows, columns)
        return flawed_out

    def edited() -> Result:
        diffusion_edited[grid](x, edited_out, depth, size, rows, columns)
        return edited_out

    return flawed, edited


def late_interaction(device: str, small: bool) -> Pair:
    query_count, count, length, tokens, dim = (2, 3, 256, 64, 128) if small else (16, 256, 2048, 64, 128)
    queries = normal(device, query_count, tokens, dim, dtype=HALF)
    documents = normal(device, count, length, dim, dtype=HALF)
    flawed_out, edited_out = (torch.empty((query_count, count), device=device) for _ in range(2))
    grid = (query_count * count,)

    def flawed() -> Result:
        late_interaction_flawed[grid](queries, documents, flawed_out, query_count, count, length, tokens, dim, 128)
        return flawed_out

    def edited() -> Result:
        late_interaction_edited[grid](queries, documents, edited_out, query_count, count, length, tokens, dim, 128)
        return edited_out

    return flawed, edited


CASES = by_name(
    Case("nearest-key", FLAW, nearest_key, KEYWORDS),
    Case("diffusion", FLAW, diffusion, KEYWORDS),
    Case("late-interaction", FLAW, late_interaction, KEYWORDS),
)

"""Kernels, each as it is and with one edit that a slope foretells.

    python edits.py NAME [--edited] [--launches N]

``exponentials``: two of them for each element, or one. ``reduction``: a sum over a tile in each iteration, or one
behind the loop. ``stages``: a matmul with two stages, or three. ``epilogue``: a result that goes through logarithms, or
as it is. ``hoisted``: a row of scales that is loaded in each iteration, or before the loop. ``producer``: the slower
side of a ring spins for less.
"""

import argparse
from collections.abc import Callable

import known_slack
import torch
import triton
import triton.language as tl


@triton.jit
def exponentials_kernel(x_ptr, out_ptr, tiles, BLOCK: tl.constexpr, EDITED: tl.constexpr):
    place = tl.program_id(0) * tiles * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tile in range(tiles):
        x = tl.load(x_ptr + place + tile * BLOCK)
        weight = tl.exp2(x)
        if not EDITED:
            weight = tl.exp2(weight - 1.0)
        total = total * 0.5 + weight
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def reduction_kernel(x_ptr, out_ptr, tiles, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EDITED: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    place = tl.program_id(0) * tiles * ROWS * COLUMNS + rows[:, None] * COLUMNS + columns[None, :]
    total = tl.zeros((ROWS,), tl.float32)
    whole = tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile in range(tiles):
        x = tl.load(x_ptr + place + tile * ROWS * COLUMNS)
        if EDITED:
            whole += x
        else:
            total += tl.sum(x, axis=1)
    if EDITED:
        total = tl.sum(whole, axis=1)
    tl.store(out_ptr + tl.program_id(0) * ROWS + rows, total)


@triton.jit
def stages_kernel(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = N // BN
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BK
        b_ptrs += BK * N
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], acc.to(tl.float16))


@triton.jit
def epilogue_kernel(x_ptr, out_ptr, tiles, BLOCK: tl.constexpr, EDITED: tl.constexpr):
    place = tl.program_id(0) * tiles * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tile in range(tiles):
        total += tl.load(x_ptr + place + tile * BLOCK)
    if not EDITED:
        for _ in tl.static_range(6):
            total = tl.log2(tl.exp2(total * 0.001) + 1.0)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def hoisted_kernel(x_ptr, scale_ptr, out_ptr, tiles, BLOCK: tl.constexpr, EDITED: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    place = tl.program_id(0) * tiles * BLOCK + offsets
    total = tl.zeros((BLOCK,), tl.float32)
    scale = tl.load(scale_ptr + offsets)
    for tile in range(tiles):
        x = tl.load(x_ptr + place + tile * BLOCK)
        if not EDITED:
            scale = tl.load(scale_ptr + offsets, volatile=True)
        total += tl.exp2(x * scale)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + offsets, total)


TILES, BLOCK = 64, 1024


def _ctas() -> int:
    return 4 * torch.cuda.get_device_properties(0).multi_processor_count


def exponentials(edited: bool) -> Callable[[], None]:
    x = torch.randn(_ctas(), TILES, BLOCK, device="cuda")
    out = torch.empty(_ctas(), BLOCK, device="cuda")
    return lambda: exponentials_kernel[(_ctas(),)](x, out, TILES, BLOCK, edited)


def reduction(edited: bool) -> Callable[[], None]:
    x = torch.randn(_ctas(), TILES, 32, 64, device="cuda")
    out = torch.empty(_ctas(), 32, device="cuda")
    return lambda: reduction_kernel[(_ctas(),)](x, out, TILES, 32, 64, edited)


def stages(edited: bool) -> Callable[[], None]:
    m, n, k = 2048, 2048, 4096
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    c = torch.empty(m, n, device="cuda", dtype=torch.float16)
    count = 3 if edited else 2
    return lambda: stages_kernel[(m // 128 * (n // 128),)](a, b, c, n, k, 128, 128, 32, num_stages=count, num_warps=8)


def epilogue(edited: bool) -> Callable[[], None]:
    tiles = 8
    x = torch.rand(_ctas(), tiles, BLOCK, device="cuda")
    out = torch.empty(_ctas(), BLOCK, device="cuda")
    return lambda: epilogue_kernel[(_ctas(),)](x, out, tiles, BLOCK, edited)


def hoisted(edited: bool) -> Callable[[], None]:
    x = torch.rand(_ctas(), TILES, BLOCK, device="cuda")
    scale, out = torch.rand(BLOCK, device="cuda"), torch.empty(_ctas(), BLOCK, device="cuda")
    return lambda: hoisted_kernel[(_ctas(),)](x, scale, out, TILES, BLOCK, edited)


def producer(edited: bool) -> Callable[[], None]:
    ctas = _ctas() // 4
    out = torch.zeros(ctas, 2, device="cuda", dtype=torch.int32)
    side = 2800 if edited else 3000
    return lambda: known_slack.ring_kernel[(ctas,)](out, side, 2000, 200, known_slack.SLOTS, num_warps=4)


EDITS = {one.__name__: one for one in (exponentials, reduction, stages, epilogue, hoisted, producer)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=EDITS)
    parser.add_argument("--edited", action="store_true")
    parser.add_argument("--launches", type=int, default=20)
    options = parser.parse_args()
    launch = EDITS[options.name](options.edited)
    for _ in range(options.launches):
        launch()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

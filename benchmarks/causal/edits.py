"""Kernels, each as it is and with one edit that a slope foretells.

    python edits.py NAME [--edited] [--launches N]

``exponentials``: two of them for each element, or one. ``reduction``: a sum over a tile in each iteration, or one
behind the loop. ``stages``: a matmul with two stages, or three. ``epilogue``: a result that goes through logarithms, or
as it is. ``hoisted``: a row of scales that is loaded in each iteration, or before the loop. ``producer``: the slower
side of a ring spins for less. What gets shorter is marked as ``work``, where a selector does not find it.
"""

import argparse
from collections.abc import Callable

import known_slack
import torch
import triton
import triton.language as tl


@triton.jit
def exponentials_kernel(x_ptr, out_ptr, rounds, BLOCK: tl.constexpr, EDITED: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(rounds):
        # kprof: begin work
        weight = tl.exp2(x - total)
        if not EDITED:
            weight = tl.exp2(weight - 1.0)
        # kprof: end work
        total = total * 0.5 + weight * 0.25
    tl.store(out_ptr + place, total)


@triton.jit
def reduction_kernel(x_ptr, out_ptr, rounds, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EDITED: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + tl.program_id(0) * ROWS * COLUMNS + rows[:, None] * COLUMNS + columns[None, :])
    total = tl.zeros((ROWS,), tl.float32)
    whole = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(rounds):
        # kprof: begin work
        if EDITED:
            whole = whole * 0.5 + x
            x = x * 0.999 + whole * 0.001
        else:
            total = total * 0.5 + tl.sum(x, axis=1)
            x = x * 0.999 + total[:, None] * 0.001
        # kprof: end work
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
    # kprof: begin work
    if not EDITED:
        for _ in tl.static_range(12):
            total = tl.log2(tl.exp2(total * 0.001) + 1.0)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), total)
    # kprof: end work


@triton.jit
def hoisted_kernel(x_ptr, scale_ptr, out_ptr, rounds, BLOCK: tl.constexpr, EDITED: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place)
    scale = tl.load(scale_ptr + place)
    for _ in range(rounds):
        # kprof: begin work
        if not EDITED:
            # Of the last round's result, and from L2: it cannot be loaded ahead.
            scale = tl.load(scale_ptr + place + (x > 1e30).to(tl.int32), cache_modifier=".cg")
        x = tl.log2(x * scale + 2.0)
        # kprof: end work
    tl.store(out_ptr + place, x)


ROUNDS, BLOCK = 400, 1024


def _sms() -> int:
    return torch.cuda.get_device_properties(0).multi_processor_count


def exponentials(edited: bool) -> Callable[[], None]:
    x, out = torch.randn(_sms(), BLOCK, device="cuda"), torch.empty(_sms(), BLOCK, device="cuda")
    return lambda: exponentials_kernel[(_sms(),)](x, out, ROUNDS, BLOCK, edited)


def reduction(edited: bool) -> Callable[[], None]:
    x, out = torch.randn(_sms(), 32, 64, device="cuda"), torch.empty(_sms(), 32, device="cuda")
    return lambda: reduction_kernel[(_sms(),)](x, out, ROUNDS, 32, 64, edited)


def stages(edited: bool) -> Callable[[], None]:
    m, n, k = 2048, 2048, 4096
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    c = torch.empty(m, n, device="cuda", dtype=torch.float16)
    count = 3 if edited else 2
    return lambda: stages_kernel[(m // 128 * (n // 128),)](a, b, c, n, k, 128, 128, 32, num_stages=count, num_warps=8)


def epilogue(edited: bool) -> Callable[[], None]:
    tiles = 8
    x, out = torch.rand(_sms(), tiles, BLOCK, device="cuda"), torch.empty(_sms(), BLOCK, device="cuda")
    return lambda: epilogue_kernel[(_sms(),)](x, out, tiles, BLOCK, edited)


def hoisted(edited: bool) -> Callable[[], None]:
    x, out = torch.rand(_sms(), BLOCK, device="cuda"), torch.empty(_sms(), BLOCK, device="cuda")
    scale = torch.rand(_sms() * BLOCK + 1, device="cuda")
    return lambda: hoisted_kernel[(_sms(),)](x, scale, out, ROUNDS, BLOCK, edited)


def producer(edited: bool) -> Callable[[], None]:
    out = torch.zeros(_sms(), 2, device="cuda", dtype=torch.int32)
    side = 2800 if edited else 3000
    return lambda: known_slack.ring_kernel[(_sms(),)](out, side, 2000, 200, known_slack.SLOTS, num_warps=4)


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

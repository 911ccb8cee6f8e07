"""CTAs that wait for each other's flags, and store who set these: a grid barrier, and stream-k's partial sums.

    python flags.py TRUTH.json [--late-cta CTA] [--late-us US]

The truth has a list for each kernel and launch: for the barrier, the CTA that came last in each round; for stream-k,
the CTA whose partial sum each wait was for, by the CTA that waits.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from passing_time import pass_time

ROUNDS = 4
CTAS = 64
LAUNCHES = 22


@triton.jit
def acquired(flag):
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l", [flag], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def barrier_kernel(counter, last_ptr, out, late_ns, late_cta, ROUNDS: tl.constexpr):
    """As in cooperative groups: the first CTA adds what completes the sum to the highest bit, which then changes."""
    cta, ctas = tl.program_id(0), tl.num_programs(0)
    offsets = tl.arange(0, 128)
    for number in range(ROUNDS):
        if late_ns > 0 and (cta + number) % ctas == late_cta:
            pass_time(late_ns.to(tl.int64))
        tl.store(out + cta * 128 + offsets, number)
        tl.debug_barrier()
        added = tl.where(cta == 0, -2147483648 - (ctas - 1), 1).to(tl.int32)
        old = tl.atomic_add(counter, added, sem="release", scope="gpu")
        while ((acquired(counter) ^ old) & -2147483648) == 0:
            pass
        tl.debug_barrier()
        tl.store(last_ptr + number * ctas + cta, (((old + added) & 2147483647) == 0).to(tl.int32))


@triton.jit
def stream_k_kernel(
    a, b, out, partial, flags, who, seen, m, n, k, number, late_ns, late_cta,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Each CTA has an equal part of all steps. Who begins a tile adds what later CTAs have of it."""
    cta, ctas = tl.program_id(0), tl.num_programs(0)
    steps_of_tile = k // DEPTH
    tiles_of_row = n // COLUMNS
    steps = m // ROWS * tiles_of_row * steps_of_tile
    begin = cta * steps // ctas
    end = (cta + 1) * steps // ctas
    waits = 0
    step = begin
    while step < end:
        tile = step // steps_of_tile
        last = tl.minimum(end, (tile + 1) * steps_of_tile)
        rows = tile // tiles_of_row * ROWS + tl.arange(0, ROWS)
        columns = tile % tiles_of_row * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for at in range(step - tile * steps_of_tile, last - tile * steps_of_tile):
            depth = at * DEPTH + tl.arange(0, DEPTH)
            total = tl.dot(tl.load(a + rows[:, None] * k + depth[None, :]),
                           tl.load(b + depth[:, None] * n + columns[None, :]), total)  # fmt: skip
        places = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        if step == tile * steps_of_tile:
            other = cta + 1
            have = last
            while have < (tile + 1) * steps_of_tile:
                while tl.atomic_add(flags + other, 0, sem="acquire", scope="gpu") != number:
                    pass
                tl.debug_barrier()
                total += tl.load(partial + other * ROWS * COLUMNS + places, volatile=True)
                tl.store(seen + cta * 16 + waits, tl.load(who + other, volatile=True))
                waits += 1
                other += 1
                have = tl.minimum((other + 1) * steps // ctas, (tile + 1) * steps_of_tile)
            tl.store(out + rows[:, None] * n + columns[None, :], total.to(tl.float16))
        else:
            if late_ns > 0 and cta == late_cta:
                pass_time(late_ns.to(tl.int64))
            tl.store(partial + cta * ROWS * COLUMNS + places, total)
            tl.store(who + cta, cta)
            tl.debug_barrier()
            tl.atomic_xchg(flags + cta, number, sem="release", scope="gpu")
        step = last


def barrier(late_ns: int, late_cta: int) -> list[list[int]]:
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.empty(CTAS * 128, dtype=torch.int32, device="cuda")
    truth = []
    for _ in range(LAUNCHES):
        last = torch.full((ROUNDS, CTAS), -1, dtype=torch.int32, device="cuda")
        barrier_kernel[(CTAS,)](counter, last, out, late_ns, late_cta, ROUNDS)
        if (last.sum(1) != 1).any():
            raise SystemExit("a round had not exactly one last CTA")
        truth.append(last.argmax(1).tolist())
    return truth


def stream_k(late_ns: int, late_cta: int) -> list[list[list[int]]]:
    m, n, k = 1280, 1280, 2048
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n)))
    out = torch.empty((m, n), device="cuda", dtype=torch.float16)
    partial = torch.empty(CTAS * 128 * 128, device="cuda")
    flags, who = (torch.zeros(CTAS, dtype=torch.int32, device="cuda") for _ in range(2))
    truth = []
    for number in range(1, LAUNCHES + 1):
        seen = torch.full((CTAS, 16), -1, dtype=torch.int32, device="cuda")
        stream_k_kernel[(CTAS,)](
            a, b, out, partial, flags, who, seen, m, n, k, number, late_ns, late_cta, 128, 128, 64, num_warps=8
        )
        truth.append([[cta for cta in row if cta >= 0] for row in seen.tolist()])
    if not torch.allclose(out.float(), a.float() @ b.float(), rtol=2e-2, atol=1.0):
        raise SystemExit("stream-k computes a wrong product")
    return truth


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--late-cta", type=int, default=-1)
    parser.add_argument("--late-us", type=float, default=20.0)
    arguments = parser.parse_args()
    late_ns = round(1e3 * arguments.late_us) if arguments.late_cta >= 0 else 0
    truth = {
        "barrier_kernel": barrier(late_ns, arguments.late_cta),
        "stream_k_kernel": stream_k(late_ns, arguments.late_cta),
    }
    arguments.truth.write_text(json.dumps(truth))
    return 0


if __name__ == "__main__":
    sys.exit(main())

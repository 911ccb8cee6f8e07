"""A program whose scopes last a known number of cycles: ``python spins.py OUT.npz``.

Each scope holds a spin, which reads the clock first and last; the clock is also read before and after the scope, and
twice in a row. All of it is saved: ``times`` of shape (cycles, repetitions, CTAs, 6), in that order. By itself, the
program tells with this how long a spin takes beyond its own two readings.
"""

import sys

import numpy as np
import torch
import triton
import triton.language as tl

CYCLES = (300, 3_000, 30_000, 100_000)
REPETITIONS = 12
CTAS = 132


@triton.jit
def spin(cycles):
    return tl.inline_asm_elementwise(
        """
        {
        .reg .pred again;
        .reg .u64 gone;
        mov.u64 $0, %clock64;
        spinning:
        mov.u64 $1, %clock64;
        sub.u64 gone, $1, $0;
        setp.lt.u64 again, gone, $2;
        @again bra spinning;
        }
        """,
        "=&l,=&l,l",
        [cycles],
        dtype=(tl.int64, tl.int64),
        is_pure=False,
        pack=1,
    )


@triton.jit
def clock():
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def spins(times_ptr, cycles_ptr, repetitions, COUNT: tl.constexpr):
    pid = tl.program_id(0)
    for number in range(COUNT):
        cycles = tl.load(cycles_ptr + number)
        for repetition in range(repetitions):
            place = times_ptr + 6 * ((number * repetitions + repetition) * tl.num_programs(0) + pid)
            before = clock()
            begin, end = spin(cycles)  # kprof: spin
            after = clock()
            idle = clock()
            idle_again = clock()
            tl.store(place, begin)
            tl.store(place + 1, end)
            tl.store(place + 2, before)
            tl.store(place + 3, after)
            tl.store(place + 4, idle)
            tl.store(place + 5, idle_again)


def main() -> None:
    cycles = torch.tensor(CYCLES, dtype=torch.int64, device="cuda")
    times = torch.zeros((len(CYCLES), REPETITIONS, CTAS, 6), dtype=torch.int64, device="cuda")
    spins[(CTAS,)](times, cycles, REPETITIONS, len(CYCLES), num_warps=4)
    torch.cuda.synchronize()
    np.savez(sys.argv[1], times=times.cpu().numpy())


if __name__ == "__main__":
    main()

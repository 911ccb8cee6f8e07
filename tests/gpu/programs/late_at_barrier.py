"""CTAs that meet at a barrier in each round; one of them begins each round later by a known time."""

import argparse

import torch
import triton
import triton.language as tl
from passing_time import pass_time


@triton.jit
def meet(counter_ptr, out_ptr, ctas, late, ns, ROUNDS: tl.constexpr):
    program = tl.program_id(0)
    for number in range(ROUNDS):
        if program == late:
            pass_time(ns.to(tl.int64))
        tl.debug_barrier()
        tl.atomic_add(counter_ptr, 1, sem="release")
        while tl.atomic_add(counter_ptr, 0, sem="acquire") < (number + 1) * ctas:
            pass
    tl.store(out_ptr + program, tl.load(counter_ptr, volatile=True))


CTAS, LATE = 64, 37
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--ns", type=int, default=20_000, help="how much later")
parser.add_argument("--rounds", type=int, default=8)
arguments = parser.parse_args()

for _ in range(5):
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(CTAS, dtype=torch.int32, device="cuda")
    meet[(CTAS,)](counter, out, CTAS, LATE, arguments.ns, arguments.rounds)
torch.cuda.synchronize()
assert (out == CTAS * arguments.rounds).all()
print("met")

"""Times one kernel of three lengths by CUDA events of its own, in three ways; prints each median in microseconds.

``single``: an event before and behind each launch. ``batch``: around 20 launches. ``do_bench``: Triton's own.
"""

import statistics

import results
import torch
import triton
from kernels import BLOCK, decay_kernel, launch

CTAS = 64
STEPS = (20, 2_000, 20_000)
REPETITIONS, BATCH = 60, 20


def timed(work, launches):
    """Microseconds for each launch."""
    found = []
    for _ in range(REPETITIONS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(launches):
            work()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * start.elapsed_time(end) / launches)
    return statistics.median(found)


def main():
    arguments = results.parser(__doc__).parse_args()
    torch.manual_seed(0)
    x = torch.randn(CTAS * BLOCK, device="cuda")
    out = torch.empty_like(x)
    for steps in STEPS:

        def work(steps=steps):
            launch(decay_kernel, x, out, steps)

        work()
        torch.cuda.synchronize()
        print(f"single {steps} {timed(work, 1):.2f}")
        print(f"batch {steps} {timed(work, BATCH):.2f}")
        print(f"do_bench {steps} {1e3 * triton.testing.do_bench(work, return_mode='median'):.2f}")
    results.save(arguments.save, out)


if __name__ == "__main__":
    main()

"""How deep a program may recurse and still launch a kernel: the same with us, whatever we have on the stack."""

import sys

from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import scale, tuned

X = torch.arange(1, 17, dtype=torch.float32)
OUT = torch.zeros_like(X)


def launch(kernel, depth):
    return launch(kernel, depth - 1) if depth else kernel[(16,)](X, OUT, 2)


def deepest(kernel):
    """By bisection."""
    reached, failed = 0, sys.getrecursionlimit()
    while failed - reached > 1:
        depth = (reached + failed) // 2
        try:
            launch(kernel, depth)
            reached = depth
        except RecursionError:
            failed = depth
    return reached


def main():
    for kernel in (scale, tuned):
        kernel[(16,)](X, OUT, 2)
    before = len(gpu.ran)
    sys.setrecursionlimit(180)
    # While the first launches are timed, and when no more are.
    found = [deepest(kernel) for kernel in (scale, tuned)]
    for _ in range(60):
        launch(scale, 0)
    found.append(deepest(scale))
    sys.setrecursionlimit(1000)
    print(found, len(gpu.ran) - before, OUT.tolist())


main()

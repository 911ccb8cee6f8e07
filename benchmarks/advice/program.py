"""Launches cases, as the program that the profiler runs.

python program.py CASE... [--edited] [--launches N]

Several cases are each launched for about as long, so that none is a small part of the program's time.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from case import Launch
from cases import CASES

S_OF_CASE = 0.02
MAX_LAUNCHES = 500


def main() -> None:
    """Launch the cases that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", choices=CASES, nargs="+", metavar="CASE")
    parser.add_argument("--edited", action="store_true", help="launch the edited kernels instead of the flawed ones")
    parser.add_argument("--launches", type=int, default=5, help="least number of launches of a case")
    options = parser.parse_args()
    for name in options.cases:
        torch.manual_seed(0)
        flawed, edited = CASES[name].prepare("cuda", False)
        launch = edited if options.edited else flawed
        launch()
        for _ in range((options.launches if len(options.cases) == 1 else launches_of(launch, options.launches)) - 1):
            launch()
        torch.cuda.synchronize()
        del flawed, edited, launch
        torch.cuda.empty_cache()


def launches_of(launch: Launch, least: int) -> int:
    """Return how many launches take as long as each case is to take, by the host's clock: no launch is saved of a
    program that times itself with CUDA events."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    launch()
    torch.cuda.synchronize()
    return min(max(math.ceil(S_OF_CASE / (time.perf_counter() - begun)), least), MAX_LAUNCHES)


if __name__ == "__main__":
    main()

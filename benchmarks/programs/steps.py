"""The loop of the programs in this folder: some steps, of which Nsight Compute may see the last alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that all programs have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=12, help="how many (%(default)s)")
    parser.add_argument("--mark-last", action="store_true", help="start CUDA's profiler for the last step")
    return parser


def run(step: Callable[[], None], arguments: argparse.Namespace) -> None:
    """Run the steps."""
    for number in range(arguments.steps):
        is_marked = arguments.mark_last and number == arguments.steps - 1
        torch.cuda.synchronize()
        if is_marked:
            torch.cuda.cudart().cudaProfilerStart()
        step()
        torch.cuda.synchronize()
        if is_marked:
            torch.cuda.cudart().cudaProfilerStop()

"""Launches one case, as the program that the profiler runs.

python program.py CASE [--edited] [--launches N]
"""

from __future__ import annotations

import argparse

import torch
from cases import CASES


def main() -> None:
    """Launch the case that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--edited", action="store_true", help="launch the edited kernel instead of the flawed one")
    parser.add_argument("--launches", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    flawed, edited = CASES[options.case].prepare("cuda", False)
    launch = edited if options.edited else flawed
    for _ in range(options.launches):
        launch()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()

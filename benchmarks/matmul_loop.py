"""Launches one matmul many times, for benchmarks/decoding.py.

    python matmul_loop.py OUT.json --launches N [--proton FILE]

It has 64 iterations. With --proton, stock Proton profiles the launches; OUT.json then says what its finalize takes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from timed_example import load_example


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--launches", type=int, required=True)
    parser.add_argument("--proton", type=Path)
    arguments = parser.parse_args()

    example = load_example("matmul")
    torch.manual_seed(0)
    half = {"device": "cuda", "dtype": torch.float16}
    a, b = torch.randn((2048, 4096), **half), torch.randn((4096, 2048), **half)
    figures: dict[str, float] = {}
    if arguments.proton:
        import triton.profiler as proton

        proton.start(str(arguments.proton), backend="instrumentation", data="trace")
    for _ in range(arguments.launches):
        example.matmul(a, b)
    torch.cuda.synchronize()
    if arguments.proton:
        begin = time.perf_counter()
        proton.finalize()
        figures["seconds"] = time.perf_counter() - begin
        figures["bytes"] = arguments.proton.with_suffix(".chrome_trace").stat().st_size
    arguments.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()

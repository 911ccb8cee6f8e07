"""Times one of the examples in this process and writes the figures to a JSON file, for benchmarks/examples.py.

    python timed_example.py EXAMPLE OUT.json [--launches N] [--graph] [--proton FILE]

``host_us`` is the median time that one launch keeps the host busy. ``kernel_us`` (with --graph) is the median time of
one launch within a replayed CUDA graph, so that no host stands between two of them. With --proton the launches are
profiled by stock Proton, and ``finalize_s`` is what its finalize takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
GRAPH_LAUNCHES = 50
GRAPH_REPLAYS = 40


def load_example(name: str) -> ModuleType:
    path = EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"no example {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_launch(name: str) -> Callable[[], Any]:
    """A call that launches the example's kernel once, at the example's default size."""
    example = load_example(name)
    torch.manual_seed(0)
    half = {"device": "cuda", "dtype": torch.float16}
    match name:
        case "vector_add":
            x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
            return lambda: example.vector_add(x, y)
        case "matmul":
            a, b = torch.randn((2048, 1024), **half), torch.randn((1024, 2048), **half)
            return lambda: example.matmul(a, b)
        case "attention":
            q, k, v = (torch.randn((2, 8, 1024, 64), **half) for _ in range(3))
            return lambda: example.attention(q, k, v, False)
    raise SystemExit(f"no figures for {name}")


def host_us(launch: Callable[[], Any], count: int) -> float:
    times = []
    for _ in range(count):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        launch()
        times.append(time.perf_counter_ns() - begin)
    torch.cuda.synchronize()
    return statistics.median(times) / 1e3


def kernel_us(launch: Callable[[], Any]) -> float:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launch()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(GRAPH_LAUNCHES):
                launch()
        times = []
        for _ in range(GRAPH_REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / GRAPH_LAUNCHES)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("example")
    parser.add_argument("out", type=Path)
    parser.add_argument("--launches", type=int, default=50)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--proton", type=Path)
    arguments = parser.parse_args()

    figures: dict[str, float] = {}
    launch = one_launch(arguments.example)
    if arguments.proton:
        import triton.profiler as proton

        proton.start(str(arguments.proton), backend="instrumentation", data="trace")
    # The first compiles, the next give the allocators their blocks.
    for _ in range(3):
        launch()
    figures["host_us"] = host_us(launch, arguments.launches)
    if arguments.graph:
        figures["kernel_us"] = kernel_us(launch)
    if arguments.proton:
        begin = time.perf_counter()
        proton.finalize()
        figures["finalize_s"] = time.perf_counter() - begin
    arguments.out.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()

"""Does following the advice lead to a good configuration? A tuner without a model, on three badly configured kernels.

    python tuning.py [--kernels NAME,...] [--json OUT.json]

The tuner records one launch, takes the findings in their order, makes the change that the first of them advises (and
that was not tried), and keeps it if the kernel is faster by 1 % at least. It stops where no finding advises a change.
It then has to be within 10 % of the best configuration, which an exhaustive search finds. All times are without
records, from CUDA graphs that take turns; the ratio's interval is of 95 %, over the turns. The exit code is 1 if a
kernel is not that near. Needs a GPU and the package.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import triton
from timed_example import load_example
from triton.runtime.errors import OutOfResources

import kprof_inject
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.results import Results

Configuration = Mapping[str, int]
Launch = Callable[[], object]

MOST_BEHIND = 0.10
LEAST_GAIN = 0.01
# No more than the rules need: iterations of these kernels take as long as ten records.
RECORDS = ("func", "loop")
COPIES = "op(ttg.async_wait)"
ROOM_FOR_ALL = kprof_inject.Mode(buffer_bytes=8192)
GRAPH_LAUNCHES = 20
TURNS = 40


@dataclass(frozen=True)
class Kernel:
    """``values`` are those that each part of a configuration may have, ``begin`` is the bad one, and ``launcher``
    makes what launches the kernel with one."""

    values: Mapping[str, Sequence[int]]
    begin: Configuration
    launcher: Callable[[Configuration], Launch]

    def all(self) -> list[Configuration]:
        return [dict(zip(self.values, each, strict=True)) for each in product(*self.values.values())]

    def has(self, configuration: Configuration) -> bool:
        return configuration.keys() == self.values.keys() and all(
            configuration[name] in values for name, values in self.values.items()
        )


def matmul(m: int, n: int, k: int) -> Callable[[Configuration], Launch]:
    def launcher(config: Configuration) -> Launch:
        kernel = load_example("matmul").matmul_kernel
        a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((m, k), (k, n)))
        c = torch.empty((m, n), device="cuda", dtype=torch.float16)
        tile = {"BLOCK_M": config.get("BLOCK_M", 128), "BLOCK_N": config.get("BLOCK_N", 128), "BLOCK_K": 64}
        grid = (triton.cdiv(m, tile["BLOCK_M"]) * triton.cdiv(n, tile["BLOCK_N"]),)
        options = {"num_warps": config.get("num_warps", 4), "num_stages": config["num_stages"]}
        strides = (*a.stride(), *b.stride(), *c.stride())
        return lambda: kernel[grid](a, b, c, m, n, k, *strides, **tile, GROUP_M=8, EVEN_K=True, **options)

    return launcher


def attention(config: Configuration) -> Launch:
    kernel = load_example("attention").attention_kernel
    heads, rows, dim = 32, 2048, 64
    q, k, v = (torch.randn((heads, rows, dim), device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    grid = (rows // config["BLOCK_M"], heads)
    constants = {"CAUSAL": False, "BLOCK_M": config["BLOCK_M"], "BLOCK_N": config["BLOCK_N"], "HEAD_DIM": dim}
    options = {"num_warps": 4, "num_stages": config["num_stages"]}
    return lambda: kernel[grid](q, k, v, out, *q.stride()[:2], rows, dim**-0.5, **constants, **options)


KERNELS = {
    "deep matmul": Kernel(
        {"num_stages": (1, 2, 3, 4, 5, 6), "num_warps": (4, 8)},
        {"num_stages": 1, "num_warps": 4},
        matmul(2048, 2048, 4096),
    ),
    "attention": Kernel(
        {"num_stages": (1, 2, 3, 4), "BLOCK_M": (64, 128), "BLOCK_N": (32, 64, 128)},
        {"num_stages": 1, "BLOCK_M": 128, "BLOCK_N": 64},
        attention,
    ),
    "small matmul": Kernel(
        {"num_stages": (1, 2, 3, 4, 5), "BLOCK_M": (64, 128), "BLOCK_N": (64, 128, 256)},
        {"num_stages": 2, "BLOCK_M": 128, "BLOCK_N": 256},
        matmul(512, 1024, 4096),
    ),
}


def more_stages(config: Configuration, more: int) -> Configuration:
    return {**config, "num_stages": config["num_stages"] + more}


def larger_side(config: Configuration) -> str:
    return max(("BLOCK_M", "BLOCK_N"), key=lambda side: config.get(side, 0))


def smaller_tile(config: Configuration, _: Finding) -> Configuration:
    return {**config, larger_side(config): config.get(larger_side(config), 0) // 2}


# What the advice of each rule means to one who can change a configuration alone.
CHANGES: Mapping[str, Callable[[Configuration, Finding], Configuration]] = {
    "not-pipelined": lambda config, _: more_stages(config, max(1, 3 - config["num_stages"])),
    "too-few-stages": lambda config, found: more_stages(config, int(found.figures["more_stages"])),
    "low-fill": smaller_tile,
    "tail": smaller_tile,
    "uneven-ctas": smaller_tile,
}


@dataclass(frozen=True)
class Step:
    rule: str
    configuration: Configuration
    microseconds: float
    kept: bool


class Times:
    """Of the configurations of a kernel: each is built once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._graphs: dict[str, torch.cuda.CUDAGraph | None] = {}

    def fits(self, configuration: Configuration) -> bool:
        return self._kernel.has(configuration) and self._graph(configuration) is not None

    def of(self, configurations: Sequence[Configuration]) -> list[list[float]]:
        """Microseconds of one launch of each, by turns."""
        graphs = [graph for one in configurations if (graph := self._graph(one)) is not None]
        turns = [[graph_us(graph) for graph in graphs] for _ in range(TURNS)]
        return [list(times) for times in zip(*turns, strict=True)]

    def _graph(self, configuration: Configuration) -> torch.cuda.CUDAGraph | None:
        """None if the device has too little shared memory for it."""
        key = str(sorted(configuration.items()))
        if key not in self._graphs:
            launch = self._kernel.launcher(configuration)
            try:
                launch()
                self._graphs[key] = graph_of(launch)
            except OutOfResources:
                self._graphs[key] = None
        return self._graphs[key]


def graph_of(launch: Launch) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_LAUNCHES):
            launch()
    return graph


def graph_us(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / GRAPH_LAUNCHES


def recorded(launch: Launch, selectors: Sequence[str]) -> Results | None:
    """None where a selector finds nothing."""
    with kprof_inject.profile(at=selectors, launches="last", mode=ROOM_FOR_ALL) as profile:
        for _ in range(3):
            launch()
    return profile if profile.timelines else None


def findings_of(launch: Launch) -> Sequence[Finding]:
    """In the order of the report."""
    profile = recorded(launch, [*RECORDS, COPIES]) or recorded(launch, RECORDS)
    if profile is None:
        raise SystemExit("nothing was recorded")
    (answer,) = profile.answers()
    print(f"    limit: {answer.limit.sentence}; {answer.trust.level.value} ({answer.trust.figure})", flush=True)
    return answer.findings


def tune(kernel: Kernel, times: Times) -> list[Step]:
    """The steps, the first of which is where it begins."""
    best = kernel.begin
    tried = [best]
    steps = [Step("begin", best, statistics.median(*times.of([best])), True)]
    while True:
        advised = findings_of(kernel.launcher(best))
        changed = [(found, CHANGES[found.rule](best, found)) for found in advised if found.rule in CHANGES]
        choices = [one for one in changed if one[1] not in tried and times.fits(one[1])]
        if not choices:
            rules = ", ".join(found.rule for found in advised)
            print(f"    nothing more to change: {rules or 'no findings'}", flush=True)
            return steps
        found, next_one = choices[0]
        print(f"    {found.rule}: {found.text}; {found.advice}", flush=True)
        tried.append(next_one)
        before, after = map(statistics.median, times.of([best, next_one]))
        kept = after < before * (1 - LEAST_GAIN)
        steps.append(Step(found.rule, next_one, after, kept))
        print(f"    {next_one}: {before:.1f} to {after:.1f} µs{'' if kept else ', not kept'}", flush=True)
        best = next_one if kept else best


def compared(name: str, kernel: Kernel) -> dict[str, Any]:
    print(f"{name}: begins with {kernel.begin}", flush=True)
    times = Times(kernel)
    steps = tune(kernel, times)
    ended = [step for step in steps if step.kept][-1].configuration
    fitting = [config for config in kernel.all() if times.fits(config)]
    medians = [statistics.median(one) for one in times.of(fitting)]
    best = fitting[medians.index(min(medians))]
    begun_us, ended_us, best_us = times.of([kernel.begin, ended, best])
    ratios = [one / other for one, other in zip(ended_us, best_us, strict=True)]
    ratio, error = statistics.mean(ratios), 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
    print(
        f"{name}: {statistics.median(begun_us):.1f} µs at first, {statistics.median(ended_us):.1f} µs after "
        f"{len(steps) - 1} changes tried {ended}; best of {len(fitting)}: {statistics.median(best_us):.1f} µs {best}; "
        f"ratio {ratio:.3f} ± {error:.3f}",
        flush=True,
    )
    return {
        "kernel": name,
        "steps": [vars(step) for step in steps],
        "ended": ended,
        "best": best,
        "tried": len(fitting),
        "begun_us": statistics.median(begun_us),
        "ended_us": statistics.median(ended_us),
        "best_us": statistics.median(best_us),
        "ratio": ratio,
        "ratio_error": error,
        "all": [{**config, "us": time} for config, time in zip(fitting, medians, strict=True)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default=",".join(KERNELS), help="of %(default)s")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    found = []
    for name in options.kernels.split(","):
        found.append(compared(name, KERNELS[name]))
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
    sys.exit(any(one["ratio"] > 1 + MOST_BEHIND for one in found))


if __name__ == "__main__":
    main()

"""What records cost a kernel: replays of it with and without them, in turn, in one process. Needs a GPU.

    python benchmarks/overhead.py [--kernel NAME]... [--rounds N] [--json FILE]

Each form of a kernel is compiled from the same TTGIR and launched back to back in a CUDA graph of its own. A round
replays each graph once, in an order of its own. The figures are the median of the rounds' ratios to the form without
records, with the interval that holds the median of resampled rounds in 19 of 20 cases, and the ratio of the minima.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import overhead_kernels
import torch
import triton
from msgspec.structs import replace
from timed_example import load_example
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import _allocation

from kprof_inject.capture.cta_samples import EVERY_CTA, CtaChoice
from kprof_inject.capture.mode import AUTO_BUFFER, Mode
from kprof_inject.capture.ring_sizes import auto_buffer, mode_of_kernel
from kprof_inject.insertion import insert_module, view_of
from kprof_inject.runtime.compiling.compiler_messages import without_false_alarms
from kprof_inject.runtime.compiling.instrumentation import instrumented, keeping_body, scope_names, shared_bytes_of
from kprof_inject.runtime.compiling.two_bodies import FunctionRecord
from kprof_inject.runtime.launch.launcher import SampleBuffer
from kprof_inject.select.plan import max_records
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Style

EVERYTHING = ("func", "loop", "iter")
RESAMPLES = 1_000
# So long is a graph, at least: what stands between two of them is then of no account.
GRAPH_US = 2_000


@dataclass(frozen=True)
class Form:
    """How a kernel is recorded; without selectors, not at all."""

    selectors: Sequence[str] = ()
    iter_records: str = "one"
    mode: Mode = field(default_factory=lambda: Mode(AUTO_BUFFER))
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    """What it is compiled in."""
    ctas: CtaChoice = EVERY_CTA


FORMS = {
    "plain": Form(),
    "plain again": Form(),
    "func": Form(("func",)),
    "two": Form(EVERYTHING, "two"),
    "one": Form(EVERYTHING),
    "one, 32 bits": Form(EVERYTHING, mode=Mode(AUTO_BUFFER, clock_bits=32)),
    "one, shared": Form(EVERYTHING, mode=Mode("shared")),
    "one, global": Form(EVERYTHING, mode=Mode("global")),
    "default": Form(EVERYTHING, ctas=CtaChoice()),
    "one of 8": Form(EVERYTHING, ctas=CtaChoice(3)),
}


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def matmul(m: int, n: int, k: int, block_n: int, num_warps: int) -> Callable[[], Any]:
    kernel = load_example("matmul").matmul_kernel
    a, b, c = half(m, k), half(k, n), half(m, n)
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, block_n),)
    blocks = {"BLOCK_M": 128, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_M": 8, "EVEN_K": True}
    return lambda: kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **blocks, num_warps=num_warps, num_stages=3
    )


def attention() -> Callable[[], Any]:
    q, k, v = (half(4, 16, 4096, 64) for _ in range(3))
    return lambda: load_example("attention").attention(q, k, v, False)


def layer_norm() -> Callable[[], Any]:
    x, weight, bias = half(4096, 8192), half(8192), half(8192)
    return lambda: load_example("layer_norm").layer_norm(x, weight, bias)


def softmax() -> Callable[[], Any]:
    x = half(4096, 4096)
    return lambda: load_example("softmax").softmax(x)


KERNELS: dict[str, Callable[[], Callable[[], Any]]] = {
    "matmul 4096": lambda: matmul(4096, 4096, 4096, 256, 8),
    "matmul 2048x2048x1024": lambda: matmul(2048, 2048, 1024, 128, 4),
    "attention 4x16x4096x64": attention,
    "layer norm": layer_norm,
    "softmax": softmax,
    **overhead_kernels.KERNELS,
}


@dataclass(frozen=True)
class Seen:
    """A launch as Triton made it."""

    grid: tuple[int, int, int]
    kernel: Any
    arguments: list[Any]
    """Those that the machine code takes."""


def seen(launch: Callable[[], Any]) -> Seen:
    calls: list[tuple[Any, ...]] = []
    kernels: list[Any] = []
    run, call = triton.runtime.JITFunction.run, CudaLauncher.__call__

    def remember_kernel(*args: Any, **kwargs: Any) -> Any:
        kernels.append(run(*args, **kwargs))
        return kernels[-1]

    def remember_call(launcher: Any, *args: Any) -> None:
        calls.append(args)
        call(launcher, *args)

    triton.runtime.JITFunction.run, CudaLauncher.__call__ = remember_kernel, remember_call
    try:
        launch()
    finally:
        triton.runtime.JITFunction.run, CudaLauncher.__call__ = run, call
    # grid, stream, function, packed metadata, launch metadata, two hooks, and then the function's own.
    arguments, signature = calls[-1][9:], kernels[-1].src.signature
    taken = [value for value, kind in zip(arguments, signature.values(), strict=True) if kind != "constexpr"]
    return Seen(calls[-1][:3], kernels[-1], taken)


def compiled(launch: Seen, form: Form, folder: Path) -> Any:
    metadata, path = launch.kernel.metadata, Path(tempfile.mkdtemp(dir=folder), "kernel.ttgir")
    text, around, body = launch.kernel.asm["ttgir"], nullcontext(), nullcontext()
    path.write_text(text)
    if form.selectors:
        view = view_of(text, "kernel.ttgir", {})
        selectors = form.selectors if "scf.for" in text else ("func",)
        done = insert_module(view, parse_selectors(selectors), Style("never", form.iter_records))
        form_mode, sample = form.mode, form.ctas.sample(launch.grid, metadata.num_ctas)
        if form_mode.buffer == AUTO_BUFFER:
            form_mode = replace(form_mode, buffer=auto_buffer(sample))
        mode = mode_of_kernel(
            form_mode,
            metadata.shared,
            metadata.num_warps,
            launch.kernel.n_regs,
            f"cuda:{metadata.target.arch}",
            max_records(view, done.plan),
        )
        path.write_text(done.text)
        if sample.shift:
            scope_ids = partial(scope_names, str(path), metadata.target)
            function = FunctionRecord.of(done.plan.table, scope_ids, mode, metadata.num_warps)
            body = keeping_body(launch.kernel.asm["ptx"], metadata.num_ctas, None, function)
        around = instrumented(metadata.target, mode, shared_bytes_of(metadata.target))
    with without_false_alarms(), triton.knobs.compilation.scope(), form.around(), around, body:
        triton.knobs.compilation.always_compile = True
        kernel = triton.compile(str(path), target=metadata.target, options={"num_warps": metadata.num_warps})
    kernel._init_handles()
    return kernel


Graph = tuple[torch.cuda.CUDAGraph, int, list[torch.Tensor]]
"""A graph, the number of its launches, and the buffer of their records."""


def launch_once(launch: Seen, kernel: Any) -> None:
    """Launch another build of a kernel, on the current stream."""
    stream, packed = torch.cuda.current_stream().cuda_stream, kernel.packed_metadata
    kernel.run(*launch.grid, stream, kernel.function, packed, None, None, None, *launch.arguments)


def graph_of(launch: Seen, kernel: Any, ctas: CtaChoice) -> Graph:
    """Return a graph of several launches, which share a buffer."""
    buffers: list[torch.Tensor] = []
    sample = ctas.sample(launch.grid, kernel.metadata.num_ctas)

    def allocate(size: int, alignment: int, stream: int | None) -> SampleBuffer:
        if not buffers:
            buffer_bytes = sample.buffer_bytes(kernel.metadata.profile_scratch_size)
            buffers.append(torch.zeros(buffer_bytes, dtype=torch.uint8, device="cuda"))
        return SampleBuffer(buffers[0], sample)

    run = partial(launch_once, launch, kernel)
    _allocation.set_profile_allocator(allocate)
    for _ in range(4):
        run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    count = max(3, math.ceil(GRAPH_US / 1e3 / begin.elapsed_time(end)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    return graph, count, buffers


def replayed_us(graph: torch.cuda.CUDAGraph, count: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / count


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    drawn = random.Random(0)
    medians = sorted(statistics.median(drawn.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[RESAMPLES // 40], medians[-RESAMPLES // 40]


def timed_in_turn(graphs: Mapping[str, Graph], rounds: int) -> dict[str, dict[str, float]]:
    """Replay graphs in turn, and compare each with "plain"."""
    times_us: dict[str, list[float]] = {name: [] for name in graphs}
    shuffled = random.Random(1)
    for number in range(rounds + 3):
        for name in shuffled.sample(list(graphs), len(graphs)):
            took_us = replayed_us(*graphs[name][:2])
            if number >= 3:  # the first warm the clock up
                times_us[name].append(took_us)
    plain = times_us["plain"]
    found = {}
    for name, times in times_us.items():
        ratios = [time / base for time, base in zip(times, plain, strict=True)]
        low, high = interval(ratios)
        found[name] = {
            "min_us": min(times),
            "median_us": statistics.median(times),
            "ratio_of_minima": min(times) / min(plain),
            "ratio": statistics.median(ratios),
            "low": low,
            "high": high,
        }
    return found


def resources(kernel: Any) -> dict[str, float]:
    return {"registers": kernel.n_regs, "spills": kernel.n_spills, "shared": kernel.metadata.shared}


def measure(launch: Callable[[], Any], forms: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        one = seen(launch)
        kernels = {name: compiled(one, FORMS[name], Path(folder)) for name in forms}
        graphs = {name: graph_of(one, kernel, FORMS[name].ctas) for name, kernel in kernels.items()}
        found = timed_in_turn(graphs, rounds)
    return {name: found[name] | resources(kernels[name]) for name in forms}


def described(values: Mapping[str, float]) -> str:
    """Return a form's figures as a line."""
    return (
        f"{values['min_us']:8.2f} µs  minima {100 * (values['ratio_of_minima'] - 1):+6.2f} %  "
        f"median {100 * (values['ratio'] - 1):+6.2f} % "
        f"[{100 * (values['low'] - 1):+.2f}, {100 * (values['high'] - 1):+.2f}]  "
        f"{values['registers']:.0f} registers, {values['spills']:.0f} spills, {values['shared']:.0f} B shared"
    )


def run(
    description: str,
    kernels: Collection[str],
    known_forms: Collection[str],
    measured: Callable[[str, Sequence[str], int], dict[str, dict[str, float]]],
    describe: Callable[[Mapping[str, float]], str] = described,
) -> None:
    """Measure the kernels and forms that the command line names; ``measured`` gets a kernel, forms and rounds."""
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument("--kernel", action="append", choices=list(kernels))
    parser.add_argument("--form", action="append", choices=list(known_forms))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    forms = ["plain", *(form for form in arguments.form or known_forms if form != "plain")]
    figures = {}
    for name in arguments.kernel or kernels:
        figures[name] = measured(name, forms, arguments.rounds)
        print(name)
        for form, values in figures[name].items():
            print(f"  {form:22} {describe(values)}", flush=True)
    for form in forms:
        mean = statistics.geometric_mean([values[form]["ratio"] for values in figures.values()])
        print(f"{form:24} geometric mean {100 * (mean - 1):+.2f} %")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    run(__doc__, KERNELS, FORMS, lambda name, forms, rounds: measure(KERNELS[name](), forms, rounds))

"""Compare what TRUST says that records cost with CUPTI's times of the same kernels, back to back. Needs a GPU.

    python benchmarks/trust.py [--kernel GLOB]... [--ctas auto|all] [--json FILE]

The kernels of benchmarks/limits and launches of 1 to 20 µs run under ``profile``. Then each is launched without records
and with those that it had last, in turn, and CUPTI times both (torch.profiler). Printed for each kernel: TRUST's
interval, CUPTI's, and the time by which CUPTI's of the kernel exceeds ours, which is without launching. At the end: the
cost by length, and how many intervals hold CUPTI's median.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from overhead import Form, Seen, compiled, half, interval, launch_once, seen
from overhead_kernels import by_rows, elementwise, gelu, matmul, rms, scaled_sum, whole_row_softmax
from recorded_ctas import sampled_kernels
from torch.profiler import ProfilerActivity, profile
from triton.runtime import _allocation

import kprof_inject
from kprof_inject.capture.cta_samples import EVERY_CTA, CtaChoice
from kprof_inject.runtime.launch.launcher import SampleBuffer
from kprof_inject.timeline.trust import judge

LAUNCHES = 60
PAIRS, WARM_UP = 40, 3
# Launches of over 0.3 ms, of library code that is compiled here again, and of Gluon, whose TTGIR takes descriptors.
LEFT_OUT = ("atomics", "matmul-fp16-deep", "matmul-throttled", "masked-all", "inductor", "gluon", "matmul-gluon")
SELECTORS = ("func", "loop", "iter")
LENGTHS_US = ((0, 3), (3, 6), (6, 25), (25, 1e9))


def of_elements(kernel: Any, n: int, block: int) -> Callable[[], Any]:
    return elementwise(kernel, block, *(half(n) for _ in range(2 if kernel is gelu else 3)))


# Of several grids of one kernel, only the largest is kept, so each launch has a block or warps of its own.
SHORT: dict[str, Callable[[], Callable[[], Any]]] = {
    **{
        f"{kernel.fn.__name__} of {n}": partial(of_elements, kernel, n, block)
        for kernel in (scaled_sum, gelu)
        for n, block in ((1 << 18, 256), (1 << 20, 512), (1 << 22, 1024), (1 << 23, 2048))
    },
    **{
        f"softmax of {rows} rows": partial(by_rows, whole_row_softmax, rows, 1000, 1024, warps)
        for rows, warps in ((64, 4), (512, 8), (2048, 16), (4096, 2))
    },
    **{
        f"rms of {rows} rows": partial(by_rows, rms, rows, 4096, 1024, warps)
        for rows, warps in ((128, 4), (512, 8), (2048, 16), (4096, 2))
    },
    **{
        f"matmul of {m}": partial(matmul, m, m, 512, block_n, warps)
        for m, block_n, warps in ((256, 32, 4), (512, 64, 4), (1024, 128, 4), (2048, 128, 8))
    },
}


def kernels(globs: Sequence[str]) -> dict[str, Callable[[], Callable[[], Any]]]:
    return {
        name: make
        for name, make in (SHORT | sampled_kernels()).items()
        if any(fnmatchcase(name, glob) for glob in globs) and not name.removeprefix("limits: ").startswith(LEFT_OUT)
    }


def launch_all(globs: Sequence[str]) -> None:
    for make in kernels(globs).values():
        torch.manual_seed(0)
        launch = make()
        for _ in range(2):
            for _ in range(LAUNCHES // 2):
                launch()
            torch.cuda.synchronize()
        del launch
        torch.cuda.empty_cache()


def launcher(one: Seen, kernel: Any, ctas: CtaChoice) -> Callable[[], None]:
    sample = ctas.sample(one.grid, kernel.metadata.num_ctas)
    size_bytes = sample.buffer_bytes(getattr(kernel.metadata, "profile_scratch_size", 0))
    buffer = torch.zeros(max(size_bytes, 1), dtype=torch.uint8, device="cuda")

    def launch() -> None:
        _allocation.set_profile_allocator(lambda *_: SampleBuffer(buffer, sample))
        launch_once(one, kernel)

    return launch


def by_cupti(launches: Sequence[Callable[[], None]]) -> list[tuple[float, ...]]:
    """Return the times in µs of rounds of launches, each round in an order of its own."""
    orders = [random.sample(range(len(launches)), len(launches)) for _ in range(WARM_UP + PAIRS)]
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for order in orders:
            for number in order:
                launches[number]()
        torch.cuda.synchronize()
    on_device = [event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    if len(on_device) != len(launches) * len(orders):
        raise ValueError(f"CUPTI saw {len(on_device)} of {len(launches) * len(orders)} launches")
    times_us = iter(event.time_range.elapsed_us() for event in sorted(on_device, key=lambda one: one.time_range.start))
    rounds = [{number: next(times_us) for number in order} for order in orders]
    return [tuple(one[number] for number in range(len(launches))) for one in rounds[WARM_UP:]]


def measure(one: Seen, timeline: Any) -> Mapping[str, Any]:
    kernel = timeline.launch.kernel
    kinds = {str(scope.kind) for scope in kernel.scopes.scopes}
    ctas = CtaChoice(timeline.launch.cta_shift)
    form = Form(tuple(kind for kind in SELECTORS if kind in kinds), mode=kernel.mode, ctas=ctas)
    with tempfile.TemporaryDirectory() as folder:
        plain, recorded = compiled(one, Form(), Path(folder)), compiled(one, form, Path(folder))
    pairs = by_cupti([launcher(one, plain, EVERY_CTA), launcher(one, recorded, ctas)])
    costs = [100 * (with_records / clean - 1) for clean, with_records in pairs]
    verdict, time_us = judge(kernel), statistics.median(clean for clean, _ in pairs)
    return {
        "kinds": sorted(kinds),
        "cta_shift": timeline.launch.cta_shift,
        "time_us": time_us,
        "cost": [statistics.median(costs), *interval(costs)],
        "trust": verdict.overhead and [verdict.overhead.percent, verdict.overhead.error_percent],
        "beyond_ours_us": verdict.clean_ns and time_us - verdict.clean_ns / 1e3,
        "is_same_build": recorded.n_regs == kernel.with_records.registers,
        "slowdown": timeline.slowdown and [timeline.slowdown.part, timeline.slowdown.error],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernel", action="append", metavar="GLOB")
    parser.add_argument("--ctas", default="auto")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--workspace", type=Path, help="keep the workspace there")
    parser.add_argument("--launch", action="store_true", help="only launch the kernels")
    arguments = parser.parse_args()
    globs = arguments.kernel or ["*"]
    if arguments.launch:
        launch_all(globs)
        return
    with tempfile.TemporaryDirectory() as folder:
        workspace = arguments.workspace or Path(folder, "workspace")
        words = ["profile", "-o", workspace, "--ctas", arguments.ctas, "--counters", "none", "--", __file__, "--launch"]
        words += [word for glob in globs for word in ("--kernel", glob)]
        subprocess.run([sys.executable, "-m", "kprof_inject", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
        timelines = {}
        for timeline in kprof_inject.load(workspace).timelines:
            clean = workspace / "kernels" / timeline.launch.kernel.program_variant / "kernel.ttgir"
            timelines[clean.read_text(), tuple(timeline.launch.grid)] = timeline
        figures: dict[str, Mapping[str, Any]] = {}
        for name, make in kernels(globs).items():
            torch.manual_seed(0)
            one = seen(make())
            timeline = timelines.get((one.kernel.asm["ttgir"], tuple(one.grid)))
            if timeline is None:
                print(f"{name}: not captured")
                continue
            try:
                figures[name] = found = measure(one, timeline)
            except Exception as error:  # noqa: BLE001 (of foreign kernels, some cannot be launched by themselves)
                print(f"{name}: {type(error).__name__}: {error}".splitlines()[0][:200])
                continue
            cost, low, high = found["cost"]
            trust = "none" if found["trust"] is None else "{:+.1f} ± {:.1f}".format(*found["trust"])
            print(
                f"{name:30} {'+'.join(found['kinds']):14} 1/{1 << found['cta_shift']:<4} {found['time_us']:8.1f} µs, "
                f"{found['beyond_ours_us'] or 0:.2f} beyond ours; TRUST {trust}, "
                f"CUPTI {cost:+.1f} [{low:+.1f}, {high:+.1f}]",
                flush=True,
            )
            del one
            torch.cuda.empty_cache()
    for low_us, high_us in LENGTHS_US:
        some = [found["cost"][0] for found in figures.values() if low_us <= found["time_us"] < high_us]
        if some:
            print(
                f"{low_us:g} to {high_us:g} µs: {statistics.median(some):+.1f} % in the median of {len(some)} kernels"
            )
    judged = [found for found in figures.values() if found["trust"] and found["is_same_build"]]
    # TRUST is printed with a decimal.
    holds = [abs(found["cost"][0] - found["trust"][0]) <= found["trust"][1] + 0.05 for found in judged]
    print(f"TRUST's interval holds CUPTI's median in {sum(holds)} of {len(judged)} kernels")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()

"""Compare the CTAs of a sample with the others of their launch, by form of the records. Needs a GPU.

    python benchmarks/recorded_ctas.py [--kernel GLOB]... [--form NAME]... [--json FILE]

Each form of a kernel is compiled from the same TTGIR and launched some times. Printed are the slowdown that a report
would show for each launch, and the cost to the whole kernel: replays in turn with the kernel without records.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from overhead import FORMS, KERNELS, Form, Seen, compiled, graph_of, half, launch_once, seen, timed_in_turn
from triton.runtime import _allocation

from kprof_inject.capture.buffer_layouts import LAYOUTS, RawCtas, ends_and_rows
from kprof_inject.capture.cta_samples import CtaChoice, CtaSample
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.slowdown import first_warp_ns, slowdown_of
from kprof_inject.runtime.launch.launcher import SampleBuffer

sys.path.insert(0, str(Path(__file__).parent / "limits"))

LAUNCHES = 8
DEFAULT = FORMS["default"]


@triton.jit
def l2_norm(x, y, scale, rows, D: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, D)
    inside = (at < rows)[:, None]
    part = tl.load(x + at[:, None] * D + inner[None, :], mask=inside, other=0.0).to(tl.float32)
    inverse = 1 / tl.sqrt(tl.sum(part * part, 1) + 1e-6)
    tl.store(y + at[:, None] * D + inner[None, :], (part * inverse[:, None]).to(tl.float16), mask=inside)
    tl.store(scale + at, inverse, mask=at < rows)


@triton.jit
def short_softmax(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    row = tl.load(x + at, mask=tl.arange(0, BLOCK) < n, other=float("-inf")).to(tl.float32)
    part = tl.exp(row - tl.max(row))
    tl.store(y + at, (part / tl.sum(part)).to(tl.float16), mask=tl.arange(0, BLOCK) < n)


@triton.jit
def cross_entropy(x, target, loss, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    peak, total = float("-inf"), 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(x + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(part))
        total = total * tl.exp(peak - new_peak) + tl.sum(tl.exp(part - new_peak))
        peak = new_peak
    own = tl.load(x + row * n + tl.load(target + row)).to(tl.float32)
    tl.store(loss + row, peak + tl.log(total) - own)


def l2_norms() -> Callable[[], Any]:
    rows, d = 1 << 17, 128
    x, scale = half(rows, d), torch.empty(rows, device="cuda")
    y = torch.empty_like(x)
    return lambda: l2_norm[(rows // 16,)](x, y, scale, rows, d, 16, num_warps=4)


def short_softmaxes() -> Callable[[], Any]:
    x = half(1 << 16, 256)
    y = torch.empty_like(x)
    return lambda: short_softmax[(len(x),)](x, y, 256, 256, num_warps=4)


def cross_entropies() -> Callable[[], Any]:
    x, loss = half(4096, 32000), torch.empty(4096, device="cuda")
    target = torch.randint(0, 32000, (4096,), device="cuda")
    return lambda: cross_entropy[(4096,)](x, target, loss, 32000, 4096, num_warps=8)


def sampled_kernels() -> dict[str, Callable[[], Callable[[], Any]]]:
    from kernels import KERNELS as LIMITS

    own = {"l2 norm": l2_norms, "short softmax": short_softmaxes, "cross entropy": cross_entropies}
    return own | KERNELS | {f"limits: {name}": make for name, make in LIMITS.items()}


FORMS_OF_SAMPLE: dict[str, Form] = {
    "default": DEFAULT,
    "function alone": replace(DEFAULT, selectors=("func",)),
    "no iterations": replace(DEFAULT, selectors=("func", "loop")),
    "shared": replace(DEFAULT, mode=Mode("shared")),
}


def slowdowns(buffer: torch.Tensor, kernel: Any, sample: CtaSample) -> Mapping[str, float]:
    """Return a launch's slowdown by its records and by the timer; empty if nothing can be compared."""
    warps, row_bytes = kernel.metadata.num_warps, kernel.metadata.profile_scratch_size
    ends, rows = ends_and_rows(buffer.cpu().numpy().view("<u4"), sample, row_bytes)
    raw = LAYOUTS["timed"].read(rows, warps, range(warps), sample, ends)
    clock_hz = rate_of(raw)
    by_timer, by_records = (
        slowdown_of(raw, sample, first_warp_ns(raw, clock_hz, spans_function=spans)) for spans in (False, True)
    )
    if by_timer is None or by_records is None:
        return {}
    median_ns = float(np.median(raw.others[3] - raw.others[2]))
    return {
        "longer": by_records.part,
        "by timer": by_timer.part,
        "error": by_records.error,
        "median_ns": median_ns,
    }


def measure(launch: Callable[[], Any], forms: Mapping[str, Form], rounds: int) -> dict[str, dict[str, Any]]:
    torch.manual_seed(0)
    one = seen(launch)
    sample = CtaChoice().sample(one.grid, one.kernel.metadata.num_ctas)
    if not sample.shift:
        return {}
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        kernels = {name: compiled(one, form, Path(folder)) for name, form in {"plain": Form(), **forms}.items()}
        for name, kernel in list(kernels.items())[1:]:
            launches = launched(one, kernel, sample)
            if all(launches):
                found[name] = {key: statistics.median(one[key] for one in launches) for key in launches[0]}
                found[name]["each"] = [one["longer"] for one in launches]
        if rounds:
            graphs = {name: graph_of(one, kernel, DEFAULT.ctas) for name, kernel in kernels.items()}
            for name, values in timed_in_turn(graphs, rounds).items():
                if name in found:
                    found[name]["cost"] = values["ratio"] - 1
    return found


def rate_of(raw: RawCtas) -> float:
    """Return the rate of the SMs' clock in Hz, from the first CTA on each SM to the last."""
    newest = raw.written_words[:, 0] // 2 - 1
    last = raw.entries[np.arange(len(raw.cta)), 0, newest % raw.entries.shape[2], 1]
    rates = []
    for sm in np.unique(raw.sm):
        rows = np.flatnonzero(raw.sm == sm)
        begin, end = rows[raw.init_ns[rows].argmin()], rows[raw.pre_final_ns[rows].argmax()]
        if raw.records_lost[begin, 0] == 0:
            cycles = int(last[end] - raw.entries[begin, 0, 0, 1])
            # The timer is read 30 ns before the first record and 28 ns after the last (timeline/readings.py).
            rates.append(1e9 * cycles / (raw.pre_final_ns[end] - raw.init_ns[begin] - 58))
    return float(np.median(rates)) if rates else 1.7e9


def launched(one: Seen, kernel: Any, sample: CtaSample) -> list[Mapping[str, float]]:
    """Launch a kernel with records several times, and return the slowdown of each launch."""
    size_bytes = sample.buffer_bytes(kernel.metadata.profile_scratch_size)
    buffer = torch.zeros(size_bytes, dtype=torch.uint8, device="cuda")
    _allocation.set_profile_allocator(lambda *_: SampleBuffer(buffer, sample))
    found = []
    for _ in range(LAUNCHES):
        buffer.zero_()
        torch.cuda.synchronize()
        launch_once(one, kernel)
        torch.cuda.synchronize()
        found.append(slowdowns(buffer, kernel, sample))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kernel", action="append", metavar="GLOB")
    parser.add_argument("--form", action="append", choices=list(FORMS_OF_SAMPLE))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    forms = {name: FORMS_OF_SAMPLE[name] for name in arguments.form or FORMS_OF_SAMPLE}
    figures: dict[str, dict[str, dict[str, Any]]] = {}
    for name, make in sampled_kernels().items():
        if not any(fnmatchcase(name, glob) for glob in arguments.kernel or ["*"]):
            continue
        try:
            figures[name] = measure(make(), forms, arguments.rounds)
        except Exception as error:  # noqa: BLE001 (of foreign kernels, some cannot be launched by themselves)
            print(f"{name}: {type(error).__name__}: {error}".splitlines()[0][:200])
        torch.cuda.empty_cache()
        for form, values in figures.get(name, {}).items():
            each = " ".join(f"{100 * part:+.1f}" for part in values["each"])
            each += f"; by the timer {100 * values['by timer']:+.1f}"
            cost = f", kernel {100 * values['cost']:+.1f} %" if "cost" in values else ""
            print(
                f"{name} | {form}: {100 * values['longer']:+.1f} ± {100 * values['error']:.1f} % of "
                f"{values['median_ns']:.0f} ns [{each}]{cost}",
                flush=True,
            )
        if arguments.json:
            arguments.json.write_text(json.dumps(figures, indent=1))
    for form in forms:
        parts = [of_kernel[form]["longer"] for of_kernel in figures.values() if form in of_kernel]
        if parts:
            above = sum(part > 0.05 for part in parts)
            print(f"{form}: median {100 * statistics.median(parts):+.1f} %, above 5 % in {above} of {len(parts)}")


if __name__ == "__main__":
    main()

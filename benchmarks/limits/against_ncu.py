"""Compares what the speed of light says of ``kernels.py`` with what Nsight Compute counted of the same kernels.

    python benchmarks/limits/against_ncu.py OUT [--json FILE]

OUT is what ``record.py`` wrote. For each kernel: what our work is of Nsight Compute's active cycles and what it says of
the same unit, in percent; bytes, wavefronts and instructions, with the ratio of ours to its; its own speed of light;
our sentence. What we count is a lower bound: where it is more than Nsight Compute counted, the line ends with TOO MUCH.
Shares of time may be larger than its, as it empties the caches before each launch.

FILE gets for each kernel the limit with counters and without, and how busy each unit was by Nsight Compute, in percent.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from msgspec import structs

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.rates import ALU, DRAM, FP32, ISSUE, L2, SHARED, SPECIAL, TENSOR, rates_of
from kprof_inject.analysis.limits.speed_of_light import Roof
from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch

Counts = Mapping[str, str]

ACTIVE_CYCLES = "sm__cycles_active.sum"
# By our name of a unit, what Nsight Compute calls its use.
UNITS = {
    TENSOR: "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    SPECIAL: "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    FP32: "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    ALU: "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    ISSUE: "smsp__issue_active.avg.pct_of_peak_sustained_active",
}
# How many instructions of a warp, by the unit that executes them.
INSTRUCTIONS = {
    SPECIAL: "sm__inst_executed_pipe_xu.sum",
    FP32: "sm__inst_executed_pipe_fma.sum",
    ALU: "sm__inst_executed_pipe_alu.sum",
    ISSUE: "smsp__inst_executed.sum",
}
# The part of the fp32 units that multiplies integers.
MULTIPLIER = "sm__pipe_fmaheavy_cycles_active.avg.pct_of_peak_sustained_active"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts.sum"
LANES, SCHEDULERS = 32, 4
# Nsight Compute's own counts differ by less from pass to pass.
MOST_ABOVE = 1.01
FROM_L2 = "l1tex__m_xbar2l1tex_read_bytes.sum"
FROM_DRAM, TO_DRAM = "dram__bytes_read.sum", "dram__bytes_write.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DURATION = "gpu__time_duration.sum"
# How busy each unit was, by its name in a limit.
BUSY = {
    **UNITS,
    SHARED: "l1tex__throughput.avg.pct_of_peak_sustained_active",
    L2: "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    DRAM: "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
METRICS = [
    DURATION,
    ACTIVE_CYCLES,
    *UNITS.values(),
    *INSTRUCTIONS.values(),
    MULTIPLIER,
    WAVEFRONTS,
    FROM_L2,
    FROM_DRAM,
    TO_DRAM,
    COMPUTE,
    MEMORY,
    *(BUSY[unit] for unit in (SHARED, L2, DRAM)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    counted = counts_of(arguments.out / "ncu.csv")
    judged = {}
    for name, launch in launches_of(arguments.out).items():
        if name in counted:
            report = LaunchAnalysis.of(decode_launch(launch))
            # What is computed only bounds the units from below where they were counted, and is not asked for there.
            kernel = structs.replace(launch.kernel, measurements=None)
            computed = LaunchAnalysis.of(decode_launch(structs.replace(launch, kernel=kernel)))
            for line in lines_of(name, report, computed, counted[name]):
                print(line)
            judged[name] = {
                "counters": report.limit.name if report.measured else None,
                "computed": computed.limit.name,
                "busy": {unit: counts_in(counted[name], metric) for unit, metric in BUSY.items()},
            }
    if arguments.json:
        arguments.json.write_text(json.dumps(judged, indent=1))


def counts_in(counts: Counts, metric: str) -> float:
    """Return a metric's value; not a number if it was not counted."""
    return float(counts.get(metric, "nan").replace(",", "") or "nan")


def lines_of(name: str, report: LaunchAnalysis, computed: LaunchAnalysis, counts: Counts) -> Iterator[str]:
    def count(metric: str) -> float:
        return counts_in(counts, metric)

    yield f"{name}: ours {report.summary.duration_ns / 1e3:.1f} us, Nsight Compute {count(DURATION) / 1e3:.1f}"
    yield f"    {report.limit.sentence}"
    yield f"    without counters: {computed.limit.sentence}"
    yield f"    Nsight Compute: compute {count(COMPUTE):.0f} %, memory {count(MEMORY):.0f} %"
    whole = next((roof for roof in computed.speed_of_light.roofs if roof.scope == "func"), None)
    if whole is not None:
        for unit, metric in UNITS.items():
            needed = 100 * whole.parts[unit] * whole.sm_cycles
            ours = (
                f"{needed / count(ACTIVE_CYCLES):.2f} of its cycles, {needed / resident_cycles(report):.2f} of those "
            )
            ours += f"in which CTAs were there, {100 * whole.parts[unit]:.2f} of the function's"
            yield f"    {unit}: {ours}; {count(metric):.2f} %"
        yield f"    multiplication of integers: Nsight Compute {count(MULTIPLIER):.2f} % with that of floats"
        for what, ours, theirs in _amounts(whole, computed, count):
            fault = "  TOO MUCH" if ours > MOST_ABOVE * max(theirs, 1) else ""
            yield f"    {what}: {ours / 1e6:.3f} and {theirs / 1e6:.3f} million, {ours / max(theirs, 1):.3f}{fault}"


def resident_cycles(report: LaunchAnalysis) -> float:
    """In how many cycles SMs had a CTA, by the timer: with those in which CTAs write out their records."""
    ctas, total_ns = report.timeline.ctas, 0
    for sm in np.unique(ctas["sm"]):
        mine = np.sort(ctas[ctas["sm"] == sm], order="init_ns")
        ends_ns = np.maximum.accumulate(mine["post_final_ns"])
        total_ns += int(ends_ns[-1] - mine["init_ns"][0])
        total_ns -= int(np.maximum(mine["init_ns"][1:] - ends_ns[:-1], 0).sum())
    return total_ns * report.timeline.clock.clock_hz / 1e9


def _amounts(
    whole: Roof, computed: LaunchAnalysis, count: Callable[[str], float]
) -> Iterator[tuple[str, float, float]]:
    work, active = whole.work, count(ACTIVE_CYCLES) / 100
    cycles = rates_of("cuda:90").cycles(work)  # type: ignore[union-attr]
    yield "cycles of the tensor cores", cycles[TENSOR], active * count(UNITS[TENSOR])
    # Integers are multiplied by a part of the fp32 units.
    yield "cycles of the fp32 units", cycles[FP32], active * max(count(UNITS[FP32]), count(MULTIPLIER))
    yield "instructions of the special functions", work.special / LANES, count(INSTRUCTIONS[SPECIAL])
    yield "instructions of the ALU", work.logic / LANES, count(INSTRUCTIONS[ALU])
    yield "instructions", cycles[ISSUE] * SCHEDULERS, count(INSTRUCTIONS[ISSUE])
    yield "wavefronts of shared memory and L1", cycles[SHARED], count(WAVEFRONTS)
    yield "bytes from the L2", work.l2_bytes, count(FROM_L2)
    if dram := computed.speed_of_light.dram:
        yield "bytes from DRAM", dram.read_bytes, count(FROM_DRAM)


def counts_of(file: Path) -> dict[str, Counts]:
    """By the kernel's name, of its last launch."""
    rows = list(csv.reader(file.read_text().splitlines()))
    header = next(number for number, row in enumerate(rows) if row and row[0] == "ID")
    named = (dict(zip(rows[header], row, strict=False)) for row in rows[header + 2 :])
    return {counts["Kernel Name"]: counts for counts in named}


def launches_of(out: Path) -> dict[str, Launch]:
    """The last launch of each kernel, by its name in ``kernels.py`` and its own."""
    times = {name: (begin, end) for name, begin, end in map(json.loads, (out / "times.jsonl").read_text().splitlines())}
    captures = [max(captures.iterdir()) for captures in sorted(out.glob("captures-*/captures"))]
    return {
        f"{name}/{launch.kernel.name}": launch
        for capture in captures
        for launch in read_capture(capture).launches
        for name, (begin, end) in times.items()
        if begin <= launch.host_ns <= end
    }


if __name__ == "__main__":
    main()

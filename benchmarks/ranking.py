"""Judges the table of a program's kernels: its order by Nsight Compute, its shares by CUPTI's activity records.

    python benchmarks/ranking.py OUT [NAME=PROGRAM...]      profiles, and judges; NAME names a folder in OUT
    python benchmarks/ranking.py OUT --judge NAME...        judges what is there

PROGRAM is a command line with the options of ``benchmarks/programs``. It runs three times: as ``profile`` runs it,
under ``torch.profiler`` alone, and under ``ncu``, which measures each kernel of the last step, at the program's clocks.
By ``ncu``, a kernel has to win what its busier unit leaves of its duration.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

from kprof_inject.analysis.program import Report
from kprof_inject.capture.reader import read_capture
from kprof_inject.capture.schema import MAX_NAME_LENGTH
from kprof_inject.pipeline.captures import decode_capture
from kprof_inject.workspace import Workspace

DURATION = "gpu__time_duration.sum"
THROUGHPUTS = (
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
)
NS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6}
LARGEST = 20
LAST_STEPS = 8
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
TRACED = """
import runpy, sys
from torch.profiler import ProfilerActivity, profile
trace, sys.argv = sys.argv[1], sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
    runpy.run_path(sys.argv[0], run_name="__main__")
prof.export_chrome_trace(trace)
"""


def record(folder: Path, program: list[str]) -> None:
    """Run the program three times, and keep what each run saw."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = [sys.executable, "-m", "kprof_inject", "profile", "--torch-profiler", "-o", folder / "ours", "--"]
    ncu = ["ncu", "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off", "--csv"]
    ncu += ["--page", "raw", "--print-units", "base", "--metrics", ",".join([DURATION, *THROUGHPUTS])]
    runs = {
        "ours.txt": [*ours, sys.executable, *program],
        "traced.txt": [sys.executable, "-c", TRACED, folder / "traced.json", *program],
        "ncu.csv": [*ncu, sys.executable, *program, "--steps", "3", "--mark-last"],
    }
    for name, command in runs.items():
        with (folder / name).open("w") as out:
            ended = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False, env=os.environ)
        print(f"{folder.name}: {name} ended with {ended.returncode}", flush=True)


def number(text: str) -> float:
    """Read a number as Nsight Compute prints it."""
    return float(text.replace(",", ""))


def counted(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the time of each kernel in the step, and what could be won of it, in ns by Nsight Compute."""
    text = (folder / "ncu.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text[text.index('"ID"') :])))
    units, rows = rows[0], rows[1:]
    times: dict[str, float] = defaultdict(float)
    to_win: dict[str, float] = defaultdict(float)
    for row in rows:
        time_ns = number(row[DURATION]) * NS[units[DURATION]]
        busy = max(number(row[throughput]) for throughput in THROUGHPUTS) / 100
        times[row["Kernel Name"]] += time_ns
        to_win[row["Kernel Name"]] += time_ns * (1 - busy)
    return times, to_win


def traced(folder: Path) -> dict[str, float]:
    """Return the share of each name in the GPU's time of the last steps, by the bare program's trace.

    The first steps compile and tune. The program synchronizes before each step and after it.
    """
    events = json.loads((folder / "traced.json").read_text())["traceEvents"]
    ends = sorted(event["ts"] for event in events if event.get("name") == "cudaDeviceSynchronize")
    begin = ends[-2 * LAST_STEPS]
    times: Counter[str] = Counter()
    for event in events:
        if event.get("cat") in GPU_WORK and event["ts"] >= begin:
            times[event["name"][:MAX_NAME_LENGTH]] += event["dur"]
    return {name: time / times.total() for name, time in times.items()}


def ranks(values: list[float]) -> list[float]:
    """Return the rank of each value; equal ones share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def correlation(first: list[float], second: list[float]) -> float:
    """Return Spearman's coefficient; it is undefined for fewer than two values."""
    a, b = ranks(first), ranks(second)
    mean = (len(a) - 1) / 2
    above = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    below = (sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)) ** 0.5
    return above / below if below else float("nan")


def judge(folder: Path) -> tuple[list[float], list[float]]:
    """Print how a program's table compares; return what could be won of its kernels, by us and by Nsight Compute."""
    (last,) = Workspace.open(folder / "ours").capture_folders()[-1:]
    program = Report.of(decode_capture(read_capture(last), print)).program
    times, to_win = counted(folder)
    shares = traced(folder)
    largest = sorted(program.kernels, key=lambda kernel: -times.get(kernel.name, 0.0))[:LARGEST]
    print(f"{folder.name}: {len(program.kernels)} kernels with records, {len(program.others)} other names")
    worst = ("", 0.0)
    print("  to win: ours, ncu's per step   share: ours, traced")
    for kernel in program.kernels:
        share, known = kernel.share or 0.0, shares.get(kernel.name, 0.0)
        worst = max(worst, (kernel.name, abs(share - known)), key=lambda one: one[1])
        won = "?" if kernel.to_win_ns is None else f"{kernel.to_win_ns / 1e3:.1f}"
        theirs = to_win.get(kernel.name, float("nan")) / 1e3
        line = f"  {won:>10} {theirs:10.1f} us   {100 * share:5.2f} {100 * known:5.2f} %"
        print(f"{line}   {kernel.gain.by:30} {kernel.name[:60]}")
    for work in program.others:
        share, known = work.total_ns / (program.whole_ns or float("nan")), shares.get(work.name, 0.0)
        worst = max(worst, (work.name, abs(share - known)), key=lambda one: one[1])
        if max(share, known) >= 0.01:
            print(f"  {'':23}    {100 * share:5.2f} {100 * known:5.2f} %   {work.kind:30} {work.name[:60]}")
    missed = sum(
        share
        for name, share in shares.items()
        if name not in {k.name for k in program.kernels} | {w.name for w in program.others}
    )
    print(f"  largest difference of a share: {100 * worst[1]:.2f} points ({worst[0][:60]})")
    print(f"  not listed: {100 * missed:.2f} %")
    known = [kernel for kernel in largest if kernel.name in times and kernel.to_win_ns is not None]
    ours, theirs = [kernel.to_win_ns or 0.0 for kernel in known], [to_win[kernel.name] for kernel in known]
    print(f"  rank correlation of {len(known)} kernels: {correlation(ours, theirs):.3f}")
    by_time = correlation([kernel.whole_ns for kernel in known], [times[kernel.name] for kernel in known])
    print(f"  of their times alone: {by_time:.3f}", flush=True)
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--judge", nargs="+", default=[], metavar="NAME")
    arguments = parser.parse_args()
    names = list(arguments.judge)
    for named in arguments.programs:
        name, _, program = named.partition("=")
        record(arguments.out / name, shlex.split(program))
        names.append(name)
    for name in names:
        judge(arguments.out / name)


if __name__ == "__main__":
    main()

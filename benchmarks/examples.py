"""What profiling the three examples costs, with us and with stock Proton, in one table. Needs a GPU.

    python benchmarks/examples.py [--json FILE]

Each figure comes from a process of its own, all of them in one run on one machine. Kernel times are those of launches
in a replayed CUDA graph; host times are per launch, while every launch is captured; "decode" is reading, decoding and
writing a Chrome trace of as many launches as Proton's finalize gets.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kprof_inject.capture.reader import read_capture
from kprof_inject.export.formats import TraceFile
from kprof_inject.timeline.timeline import decode_launch

PROGRAM = Path(__file__).with_name("timed_example.py")
EVERYTHING = ("--at", "func", "--at", "loop", "--at", "iter")
LAUNCHES = 50


def run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)


def figures(out: Path) -> dict[str, float]:
    return dict(json.loads(out.read_text()))


def kprof(*arguments: str) -> None:
    run(sys.executable, "-m", "kprof_inject", *arguments)


def measure(example: str, folder: Path) -> dict[str, float]:
    """All figures of one example."""
    program = (str(PROGRAM), example, str(folder / "out.json"), "--launches", str(LAUNCHES))
    workspace = folder / "workspace"
    row: dict[str, float] = {}

    def take(name: str, figure: str) -> None:
        row[name] = figures(folder / "out.json")[figure]

    run(sys.executable, *program, "--graph")
    take("clean_us", "kernel_us")
    take("clean_host_us", "host_us")
    kprof("dump", "-o", str(workspace), "--", *program)

    kprof("insert", str(workspace), "--at", "func")
    kprof("run", str(workspace), "--launches", "first", "--", *program, "--graph")
    take("func_us", "kernel_us")

    kprof("insert", str(workspace), *(EVERYTHING if example != "vector_add" else EVERYTHING[:2]))
    kprof("run", str(workspace), "--launches", "first", "--", *program, "--graph")
    take("all_us", "kernel_us")
    run(sys.executable, *program, "--graph")
    take("clean_again_us", "kernel_us")

    kprof("run", str(workspace), "--launches", "all", "--", *program)
    take("our_host_us", "host_us")
    capture = read_capture(sorted((workspace / "captures").iterdir())[-1])
    begin = time.perf_counter()
    timelines = [decode_launch(launch) for launch in capture.launches]
    TraceFile.at(folder / "trace.json").write(timelines)
    row["decode_s"] = time.perf_counter() - begin
    row["launches"] = len(timelines)
    row["scopes"] = sum(len(timeline.scopes) for timeline in timelines)
    row["trace_mb"] = (folder / "trace.json").stat().st_size / 1e6

    (override,) = (workspace / "override").iterdir()
    run(
        sys.executable,
        *program,
        "--proton",
        str(folder / "proton"),
        TRITON_ALWAYS_COMPILE="1",
        TRITON_KERNEL_OVERRIDE="1",
        TRITON_OVERRIDE_DIR=str(override),
        TRITON_CACHE_DIR=str(folder / "proton-cache"),
    )
    take("proton_host_us", "host_us")
    take("proton_finalize_s", "finalize_s")
    return row


def table(rows: dict[str, dict[str, float]]) -> str:
    lines = [
        "| | " + " | ".join(rows) + " |",
        "|---" * (len(rows) + 1) + "|",
    ]

    def add(title: str, text_of: dict[str, str]) -> None:
        lines.append(f"| {title} | " + " | ".join(text_of[name] for name in rows) + " |")

    def ratio(row: dict[str, float], name: str) -> str:
        base = (row["clean_us"] + row["clean_again_us"]) / 2
        return f"{row[name]:.2f} µs ({100 * (row[name] / base - 1):+.1f} %)"

    add(
        "kernel without us (before, after)",
        {n: f"{r['clean_us']:.2f}, {r['clean_again_us']:.2f} µs" for n, r in rows.items()},
    )
    add("kernel with func", {n: ratio(r, "func_us") for n, r in rows.items()})
    add("kernel with func + loop + iter", {n: ratio(r, "all_us") for n, r in rows.items()})
    add("host time per launch without us", {n: f"{r['clean_host_us']:.1f} µs" for n, r in rows.items()})
    add("… with us, every launch captured", {n: f"{r['our_host_us']:.1f} µs" for n, r in rows.items()})
    add("… with stock Proton", {n: f"{r['proton_host_us']:.1f} µs" for n, r in rows.items()})
    add(
        "… added, Proton ÷ us",
        {
            n: f"{(r['proton_host_us'] - r['clean_host_us']) / (r['our_host_us'] - r['clean_host_us']):.1f} x"
            for n, r in rows.items()
        },
    )
    add("launches, scopes", {n: f"{r['launches']:.0f}, {r['scopes']:.0f}" for n, r in rows.items()})
    add("decode and write with us", {n: f"{r['decode_s']:.2f} s" for n, r in rows.items()})
    add("Proton's finalize", {n: f"{r['proton_finalize_s']:.2f} s" for n, r in rows.items()})
    add("… Proton ÷ us", {n: f"{r['proton_finalize_s'] / r['decode_s']:.1f} x" for n, r in rows.items()})
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    rows = {}
    for example in ("vector_add", "matmul", "attention"):
        with tempfile.TemporaryDirectory() as folder:
            rows[example] = measure(example, Path(folder))
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

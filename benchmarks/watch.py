"""Measure what ``watch`` costs, and whether it notices a kernel that becomes slower. Needs a GPU.

    python benchmarks/watch.py [--seconds S] [--drift-at S] [--again S] [--every S] [--json FILE]

It watches ``watched_loop.py``, kills the program and starts it again. The cost of a capture is what the steps around it
take longer than the steps of the seconds before and after; their mean over the time between two captures is the
slowdown. Its interval is that of the mean (19 of 20 resamples).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOOP = Path(__file__).with_name("watched_loop.py")
ROOT = LOOP.parents[1]
AROUND_S = (0.3, 1.5)
"""The seconds before and after a capture's first launch in which it may cost something."""
OUTSIDE_S = 3.5
"""The steps that it is compared with are within this time."""
RESAMPLES = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--drift-at", type=float, default=1200)
    parser.add_argument("--again", type=float, default=60, help="Seconds of the second run, after the first is killed.")
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = measured(Path(name), options)
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    first = Watched(folder, options.every, options.seconds + 600, options.drift_at)
    program_begun_ns = first.wait_for_steps()
    first.follow(options.seconds)
    first.kill_program()
    alarms = alarms_in(folder)
    captures = captures_in(folder)
    steps = steps_in(first.steps)
    second = Watched(folder, options.every, options.again, 0)
    second.wait_for_steps()
    second.follow(options.again + 15)
    drift_ns = program_begun_ns + options.drift_at * 1e9
    return {
        "slowdown": slowdown(steps, captures),
        "said": first.said().splitlines()[-12:],
        "said_again": second.said().splitlines()[-12:],
        "alarms": [
            {
                "kernel": alarm["kernel"],
                "why": alarm["why"],
                "seconds_after_drift": (alarm["raised_ns"] - drift_ns) / 1e9,
            }
            for alarm in alarms
        ],
        "alarms_after_restart": len(alarms_in(folder)) - len(alarms),
        "captures": [len(captures), len(captures_in(folder)) - len(captures)],
        "sizes": first.sizes,
        "median_step_us": [float(np.median(part[:, 1])) / 1e3 for part in np.array_split(steps, 6)],
    }


class Watched:
    """The loop under ``watch``."""

    def __init__(self, folder: Path, every: float, seconds: float, drift_at: float) -> None:
        self.folder = folder
        self.steps = folder / f"steps-{time.time_ns()}"
        self._said = folder / f"said-{time.time_ns()}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "kprof_inject", "watch", "-o", str(folder / "ws"), "--every", str(every)]
        program = [sys.executable, str(LOOP), str(seconds), str(drift_at), str(self.steps)]
        with self._said.open("wb") as said:
            self.watch = subprocess.Popen([*command, "--", *program], env=environment, stdout=said, stderr=said)
        self.sizes: list[dict[str, float]] = []

    def wait_for_steps(self) -> int:
        """Return the time of the first step on the host's clock."""
        while not (self.steps.exists() and self.steps.stat().st_size):
            if self.watch.poll() is not None:
                raise SystemExit(self.said())
            time.sleep(0.1)
        return int(steps_in(self.steps)[0, 0])

    def program(self) -> int | None:
        """Return the process ID of the loop; None once it has ended."""
        children = Path(f"/proc/{self.watch.pid}/task/{self.watch.pid}/children").read_text().split()
        return int(children[0]) if children else None

    def follow(self, seconds: float) -> None:
        """Wait, and note the sizes every ten seconds."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds and self.watch.poll() is None:
            time.sleep(min(10.0, seconds))
            if self.watch.poll() is None and (program := self.program()):
                files = [path for path in (self.folder / "ws").rglob("*") if path.is_file()]
                self.sizes.append(
                    {
                        "seconds": round(time.monotonic() - begun),
                        "program_mb": resident_mb(program),
                        "watch_mb": resident_mb(self.watch.pid),
                        "disk_mb": round(sum(path.stat().st_size for path in files) / 1e6, 2),
                    }
                )

    def kill_program(self) -> None:
        """Kill the loop as the kernel's killer does, and wait for the watch to end."""
        if program := self.program():
            os.kill(program, signal.SIGKILL)
        self.watch.wait()

    def said(self) -> str:
        return self._said.read_text(errors="replace")


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def steps_in(path: Path) -> NDArray[np.int64]:
    data = np.fromfile(path, np.int64)
    return data[: len(data) // 2 * 2].reshape(-1, 2)


def alarms_in(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "ws" / "watch" / "alarms").glob("*/alarm.json"))
    return [{**json.loads(path.read_text()), "raised_ns": path.stat().st_mtime_ns} for path in paths]


def captures_in(folder: Path) -> list[int]:
    """Return the time of each capture's first launch."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(folder / "ws" / "watch" / "history", columns=["capture", "time", "scope"])
    first: dict[str, int] = {}
    for row in rows.to_pylist():
        at_ns = round(row["time"].timestamp() * 1e6) * 1000
        first[row["capture"]] = min(at_ns, first.get(row["capture"], at_ns))
    return sorted(first.values())


def slowdown(steps: NDArray[np.int64], captures: list[int]) -> dict[str, float]:
    """Return what a capture costs, and its part of the time between two captures, in per cent with its interval.

    The first capture does not count: the kernels are prepared for it.
    """
    costs_us = []
    for at_ns in captures[1:]:
        distance_s = (steps[:, 0] - at_ns) / 1e9
        near = (distance_s > -AROUND_S[0]) & (distance_s < AROUND_S[1])
        outside = (np.abs(distance_s) < OUTSIDE_S) & ~near
        if near.sum() > 10 and outside.sum() > 10:
            costs_us.append(float(steps[near, 1].sum() - near.sum() * steps[outside, 1].mean()) / 1e3)
    between_us = float(np.diff(captures).mean()) / 1e3
    chosen = random.Random(0)
    means = sorted(sum(chosen.choices(costs_us, k=len(costs_us))) / len(costs_us) for _ in range(RESAMPLES))
    mean = sum(costs_us) / len(costs_us)
    return {
        "captures": len(costs_us),
        "seconds_between": between_us / 1e6,
        "capture_costs_us": mean,
        "percent": 100 * mean / between_us,
        "low_percent": 100 * means[RESAMPLES // 40] / between_us,
        "high_percent": 100 * means[-RESAMPLES // 40] / between_us,
    }


if __name__ == "__main__":
    main()

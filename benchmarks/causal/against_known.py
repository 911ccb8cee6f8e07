"""Slopes and slack of kernels of which both are known: ``known_slack.py`` under ``kprof-inject causal``. What the
faster side has to spare is measured without kprof-inject, too: its own spin is made longer, until that shows.

    python against_known.py [--seconds N] [--only meet|ring] [--keep FOLDER]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("known_slack.py")
CASES = [("meet", 1000, 4000), ("meet", 3000, 2000), ("ring", 1500, 3000), ("ring", 3000, 2000)]


SHARES = (1.3, 1.6, 1.9, 2.2, 2.5, 2.8)
ROUNDS = 40


def spare_cycles(kernel: str, side: int, other: int) -> float:
    """By how much the faster side's spin may grow before the kernel takes longer: where the line through the times with
    longer spins meets the time as it is. Launches take turns, and each is compared with the plain one of its round, so
    the clock cancels."""
    import known_slack
    import numpy as np

    longer = [round(share * abs(side - other)) for share in SHARES]
    spins = [(side + more, other) if side < other else (side, other + more) for more in (0, *longer)]
    launches = [known_slack.launcher(kernel, *both) for both in spins]
    times = np.array([[elapsed_ms(launch) for launch in launches] for _ in range(ROUNDS)])
    ratios = np.median(times[:, 1:] / times[:, :1], axis=0)
    steepness, begin = np.polyfit(longer, ratios, 1)
    return float((1 - begin) / steepness)


def elapsed_ms(launch: Callable[[], object]) -> float:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def experiment(folder: Path, kernel: str, side: int, other: int, seconds: str) -> dict[str, Any]:
    words = ["causal", "-o", str(folder), "--at", "parts", "--seconds", seconds, "--json"]
    program = ["python3", str(PROGRAM), "--kernel", kernel, "--side", str(side), "--other", str(other)]
    command = [sys.executable, "-m", "kprof_inject", *words, "--", *program]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    (found,) = json.loads(done.stdout[done.stdout.index("[\n {") :])
    return dict(found)


def report(found: dict[str, Any], kernel: str, side: int, other: int) -> None:
    places = found["places"]
    spins = [one for one in places if one["scope"].startswith("asm") and one["slope"]]
    if len(spins) != 2:
        raise RuntimeError(f"not two slopes: {places}")
    spare = spare_cycles(kernel, side, other)
    for place, mine, its in zip(spins, (side, other), (other, side), strict=True):
        slope, slack = place["slope"], place["slack_cycles"]
        is_slower = mine > its
        of_spare = f"{slack['value'] / spare:.3f} of it" if slack else ""
        print(
            f"{kernel} {mine} against {its}: slope {slope['value']:.3f} [{slope['low']:.3f}, {slope['high']:.3f}], "
            f"expected {int(is_slower)}; slack {slack['value'] if slack else None}, expected "
            f"{None if is_slower else round(spare)} {of_spare}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", default="20")
    parser.add_argument("--only", choices=["meet", "ring"])
    parser.add_argument("--keep", type=Path, help="leave the workspaces there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for kernel, side, other in CASES:
            if options.only not in (None, kernel):
                continue
            folder = (options.keep or Path(temporary)) / f"{kernel}_{side}_{other}"
            try:
                report(experiment(folder, kernel, side, other, options.seconds), kernel, side, other)
            except RuntimeError as error:
                print(f"{kernel} {side} against {other}: {error}", flush=True)


if __name__ == "__main__":
    main()

"""Slopes, slack and critical paths of kernels of which all are known: ``known_slack.py`` under ``kprof-inject causal``.
The path of each leads through the spins of the slower side, and through nothing else.

python against_known.py [--seconds N] [--only meet|ring]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).with_name("known_slack.py")
CASES = [("meet", 3000, 2000), ("meet", 1000, 4000), ("ring", 3000, 2000), ("ring", 1500, 3000)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", default="20")
    parser.add_argument("--only", choices=["meet", "ring"])
    options = parser.parse_args()
    for kernel, side, other in CASES:
        if options.only not in (None, kernel):
            continue
        with tempfile.TemporaryDirectory() as folder:
            words = ["causal", "-o", folder, "--at", "parts", "--seconds", options.seconds]
            program = ["--kernel", kernel, "--side", str(side), "--other", str(other)]
            done = subprocess.run(
                [sys.executable, "-m", "kprof_inject", *words, "--json", "--", "python3", str(PROGRAM), *program],
                capture_output=True,
                text=True,
            )
        if done.returncode:
            print(f"{kernel} {side} against {other}: {done.stderr[-3000:]}", flush=True)
            continue
        (found,) = json.loads(done.stdout[done.stdout.index("[\n {") :])
        places = found["places"]
        spins = [one for one in places if one["scope"].startswith("asm") and one["slope"]]
        if len(spins) != 2:
            print(f"{kernel} {side} against {other}: not two slopes: {places}", flush=True)
            continue
        for place, mine, its in zip(spins, (side, other), (other, side), strict=True):
            slope, slack = place["slope"], place["slack_cycles"]
            expected = (1, None) if mine > its else (0, its - mine)
            print(
                f"{kernel} {mine} against {its}: slope {slope['value']:.3f} [{slope['low']:.3f}, {slope['high']:.3f}], "
                f"expected {expected[0]}; slack {slack['value'] if slack else None}, expected {expected[1]}; "
                f"path {place['critical_path']}, expected {expected[0]}",
                flush=True,
            )
        blamed = {one["scope"]: one["critical_path"] or 0.0 for one in places}
        print(f"  path: {blamed}, outside {found['critical_path_outside']}", flush=True)


if __name__ == "__main__":
    main()

"""Do slopes repeat? The same kernel in several processes: each slope, and whether the intervals hold each other's.

python repeated.py [--seconds N] [--processes N] [--keep FOLDER] PROGRAM...
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", default="60")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="leave the workspace there")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    slopes: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary:
        folder = str(options.keep or temporary)
        for number in range(options.processes):
            place = ["-o", folder] if number == 0 else [folder]
            words = ["causal", *place, "--seconds", options.seconds, "--json", "--", *options.program]
            command = [sys.executable, "-m", "kprof_inject", *words]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            for found in json.loads(done.stdout[done.stdout.index("[\n {") :]):
                print(
                    f"{found['kernel']}: {found['seconds']:.1f} s, {found['timed']} times, {found['ended']}", flush=True
                )
                for place, one in enumerate(found["places"]):
                    if one["slope"]:
                        # Two places may have the same name.
                        slopes[f"{found['kernel']} {place} {one['scope']}"].append(one["slope"])
                        print(f"  {one['scope']} {one['slope']}", flush=True)
    for name, found in slopes.items():
        agree = max(one["low"] for one in found) <= min(one["high"] for one in found)
        widest = max(one["high"] - one["low"] for one in found) / 2
        texts = ", ".join(f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" for one in found)
        print(f"{name:40} {texts}  widest ± {widest:.3f}  {'agree' if agree else 'DIFFER'}")


if __name__ == "__main__":
    main()

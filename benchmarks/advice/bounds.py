"""Compare bounds by virtual removal with what the known edits of flawed kernels win.

    python benchmarks/advice/bounds.py [--only NAME,...] [--out DIR] [--seconds N]

Needs a GPU and the package. A line for each case has what the edit won, and for each place what its removal would win,
what the finding promised, and whether the bound is no less than what the edit won, within both intervals. A refusal is
printed with its reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from judge import PROFILE_TIMEOUT_S, PROGRAM, Gain, chosen_cases, gain_or_error

KINDS = "invariant,reduction-in-loop,special-functions,unpipelined,table"


def main() -> None:
    """Compare the cases that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("bounds_out"))
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    holds = []
    for case in chosen_cases(options.only, "" if options.only else KINDS):
        gain = gain_or_error(case)
        if isinstance(gain, str):
            print(f"{case.name}: {gain}", flush=True)
            continue
        print(f"{case.name}: the edit won {100 * gain.won:.1f} %", flush=True)
        for bound in bounds_of(case.name, options.out, options.seconds):
            print(f"    {line(bound, gain)}", flush=True)
            if bound["gain"]:
                holds.append(bound["gain"]["high"] >= gain.low)
    print(f"{sum(holds)} of {len(holds)} bounds hold")


def bounds_of(case: str, out: Path, seconds: float) -> list[dict[str, Any]]:
    """Return the bounds that ``try`` measures on a case's flawed launch."""
    command = [sys.executable, "-m", "kprof_inject", "try", "-o", str(out / case), "--json"]
    command += ["--seconds", str(seconds), "--", sys.executable, str(PROGRAM), case]
    with (out / f"{case}.log").open("w") as log:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, timeout=PROFILE_TIMEOUT_S)
    begin = ended.stdout.find('{\n "schema"')
    kernels = json.loads(ended.stdout[begin:])["kernels"] if begin >= 0 else []
    return [bound for kernel in kernels for bound in kernel["record"]["bounds"]]


def line(bound: dict[str, Any], gain: Gain) -> str:
    """Return a place, and what it is worth."""
    promised = "" if bound["predicted"] is None else f", promised at most {100 * bound['predicted']:.1f} %"
    if not bound["gain"]:
        return f"{bound['reason']}: {bound['removed']}: no bound ({bound['refusal']}){promised}"
    found = bound["gain"]
    holds = "holds" if found["high"] >= gain.low else "TOO LOW"
    error = 50 * (found["high"] - found["low"])
    return f"{bound['reason']}: {bound['removed']}: {100 * found['won']:.1f} % ± {error:.1f}{promised}: {holds}"


if __name__ == "__main__":
    main()

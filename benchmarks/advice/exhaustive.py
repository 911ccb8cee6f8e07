"""Compare what ``try`` wins with an exhaustive search over numbers of stages and warps, on saved launches.

    python benchmarks/advice/exhaustive.py WORKSPACE [--kernel GLOB] [--seconds N] [--json FILE]

Needs a GPU, the package, and a workspace of ``profile --keep-launches``. Both search by the same means: builds of the
kernel between launches of the unchanged one. A line for each kernel has the gain that ``try`` confirmed, that of the
best combination, and how many builds and launches each took. What ``try`` has that no combination has, such as another
order of programs, counts for it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

STAGES, WARPS = (1, 2, 3, 4, 5), (1, 2, 4, 8, 16)
MAX_SLOWER = 0.03
TIMEOUT_S = 500


def main() -> None:
    """Compare the kernels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--kernel", default="*", help="only kernels whose names match this glob")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    words = ["--kernel", options.kernel, "--seconds", str(options.seconds), "--no-bounds"]
    combinations = [f"num_stages={stages},num_warps={warps}" for stages, warps in product(STAGES, WARPS)]
    tried = results_of(options.workspace, words)
    searched = results_of(options.workspace, [*words, *(word for one in combinations for word in ("--edit", one))])
    rows = [row_of(tried[variant], searched[variant]) for variant in tried if variant in searched]
    for row in rows:
        print(line(row), flush=True)
    judged = [row for row in rows if row["slower"] is not None]
    print(f"at most {MAX_SLOWER:.0%} slower: {sum(row['slower'] <= MAX_SLOWER for row in judged)} of {len(judged)}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


def results_of(workspace: Path, words: Sequence[str]) -> dict[str, Any]:
    """Return what ``try`` found for each variant."""
    command = [sys.executable, "-m", "kprof_inject", "try", "-o", str(workspace), "--json", *words]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S)
    begin = ended.stdout.find('{\n "schema"')
    kernels = json.loads(ended.stdout[begin:])["kernels"] if begin >= 0 else []
    return {kernel["record"]["variant"]: kernel for kernel in kernels}


def row_of(tried: dict[str, Any], searched: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a kernel. ``slower`` is None if nothing could be measured."""
    record = tried["record"]
    found = [one for one in searched["record"]["tried"] if one["gain"] and not one["refusal"]]
    best = max(found, key=lambda one: one["gain"]["low"], default=None)
    won = tried["apply"]["gain"]["won"] if tried["apply"] else 0.0
    possible = max(best["gain"]["won"], 0.0) if best else 0.0
    measured = [one for one in record["tried"] if one["gain"] or one["outcome"] == "same code"]
    return {
        "kernel": record["name"],
        "headline": tried["headline"],
        "won": won,
        "best": text_of(best) if best else "",
        "possible": possible,
        "slower": (1 - won) / (1 - possible) - 1 if found and measured else None,
        "builds": (len(record["tried"]), len(searched["record"]["tried"])),
        "launches": (launches_of(record), launches_of(searched["record"])),
        "seconds": record["gpu_seconds"] + record["compile_seconds"],
        "results": sorted({one["results"] for one in record["tried"]} - {""}),
    }


def text_of(tried: dict[str, Any]) -> str:
    """Return edits as users write them."""
    return ",".join(f"{edit['kind']}={edit['value']}" for edit in tried["edits"])


def launches_of(record: dict[str, Any]) -> int:
    """Return how many launches the pairs took."""
    gains = [gain for one in record["tried"] for gain in (one["gain"], one["confirmed"]) if gain]
    return sum(2 * gain["pairs"] for gain in gains) * int(record["launches"])


def line(row: dict[str, Any]) -> str:
    """Return the line of a kernel."""
    slower = "not measured" if row["slower"] is None else f"{row['slower']:.1%} slower"
    builds, launches = (" of ".join(map(str, row[what])) for what in ("builds", "launches"))
    return (
        f"{row['headline']}\n    best combination {row['best'] or 'none'} ({row['possible']:.1%}): {slower}; "
        f"{builds} builds, {launches} launches, {row['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()

"""Compare what ``try`` wins with an exhaustive search over numbers of stages and warps, on saved launches.

    python benchmarks/advice/exhaustive.py WORKSPACE [--kernel GLOB] [--seconds N] [--limit N] [--json FILE]

Needs a GPU, the package, and a workspace of ``profile --keep-launches``. Both search by the same means: builds of the
kernel between launches of the unchanged one. A line for each kernel has the gain that ``try`` confirmed, that of the
best combination, and how many builds and launches each took. What ``try`` has that no combination has, such as another
order of programs, counts for it. ``--limit`` ends each of the two searches after so many seconds; the kernels that both
have done by then are compared. FILE also has the records of both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from kprof_inject.capture.edits import EditsRecord, TriedEdits
from kprof_inject.workspace import Workspace

STAGES, WARPS = (1, 2, 3, 4, 5), (1, 2, 4, 8, 16)
MAX_SLOWER = 0.03


def main() -> None:
    """Compare the kernels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--kernel", default="*", help="only kernels whose names match this glob")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--limit", type=float, default=500, help="seconds that each search may take for all kernels")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    words = ["--kernel", options.kernel, "--seconds", str(options.seconds)]
    combinations = [f"num_stages={stages},num_warps={warps}" for stages, warps in product(STAGES, WARPS)]
    asked = [*words, *(word for one in combinations for word in ("--edit", one))]
    tried = records_of(options.workspace, words, options.limit)
    searched = records_of(options.workspace, asked, options.limit)
    rows = [row_of(tried[variant], searched[variant]) for variant in tried if variant in searched]
    for row in rows:
        print(line(row), flush=True)
    judged = [row for row in rows if row["slower"] is not None]
    print(f"at most {MAX_SLOWER:.0%} slower: {sum(row['slower'] <= MAX_SLOWER for row in judged)} of {len(judged)}")
    if options.json is not None:
        both = {"rows": rows, "tried": list(tried.values()), "searched": list(searched.values())}
        options.json.write_text(json.dumps(to_builtins(both), indent=1))


def records_of(workspace: Path, words: Sequence[str], limit_s: float) -> dict[str, EditsRecord]:
    """Return what ``try`` found for each variant until its time was over."""
    begun_ns = time.time_ns()
    command = [sys.executable, "-m", "kprof_inject", "try", "-o", str(workspace), *words]
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=limit_s)
    except subprocess.TimeoutExpired:
        print(f"not all kernels were tried in {limit_s:.0f} s", file=sys.stderr)
    opened = Workspace(workspace)
    records = {variant: record for variant in opened.tried_variants() if (record := opened.edits(variant)) is not None}
    return {variant: record for variant, record in records.items() if record.host_ns >= begun_ns}


def row_of(tried: EditsRecord, searched: EditsRecord) -> dict[str, Any]:
    """Return the figures of a kernel. ``slower`` is None if nothing could be measured."""
    found = [one for one in searched.tried if one.gain and not one.refusal]
    best = max(found, key=lambda one: one.gain.low if one.gain else 0.0, default=None)
    winner = tried.winner
    won = winner.final_gain.won if winner and winner.final_gain else 0.0
    possible = max(best.gain.won, 0.0) if best and best.gain else 0.0
    measured = [one for one in tried.tried if one.gain or one.outcome == "same code"]
    return {
        "kernel": tried.name,
        "refusal": tried.refusal,
        "edits": text_of(winner),
        "won": won,
        "best": text_of(best),
        "possible": possible,
        "slower": (1 - won) / (1 - possible) - 1 if found and measured else None,
        "builds": (len(tried.tried), len(searched.tried)),
        "launches": (launches_of(tried), launches_of(searched)),
        "seconds": tried.gpu_seconds + tried.compile_seconds,
        "results": sorted({one.results for one in tried.tried} - {""}),
    }


def text_of(tried: TriedEdits | None) -> str:
    """Return edits as users write them."""
    return ",".join(f"{edit.kind}={edit.value}" for edit in tried.edits) if tried else ""


def launches_of(record: EditsRecord) -> int:
    """Return how many launches the pairs took."""
    gains = [gain for one in record.tried for gain in (one.gain, one.confirmed) if gain]
    return sum(2 * gain.pairs for gain in gains) * record.launches


def line(row: dict[str, Any]) -> str:
    """Return the line of a kernel."""
    slower = "not measured" if row["slower"] is None else f"{row['slower']:.1%} slower"
    builds, launches = (" of ".join(map(str, row[what])) for what in ("builds", "launches"))
    return (
        f"{row['kernel']}: {row['edits'] or 'nothing'} ({row['won']:.1%}){row['refusal']}\n    best combination "
        f"{row['best'] or 'none'} ({row['possible']:.1%}): {slower}; {builds} builds, {launches} launches, "
        f"{row['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()

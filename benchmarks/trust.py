"""What records cost four kernels, for three selections each, as kprof-inject itself judges it. Needs a GPU.

    python benchmarks/trust.py [--json FILE]

The clean times are taken once for each kernel, by ``dump``, the others by a ``run`` for each selection. Use a GPU that
does nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
# Enough that each gets its full number of timed launches.
REPEAT = "60"

FUNC, LOOPS, LOADS = "func", "func + loop + iter", "each load"

# Vector add has no loop. A pipelined loop has asynchronous copies where its source has loads.
SELECTIONS = {
    "vector_add": {FUNC: ["func"], LOOPS: ["func"], LOADS: ["op(tt.load)"]},
    "matmul": {FUNC: ["func"], LOOPS: ["func", "loop", "iter"], LOADS: ["op(*async_copy*)"]},
    "attention": {FUNC: ["func"], LOOPS: ["func", "loop", "iter"], LOADS: ["op(*async_copy*)"]},
    "layer_norm": {FUNC: ["func"], LOOPS: ["func", "loop", "iter"], LOADS: ["op(tt.load)"]},
}

Trust = dict[str, Any]


def kprof(*arguments: str | Path) -> str:
    words = [sys.executable, "-m", "kprof_inject", *map(str, arguments)]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout


def measure(example: str, workspace: Path) -> dict[str, Trust]:
    """The verdict on one example by selection."""
    program = ("--", EXAMPLES / f"{example}.py", "--repeat", REPEAT)
    kprof("dump", "-o", workspace, *program)
    verdicts: dict[tuple[str, ...], Trust] = {}
    for selectors in SELECTIONS[example].values():
        if tuple(selectors) in verdicts:
            continue
        kprof("insert", workspace, *(word for selector in selectors for word in ("--at", selector)))
        kprof("run", workspace, *program)
        (launch,) = json.loads(kprof("report", workspace, "--json"))
        verdicts[tuple(selectors)] = launch["trust"]
    return {selection: verdicts[tuple(selectors)] for selection, selectors in SELECTIONS[example].items()}


def table(rows: dict[str, dict[str, Trust]]) -> str:
    lines = ["| | " + " | ".join((FUNC, LOOPS, LOADS)) + " |", "|---" * 4 + "|"]
    lines += [f"| {example} | " + " | ".join(map(cell, row.values())) + " |" for example, row in rows.items()]
    lines.append("")
    for example, row in rows.items():
        for selection, trust in row.items():
            before, after = trust["clean"], trust["with_records"]
            what = " ".join(f"--at '{selector}'" for selector in SELECTIONS[example][selection])
            lines.append(f"{example} {what}: {trust['text']}")
            lines.append(f"  {of(before)}\n  {of(after)}, with records")
    lines.append(f"geometric mean of the overheads with {LOOPS}: {mean_percent(rows, LOOPS):+.2f} %")
    return "\n".join(lines)


def cell(trust: Trust) -> str:
    if not tells(trust):
        return str(trust["level"])
    return f"{trust['overhead_percent']:+.1f} % ± {trust['overhead_error_percent']:.1f}, {trust['level']}"


def tells(trust: Trust) -> bool:
    """Whether its figure is worth something."""
    return trust["overhead_percent"] is not None and trust["level"] != "cannot tell"


def of(cost: dict[str, Any]) -> str:
    time_ns = cost["median_time_ns"]
    shown = "no time" if time_ns is None else f"{time_ns / 1e3:.2f} µs ({cost['launches_timed']} launches)"
    return (
        f"{shown}, {cost['registers']} registers, {cost['spills']} spills, {cost['shared_bytes']} shared bytes, "
        f"{cost['ctas_per_sm']} CTAs per SM"
    )


def mean_percent(rows: dict[str, dict[str, Trust]], selection: str) -> float:
    """Of the ratios; a kernel without a figure is left out."""
    known = [row[selection]["overhead_percent"] for row in rows.values() if tells(row[selection])]
    logarithms = [math.log1p(percent / 100) for percent in known]
    return 100 * math.expm1(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    rows = {}
    for example in SELECTIONS:
        with tempfile.TemporaryDirectory() as folder:
            rows[example] = measure(example, Path(folder, "workspace"))
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

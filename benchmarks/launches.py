"""What many launches of a small kernel cost the host, with us and with stock Proton, and whether memory stays flat.

    python benchmarks/launches.py [--launches N] [--json FILE]

10,000 launches without us and with ``--launches last``; fewer where every launch is kept, ours and Proton's. Each
figure comes from a process of its own, one after the other. Needs a GPU that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from child import run

from kprof_inject.capture.reader import read_capture

PROGRAM = Path(__file__).with_name("launch_loop.py")
KEPT_LAUNCHES = 1000
PROTON_LAUNCHES = 300

Figures = dict[str, Any]


def measure(launches: int, folder: Path) -> Iterator[tuple[str, Figures]]:
    """Each row's title, and its figures."""
    workspace, out = folder / "workspace", folder / "out.json"

    def program(count: int) -> tuple[str | Path, ...]:
        return PROGRAM, out, "--launches", str(count)

    def figures() -> Figures:
        return dict(json.loads(out.read_text()))

    def with_us(spec: str, count: int) -> Figures:
        run("-m", "kprof_inject", "run", workspace, "--launches", spec, "--", *program(count))
        capture = read_capture(sorted((workspace / "captures").iterdir())[-1])
        return {**figures(), "kept": len(capture.launches)}

    run(*program(launches))
    yield "without us", figures()
    run("-m", "kprof_inject", "dump", "-o", workspace, "--", *program(10))
    run("-m", "kprof_inject", "insert", workspace, "--at", "func")
    yield "--launches last", with_us("last", launches)
    yield "--launches all", with_us("all", KEPT_LAUNCHES)
    (override,) = (workspace / "override").iterdir()
    run(
        *program(PROTON_LAUNCHES),
        *("--proton", folder / "proton"),
        TRITON_ALWAYS_COMPILE="1",
        TRITON_KERNEL_OVERRIDE="1",
        TRITON_OVERRIDE_DIR=str(override),
        TRITON_CACHE_DIR=str(folder / "proton-cache"),
    )
    yield "stock Proton", figures()
    run(*program(launches))
    yield "without us, again", figures()


def table(rows: dict[str, Figures]) -> str:
    base_us = (rows["without us"]["median_us"] + rows["without us, again"]["median_us"]) / 2
    lines = [
        "| | launches | host time per launch, median | mean | added to the median | resident memory | device memory |",
        "|---" * 7 + "|",
    ]
    for title, row in rows.items():
        cells = [
            title,
            f"{row['launches']:,}" + (f" ({row['kept']:,} kept)" if "kept" in row else ""),
            f"{row['median_us']:.1f} µs",
            f"{row['mean_us']:.1f} µs",
            f"{row['median_us'] - base_us:+.1f} µs",
            growth(row["resident_bytes"]),
            growth(row["device_bytes"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    added = {title: row["median_us"] - base_us for title, row in rows.items()}
    for title in ("--launches last", "--launches all"):
        if added[title] > 0:
            lines.append(f"{title}: stock Proton adds {added['stock Proton'] / added[title]:.0f} times as much")
    lines.append(f"Proton's finalize after {PROTON_LAUNCHES} launches: {rows['stock Proton']['finalize_s']:.2f} s")
    return "\n".join(lines)


def growth(bytes_at: dict[str, int]) -> str:
    """Memory in use after a tenth of the launches, and what it grew by until all were made."""
    before, after = bytes_at.values()
    return f"{before / 1e6:,.1f} MB {(after - before) / 1e6:+,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=10_000, help="without us, and of which one is kept")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = dict(measure(arguments.launches, Path(folder)))
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

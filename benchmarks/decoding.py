"""How fast captures become traces, how large these are, and in how much memory, with us and with stock Proton.

    python benchmarks/decoding.py [--scopes N]... [--ending .json]... [--gpu] [--json FILE]

By itself it makes captures of one launch whose rings are full (16 bytes of buffer for each scope), and needs no GPU.
With --gpu it captures launches of a matmul instead, and has stock Proton profile as many launches of the same kernel
with the same records: then Proton's finalize is what ours is held against. Each figure comes from a process of its own,
and from its forks where it has some.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from child import run, run_and_watch
from synthetic_capture import write_capture

HERE = Path(__file__).parent
SCOPES = (1_000_000, 4_000_000, 16_000_000)
ENDINGS = (".json", ".pftrace")
# Of the matmul: 256 CTAs of 4 warps, each with the function, its loop and 64 iterations.
SCOPES_OF_A_LAUNCH = 256 * 4 * 66
# Proton's finalize takes minutes for more.
MOST_FOR_PROTON = 4_000_000

Figures = dict[str, Any]


def decoded(capture: Path, trace: Path) -> Figures:
    printed, most_bytes = run_and_watch(HERE / "decode_once.py", capture, trace, every_seconds=0.02)
    trace.unlink()
    figures: Figures = json.loads(printed)
    # Forks count for the one, the moments between two looks for the other.
    return figures | {"peak_bytes": max(most_bytes, figures["peak_bytes"])}


def synthetic(scopes: Sequence[int], endings: Sequence[str], folder: Path) -> Iterator[Figures]:
    for count in scopes:
        capture = folder / f"capture-{count}"
        write_capture(capture, count)
        for ending in endings:
            yield {"what": f"full rings, {ending}", **decoded(capture, folder / f"trace{ending}")}


def on_gpu(scopes: Sequence[int], endings: Sequence[str], folder: Path) -> Iterator[Figures]:
    workspace, out = folder / "workspace", folder / "out.json"
    program = HERE / "matmul_loop.py", out, "--launches"
    run("-m", "kprof_inject", "dump", "-o", workspace, "--", *program, "1")
    run("-m", "kprof_inject", "insert", workspace, "--at", "func", "--at", "loop", "--at", "iter")
    (override,) = (workspace / "override").iterdir()
    for count in scopes:
        launches = str(max(1, round(count / SCOPES_OF_A_LAUNCH)))
        kept = "--launches", "all", "--max-bytes", str(8 << 30)
        run("-m", "kprof_inject", "run", workspace, *kept, "--", *program, launches)
        capture = max((workspace / "captures").iterdir())
        for ending in endings:
            yield {"what": f"matmul, {ending}", **decoded(capture, folder / f"trace{ending}")}
        if count > MOST_FOR_PROTON:
            continue
        run(
            *program,
            launches,
            *("--proton", folder / "proton"),
            TRITON_ALWAYS_COMPILE="1",
            TRITON_KERNEL_OVERRIDE="1",
            TRITON_OVERRIDE_DIR=str(override),
            TRITON_CACHE_DIR=str(folder / "proton-cache"),
        )
        yield {"what": "Proton's finalize", "scopes": int(launches) * SCOPES_OF_A_LAUNCH, **json.loads(out.read_text())}


def table(rows: Sequence[Figures]) -> str:
    lines = [
        "| | scopes | seconds | million scopes/s | bytes/scope | peak memory | of 3 x raw + 100 MB |",
        "|---" * 7 + "|",
    ]
    for row in rows:
        cells = [
            row["what"],
            f"{row['scopes']:,}",
            f"{row['seconds']:.2f}",
            f"{row['scopes'] / row['seconds'] / 1e6:.2f}",
            f"{row['bytes'] / row['scopes']:.0f}",
        ]
        if "peak_bytes" in row:
            bound = 3 * row["raw_bytes"] + 100e6
            cells += [f"{row['peak_bytes'] / 1e6:.0f} MB", f"{100 * row['peak_bytes'] / bound:.0f} %"]
        else:
            cells += ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *ratios(rows)])


def ratios(rows: Sequence[Figures]) -> Iterator[str]:
    """How many times as many scopes per second we make as Proton, of the same launches."""
    for proton in rows:
        if proton["what"] != "Proton's finalize":
            continue
        for row in rows:
            if row["scopes"] == proton["scopes"] and row is not proton:
                ratio = proton["seconds"] / row["seconds"]
                yield f"{row['what']}, {row['scopes']:,} scopes: {ratio:.1f} x as fast as Proton's finalize"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scopes", type=int, action="append")
    parser.add_argument("--ending", action="append")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    measure = on_gpu if arguments.gpu else synthetic
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(arguments.scopes or SCOPES, arguments.ending or ENDINGS, Path(folder)))
    print(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

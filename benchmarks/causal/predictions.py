"""Do slopes foretell what edits win? For each kernel of ``edits.py``: slope × cycles saved against the edit itself.

    python predictions.py [--seconds N] [--only NAME,...] [--keep FOLDER]

The slope is that of the kernel as it is, at the place that the edit shortens. How many cycles are saved in each
execution is what that place takes in captures of both kernels; of ``stages`` it is what the waits for copies take. What
the edit wins is measured by launches of both in turn, in one process, back to back.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLACES = {
    "exponentials": ("exp2", "exp2"),
    "reduction": ("reduce", "reduce"),
    "stages": ("copies", "wait"),
    "epilogue": ("epilogue", "epilogue"),
    "hoisted": ("loads", "loads"),
    "producer": ("asm", "asm"),
}
"""Of each edit, how the names of the places begin: of those with the slope, and of those that get shorter."""


LAUNCH = "10"
"""Which launch is recorded, and delayed: the first ones find nothing in the caches."""


def kprof(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "kprof_inject", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr[-2000:]}")
    return done.stdout


def json_in(printed: str) -> Any:
    return json.loads(printed[printed.index("[\n {") :])


def program(name: str, *more: str) -> list[str]:
    launches = ["--launches", "4000"] if name == "producer" else []
    return ["--", "python3", str(HERE / "edits.py"), name, *launches, *more]


def record_edited(folder: Path, name: str) -> None:
    places = ["--at", "parts", "--at", "func", "--at", "loop"]
    kprof("profile", "-o", str(folder), *places, "--launches", LAUNCH, "--no-replay", *program(name, "--edited"))


def cycles_in(folder: Path, begin: str) -> float:
    """What the places take in all iterations of a CTA, in cycles."""
    (report,) = json_in(kprof("report", str(folder), "--json"))
    mine = [scope for scope in report["scopes"] if scope["scope"].startswith(begin) and scope["count"]]
    return sum(scope["mean_cycles"] * scope["count"] / report["ctas"] / len(scope["warps"]["ids"]) for scope in mine)


def measured(name: str) -> tuple[float, float]:
    """What the kernel takes as it is, in ns, and which part of that the edit wins."""
    import torch

    sys.path.insert(0, str(HERE))
    import edits

    launches = [edits.EDITS[name](edited) for edited in (False, True)]
    graphs = []
    for launch in launches:
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(10):
                launch()
        graphs.append(graph)
    times: list[list[float]] = [[], []]
    for _ in range(60):
        for number, graph in enumerate(graphs):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times[number].append(1e5 * begin.elapsed_time(end))
    ratios = [edited / plain for plain, edited in zip(*times, strict=True)]
    return statistics.median(times[0]), 1 - statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", default="10")
    parser.add_argument("--only", default=",".join(PLACES))
    parser.add_argument("--keep", type=Path, help="leave the workspaces there")
    options = parser.parse_args()
    names = options.only.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        # What a place takes is counted in cycles, and does not mind company; what delays do is timed.
        with ThreadPoolExecutor() as pool:
            recordings = {name: pool.submit(record_edited, folder / name / "edited", name) for name in names}
        for name, recording in recordings.items():
            try:
                recording.result()
                print(told(name, folder / name, options.seconds), flush=True)
            except RuntimeError as error:
                print(f"{name:14} {error}", flush=True)


def told(name: str, folder: Path, seconds: str) -> str:
    """A line for one edit."""
    plain = folder / "plain"
    words = ["causal", "-o", str(plain), "--launches", LAUNCH, "--seconds", seconds, "--json", *program(name)]
    (found,) = json_in(kprof(*words))
    slope_begin, shorter_begin = PLACES[name]
    places = [one for one in found["places"] if one["scope"].startswith(slope_begin) and one["slope"]]
    if not places:
        return f"{name:14} has no slope: { {one['scope']: one['reason'] for one in found['places']} }"
    # Of a warp-specialised kernel, the edited side is the first.
    slope = places[0]["slope"]["value"] if name == "producer" else max(one["slope"]["value"] for one in places)
    saved = cycles_in(plain, shorter_begin) - cycles_in(folder / "edited", shorter_begin)
    cycles = found["clean_ns"] * found["clock_mhz"] / 1e3
    foretold = slope * saved * (found["chain"] or 1) / cycles
    clean_ns, won = measured(name)
    agrees = foretold * won > 0 and 1 / 1.5 <= foretold / won <= 1.5
    slopes = ", ".join(f"{one['scope']} {one['slope']['value']:.2f}" for one in found["places"] if one["slope"])
    return (
        f"{name:14} {clean_ns / 1e3:8.1f} us  slope {slope:5.2f}  saved {saved:8.0f} cycles a CTA  "
        f"foretold {100 * foretold:6.2f} %  won {100 * won:6.2f} %  {'agrees' if agrees else 'DIFFERS'}  ({slopes})"
    )


if __name__ == "__main__":
    main()

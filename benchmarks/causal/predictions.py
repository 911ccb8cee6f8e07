"""Do slopes foretell what edits win? For each kernel of ``edits.py``: slope × cycles saved against the edit itself.

    python predictions.py [--seconds N] [--only NAME,...] [--keep FOLDER]

The slope is that of the kernel as it is, at the place that the edit shortens. How many cycles are saved in each
execution is what that place takes in captures of both kernels, on average. Of ``stages`` it is what the wait for copies
takes, and the slope is that of the copies' issue: they arrive the earlier. What the edit wins is measured by launches
of both in turn, in one process, back to back.
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
    **dict.fromkeys(("exponentials", "reduction", "epilogue", "hoisted"), ("work", "work")),
    "stages": ("copies", "wait"),
    "producer": ("asm", "asm"),
}
"""Of each edit, how the names of the places begin: of the one with the slope, and of the one that gets shorter; of
several the first, in the order of the text."""


MARKED = {name: ("marker",) for name, (begin, _) in PLACES.items() if begin == "work"}

LAUNCH = "10"
"""Which launch is recorded, and delayed: the first ones find nothing in the caches."""


def kprof(*words: str) -> str:
    command = [sys.executable, "-m", "kprof_inject", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words}: {done.stderr[-2000:]}")
    return done.stdout


def json_in(printed: str) -> Any:
    return json.loads(printed[printed.index("[\n {") :])


def program(name: str, *more: str) -> list[str]:
    launches = ["--launches", "4000"] if name == "producer" else []
    return ["--", "python3", str(HERE / "edits.py"), name, *launches, *more]


def record_edited(folder: Path, name: str) -> None:
    places = [word for one in ("parts", *MARKED.get(name, ()), "func", "loop") for word in ("--at", one)]
    kprof("profile", "-o", str(folder), *places, "--launches", LAUNCH, "--replay", "none", *program(name, "--edited"))


def cycles_in(folder: Path, begin: str) -> float:
    """What an execution of the place takes, on average; nothing where there is none."""
    (report,) = json_in(kprof("report", str(folder), "--json"))
    return next((one["mean_cycles"] for one in report["scopes"] if one["scope"].startswith(begin) and one["count"]), 0)


def measured(name: str) -> tuple[float, float]:
    """What the kernel takes as it is, and what the edit wins, in ns."""
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
    return statistics.median(times[0]), statistics.median(one - other for one, other in zip(*times, strict=True))


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
    place = next((one for one in found["places"] if one["scope"].startswith(slope_begin) and one["slope"]), None)
    if place is None:
        return f"{name:14} has no slope: { {one['scope']: one['reason'] for one in found['places']} }"
    slope = place["slope"]["value"]
    saved = cycles_in(plain, shorter_begin) - cycles_in(folder / "edited", shorter_begin)
    foretold_ns = slope * saved * place["executions_by_chain"] / found["clock_mhz"] * 1e3
    clean_ns, won_ns = measured(name)
    agrees = foretold_ns * won_ns > 0 and 1 / 1.5 <= foretold_ns / won_ns <= 1.5
    slopes = ", ".join(f"{one['scope']} {one['slope']['value']:.2f}" for one in found["places"] if one["slope"])
    return (
        f"{name:14} {clean_ns / 1e3:8.1f} us  slope {slope:5.2f}  saved {saved:6.0f} cycles x "
        f"{place['executions_by_chain']:.0f}  foretold {foretold_ns / 1e3:7.2f} us  won {won_ns / 1e3:7.2f} us  "
        f"{'agrees' if agrees else 'DIFFERS'}  ({slopes})"
    )


if __name__ == "__main__":
    main()

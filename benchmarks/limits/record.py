"""Records what ``against_ncu.py`` compares: captures of ``kernels.py``, and what Nsight Compute counts of the same.

    python benchmarks/limits/record.py OUT [--only NAME,...] [--at SELECTOR]... [--same-launches]

Needs a GPU and ``ncu``. OUT gets ``captures`` (a workspace), ``times.jsonl`` (when each kernel was launched) and
``ncu.csv``, with a row for each launch, whose kernel is called by its name in ``kernels.py``. With ``--same-launches``,
Nsight Compute counts the launches with records that the capture is of, and not those of the program by itself.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from against_ncu import METRICS
from kernels import kernel_names

HERE = Path(__file__).parent
PROGRAM = [sys.executable, str(HERE / "kernels.py"), "--launches", "2"]
TOOL = [sys.executable, "-m", "kprof_inject"]
# What Inductor makes has names of its own; others are known by what they are called in the files here.
KERNELS = f"regex:^({'|'.join(sorted(kernel_names()))}|triton_.*)$"
MOST_BYTES = "4000000000"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--at", action="append", default=[])
    parser.add_argument("--same-launches", action="store_true")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "times.jsonl").unlink(missing_ok=True)
    program = [*PROGRAM, *([f"--only={arguments.only}"] if arguments.only else [])]
    workspace = str(out / "captures")
    selected = [word for one in arguments.at or ["func", "loop", "iter"] for word in ("--at", one)]
    subprocess.run([*TOOL, "dump", "-o", workspace, "--", *program], check=True)
    subprocess.run([*TOOL, "insert", workspace, *selected], check=True)
    limits = ["--fit", "--launches", "all", "--no-replay", "--max-bytes", MOST_BYTES]
    run = [*TOOL, "run", workspace, *limits, "--", *program, "--times", str(out / "times.jsonl")]
    if arguments.same_launches:
        count([*run[: run.index("--fit")], *run[run.index("--fit") + 1 :]], out / "ncu.csv")
    else:
        subprocess.run(run, check=True)
        count(program, out / "ncu.csv")


def count(command: Sequence[str], file: Path) -> None:
    """Have Nsight Compute count what the kernels do that a command launches."""
    known = _known_metrics()
    ncu = ["ncu", "--clock-control", "none", "--target-processes", "all", "--csv", "--page", "raw"]
    ncu += ["--print-units", "base", "--nvtx", "--print-nvtx-rename", "kernel", "-k", KERNELS]
    ncu += ["--metrics", ",".join(name for name in METRICS if name.partition(".")[0] in known)]
    with file.open("w") as out:
        subprocess.run([*ncu, *command], stdout=out, check=True)


def _known_metrics() -> set[str]:
    said = subprocess.run(["ncu", "--query-metrics", "--csv"], capture_output=True, text=True, check=True).stdout
    return {row[0] for row in csv.reader(said.splitlines()) if row}


if __name__ == "__main__":
    main()

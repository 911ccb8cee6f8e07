"""Records what ``against_ncu.py`` compares: captures of ``kernels.py``, and what Nsight Compute counts of the same.

    python benchmarks/limits/record.py OUT [--only NAME,...] [--at SELECTOR]...

Needs a GPU, ``ncu``, and the permission to read counters. The kernels are profiled in groups, each in a program of its
own, so that those of the same name and options are captured apart. OUT gets a workspace ``captures-N`` for each group,
``times.jsonl`` (when each kernel was launched) and ``ncu.csv``, with a row for each launch, whose kernel is called by
its name in ``kernels.py``.
"""

import argparse
import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from against_ncu import METRICS
from kernels import KERNELS as LAUNCHES
from kernels import kernel_names

HERE = Path(__file__).parent
PROGRAM = [sys.executable, str(HERE / "kernels.py"), "--launches", "2"]
# Counters of all kernels, also of those that take little of the program's time.
PROFILE = (
    "from kprof_inject.pipeline import saved_launches; saved_launches._MIN_SHARE = 0.0; "
    "from kprof_inject.cli.main import main; main()"
)
GROUPS = 6
# What Inductor makes has names of its own; others are known by what they are called in the files here.
KERNELS = f"regex:^({'|'.join(sorted(kernel_names()))}|triton_.*)$"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default=",".join(LAUNCHES))
    parser.add_argument("--at", action="append", default=[])
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "times.jsonl").unlink(missing_ok=True)
    names = arguments.only.split(",")
    selected = [word for one in arguments.at or ["func", "loop", "iter"] for word in ("--at", one)]
    for number in range(min(GROUPS, len(names))):
        command = [sys.executable, "-c", PROFILE, "profile", "-o", str(out / f"captures-{number}"), *selected]
        # Nobody reads the trace, so it has the format that is written fastest.
        command += ["--trace", str(out / "tree.hatchet"), "--launches", "all", "--", *PROGRAM]
        command += ["--only", ",".join(names[number::GROUPS])]
        subprocess.run([*command, "--times", str(out / "times.jsonl")], check=True, stdout=subprocess.DEVNULL)
    count([*PROGRAM, "--only", arguments.only], out / "ncu.csv")


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

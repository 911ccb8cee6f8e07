"""Measure the CPU time of a report on many launches of many kernels. All are copies of the demo's kernel.

    python benchmarks/many_kernels.py [--kernels N] [--launches N]

Launches of different kernels alternate, as in a program.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from many_launches import cpu_seconds
from msgspec.structs import replace

import kprof_inject
from kprof_inject.capture.capture_files import KernelRecord
from kprof_inject.capture.encoding import read_sealed, write_sealed
from kprof_inject.capture.schema import KERNEL_FILE

_DEMO = Path(kprof_inject.__file__).parent / "demo" / "captures" / "one-stage" / "process"


def write_capture(folder: Path, kernels: int, launches: int) -> None:
    """Write a capture with ``kernels`` kernels and ``launches`` launches of each."""
    process = folder / "process"
    shutil.copytree(_DEMO, process, ignore=shutil.ignore_patterns("kernels", "end.json", "launches.jsonl"))
    (original,) = (_DEMO / "kernels").iterdir()
    for number in range(kernels):
        copy = process / "kernels" / f"kernel_{number}"
        shutil.copytree(original, copy)
        record = read_sealed(copy / KERNEL_FILE, KernelRecord)
        write_sealed(copy / KERNEL_FILE, replace(record, name=copy.name, program_variant=copy.name))
    recorded = [json.loads(line) for line in (_DEMO / "launches.jsonl").read_text().splitlines()]
    with (process / "launches.jsonl").open("w") as lines:
        for number in range(kernels * launches):
            index, kernel = divmod(number, kernels)
            one = recorded[index % len(recorded)]
            file = f"copy-{number:06}.bin"
            (process / file).hardlink_to(process / one["file"])
            own = {"variant": f"kernel_{kernel}", "index": index, "file": file, "host_ns": one["host_ns"] + number}
            lines.write(json.dumps(one | own, separators=(",", ":")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--launches", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_capture(folder, arguments.kernels, arguments.launches)
        for command in (["report"], ["report", "--json"]):
            print(f"{' '.join(command)}: {cpu_seconds(*command, folder):.1f} s", flush=True)


if __name__ == "__main__":
    main()

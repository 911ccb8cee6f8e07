"""Judges what reports say of communication by the same kernel with communication removed.

    python benchmarks/overlap.py [--repeat 30]

Needs two GPUs that reach each other's memory. ``examples/gather_matmul.py`` runs whole, with its tiles alone, and with
its copies alone, all with records. A report says of each whole launch how long it would take without communication,
and how long it transfers; here this is compared with the launches that do nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.results import load
from kprof_inject.timeline.overlap import Overlap

EXAMPLE = Path(__file__).parent.parent / "examples" / "gather_matmul.py"
RUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", str(EXAMPLE))
SIZES: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "longer tiles": ("--k", "4096"),
    "more copies": ("--senders", "16", "--ctas", "100"),
}


def reports_of(workspace: Path, options: Sequence[str], repeat: int) -> dict[str, list[LaunchAnalysis]]:
    """Profile the example; return its launches by rank, without the first two, which compile."""
    program = [sys.executable, *RUN, "--repeat", str(repeat), *options]
    profile = [
        sys.executable,
        "-m",
        "kprof_inject",
        "profile",
        "--launches",
        "all",
        "-o",
        str(workspace),
        "--",
        *program,
    ]
    subprocess.run(profile, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    found: dict[str, list[LaunchAnalysis]] = {}
    for one in load(workspace).reports:
        if one.launch.index >= 2:
            found.setdefault(f"rank {one.launch.place.rank}", []).append(one)
    return found


def overlaps_of(launches: Sequence[LaunchAnalysis]) -> list[Overlap]:
    found = [one.communication.overlap for one in launches if one.communication]
    return [one for one in found if one]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=30, help="launches of each (default: %(default)s)")
    repeat = parser.parse_args().repeat
    for name, options in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            whole, tiles, copies = (
                reports_of(Path(folder) / part, [*options, *only], repeat)
                for part, only in (("whole", ()), ("tiles", ("--only", "tiles")), ("copies", ("--only", "copies")))
            )
            for rank, launches in sorted(whole.items()):
                overlaps = overlaps_of(launches)
                alone_ns = median(one.duration_ns for one in tiles[rank])
                copies_ns = median(one.transferring_ns for one in overlaps_of(copies[rank]))
                without_ns = median(one.without_ns for one in overlaps)
                transferring_ns = median(one.transferring_ns for one in overlaps)
                both = median(one.both_ns / one.communicating_ns for one in overlaps)
                print(
                    f"{name}, {rank}: {median(one.duration_ns for one in launches) / 1e3:.1f} us whole; "
                    f"without communication {without_ns / 1e3:.1f} us said, {alone_ns / 1e3:.1f} us measured "
                    f"({100 * (without_ns / alone_ns - 1):+.1f} %); transfers {transferring_ns / 1e3:.1f} us said, "
                    f"{copies_ns / 1e3:.1f} us alone; computes in {100 * both:.1f} % of {len(overlaps)} launches' "
                    "communication",
                    flush=True,
                )


if __name__ == "__main__":
    main()

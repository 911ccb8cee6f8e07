"""A persistent kernel whose tasks depend on each other: ``python tasks.py TIMES.json [--late-task TASK --late-us US]``.

Tasks of a kind work for an equal time, each once two tasks of the kind before are done. The times at which tasks were
done, by the device's timer, are stored for each launch.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from passing_time import pass_time

CTAS, ITEMS, KINDS, LAUNCHES = 64, 64, 4, 22


@triton.jit
def tasks_kernel(flags, times, items, count, number, late_ns, late_task):
    for task in range(tl.program_id(0), count, tl.num_programs(0)):
        kind = task // items
        if kind > 0:
            before = (kind - 1) * items
            for other in range(2):
                needed = before + (task + other) % items
                while tl.atomic_add(flags + needed, 0, sem="acquire", scope="gpu") < number:
                    pass
        tl.debug_barrier()
        work_ns = 4000 + 2000 * kind
        if task == late_task:
            work_ns += late_ns
        done = pass_time(work_ns.to(tl.int64))
        tl.store(times + task, done)
        tl.debug_barrier()
        tl.atomic_xchg(flags + task, number, sem="release", scope="gpu")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("times", type=Path)
    parser.add_argument("--late-task", type=int, default=-1)
    parser.add_argument("--late-us", type=float, default=20.0)
    arguments = parser.parse_args()
    flags = torch.zeros(ITEMS * KINDS, dtype=torch.int32, device="cuda")
    found = []
    for number in range(1, LAUNCHES + 1):
        times = torch.zeros(ITEMS * KINDS, dtype=torch.int64, device="cuda")
        late_ns = round(1e3 * arguments.late_us)
        tasks_kernel[(CTAS,)](flags, times, ITEMS, ITEMS * KINDS, number, late_ns, arguments.late_task)
        found.append(times.tolist())
    arguments.times.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

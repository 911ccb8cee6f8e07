"""CPU time to read captures of thousands of short launches: it must grow no faster than their number.

    python benchmarks/many_launches.py [--launches N] [--kernels N]

The captures are made without a GPU: each launch has a few CTAs, with a clock of its own. The peer of each figure is
the same command on a tenth of the launches.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.capture_files import CaptureWriter, KernelRecord, LaunchRecord, ProcessRecord

_CTAS, _WARPS, _ITERATIONS, _SLOTS = 16, 4, 6, 32
_SMS = 132
_CLOCK_GHZ = 1.755
_HEADER_WORDS = 10 + _WARPS
_BEGIN_NS = 1_764_000_000_000_000_000
_BETWEEN_NS = 12_000
_SCOPES = (("kernel", "func", -1), ("loop[0]", "loop", 0), ("iter[0]", "iter", 1), ("load", "op", 2))
FUNC, LOOP, ITER, LOAD = range(len(_SCOPES))


def write_capture(folder: Path, launches: int, kernels: int = 1) -> None:
    """Write a capture with this number of launches, which take the kernels in turn."""
    random = np.random.default_rng(36)
    writer = CaptureWriter(folder / "process", ProcessRecord(pid=1))
    for number in range(launches):
        kernel, index = number % kernels, number // kernels
        words = _words(random, _CTAS + kernel, number * _BETWEEN_NS)
        name = f"kernel_{kernel}"
        record = msgspec.convert(_kernel(name, words.shape[1] * 4), KernelRecord, str_keys=True)
        writer.add_kernel(name, record, "module {}\n", {})
        launch = LaunchRecord(
            variant=name,
            index=index,
            grid=(len(words), 1, 1),
            device=0,
            stream=0,
            host_ns=_BEGIN_NS + number * _BETWEEN_NS,
            file="named-later",
            buffer_bytes=words.nbytes,
        )
        writer.add_launch(launch, memoryview(words).cast("B"))
    writer.finish({})


def _words(random: np.random.Generator, ctas: int, begin_ns: int) -> NDArray[np.uint32]:
    """The buffer of one launch: each warp runs the function, its loop, and the loads in that."""
    steps = random.integers(60, 180, (ctas, _WARPS, _ITERATIONS, 4))
    at = 120 + np.cumsum(steps.reshape(ctas, _WARPS, -1), axis=2)
    scopes = [(ITER, False), (LOAD, False), (LOAD, True), (ITER, True)] * _ITERATIONS
    heads = np.array([(FUNC, False), (LOOP, False), *scopes, (LOOP, True), (FUNC, True)])
    first = np.full((ctas, _WARPS, 1), 50)
    cycles = np.concatenate((first, first + 40, at, at[:, :, -1:] + 40, at[:, :, -1:] + 90), axis=2)
    cycles += random.integers(0, 30, (ctas, _WARPS, 1))
    used = _HEADER_WORDS + 2 * _SLOTS * _WARPS
    words = np.zeros((ctas, -(-used // 32) * 32), dtype="<u4")
    sm = random.permutation(_SMS)[:ctas]
    begins_ns = begin_ns + random.integers(0, 400, ctas)
    lasts_ns = (cycles[:, :, -1].max(axis=1) + 60) / (_CLOCK_GHZ * random.uniform(0.97, 1.03, ctas))
    words[:, 0], words[:, 1], words[:, 2], words[:, 3] = 0xDEADBEEF, np.arange(ctas), sm, _SLOTS * 8 * _WARPS
    times = np.stack((begins_ns, begins_ns + lasts_ns, begins_ns + lasts_ns + 300), axis=1)
    words[:, 4:10] = (times.astype(np.uint64) // 32 * 32 + _BEGIN_NS).view("<u4")
    words[:, 10:_HEADER_WORDS] = 2 * len(heads)
    clock = cycles + (np.rint(begins_ns * _CLOCK_GHZ).astype(np.int64) + sm * 100_000)[:, None, None]
    rings = words[:, _HEADER_WORDS:used].reshape(ctas, _WARPS, _SLOTS, 2)
    rings[:, :, : len(heads), 0] = (heads[:, 1] << 31 | heads[:, 0] << 23) | clock >> 32
    rings[:, :, : len(heads), 1] = clock & 0xFFFFFFFF
    words[:, _HEADER_WORDS:used] = rings.reshape(ctas, -1)
    return words


def _kernel(name: str, stride_bytes: int) -> dict[str, object]:
    return {
        "name": name,
        "layout": "timed",
        "scope_ids": {str(index): scope for index, (scope, _, _) in enumerate(_SCOPES)},
        "sm_clock_hz": 1.98e9,
        "sm_count": _SMS,
        "mode": {"buffer": "shared", "buffer_bytes": _SLOTS * 8 * _WARPS, "clock_bits": 64},
        "metadata": {"num_warps": _WARPS, "profile_scratch_size": stride_bytes},
        "scope_table": {
            "kernel": name,
            "scopes": [
                {
                    "record": scope,
                    "name": scope,
                    "kind": kind,
                    "source": {"file": "/src/kernel.py", "line": 10 + index, "column": 1},
                    "called_from": [],
                    "parent": parent,
                }
                for index, (scope, kind, parent) in enumerate(_SCOPES)
            ],
        },
    }


def cpu_seconds(*arguments: str | Path) -> float:
    """Return the CPU time of a command and of its forks, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "kprof_inject", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=20_000)
    parser.add_argument("--kernels", type=int, default=1)
    arguments = parser.parse_args()
    counts = arguments.launches // 10, arguments.launches
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in counts:
            write_capture(folder / str(count), count, arguments.kernels)
        print(f"| | {counts[0]:,} launches | {counts[1]:,} launches | ratio |", "|---" * 4 + "|", sep="\n")
        trace = folder / "trace.pftrace"
        for command in (["report"], ["report", "--json"], ["trace", "-o", trace]):
            few, many = (cpu_seconds(*command, folder / str(count)) for count in counts)
            called = " ".join(map(str, command[:2]))
            print(f"| {called} | {few:.1f} s | {many:.1f} s | {many / few:.1f} |", flush=True)


if __name__ == "__main__":
    main()

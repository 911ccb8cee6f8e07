"""Captures of any size, made without a GPU: CTAs in waves over 132 SMs, whose warps loop.

Rings are as full as they can be, which is the hardest case for memory: 16 bytes of buffer for each scope.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.capture_files import CaptureWriter, KernelRecord, LaunchRecord, ProcessRecord

_SMS, _WARPS, _ITERATIONS, _SLOTS = 132, 4, 63, 256
_CLOCK_GHZ = 1.755
_HEADER_WORDS = 10 + _WARPS
_BEGIN_NS = 1_764_000_000_000_000_000
_SCOPES = (("kernel", "func", -1), ("loop[0]", "loop", 0), ("iter[0]", "iter", 1), ("load", "op", 2))
FUNC, LOOP, ITER, LOAD = range(len(_SCOPES))
SCOPES_OF_A_CTA = _WARPS * (2 + 2 * _ITERATIONS)


def write_capture(folder: Path, scopes: int) -> None:
    """A capture of one launch with about so many scopes."""
    ctas = -(-scopes // SCOPES_OF_A_CTA)
    words = _words(ctas)
    writer = CaptureWriter(folder / "process", ProcessRecord(pid=1))
    writer.add_kernel(
        "v0", msgspec.convert(_kernel(words.shape[1] * 4), KernelRecord, str_keys=True), "module {}\n", {}
    )
    launch = {"variant": "v0", "index": 0, "grid": [ctas, 1, 1], "device": 0, "stream": 0, "host_ns": 0}
    record = msgspec.convert({**launch, "buffer_bytes": words.nbytes, "file": "named-later"}, LaunchRecord)
    writer.add_launch(record, memoryview(words).cast("B"))
    writer.finish({})


def _records() -> list[tuple[int, bool, int]]:
    """What a warp records: scope, whether it ends, and cycles since the CTA's begin."""
    iterations = [
        record
        for start in range(120, 120 + 400 * _ITERATIONS, 400)
        for record in (
            (ITER, False, start),
            (LOAD, False, start + 40),
            (LOAD, True, start + 290),
            (ITER, True, start + 370),
        )
    ]
    end = iterations[-1][2]
    return [(FUNC, False, 50), (LOOP, False, 90), *iterations, (LOOP, True, end + 40), (FUNC, True, end + 90)]


def _words(ctas: int) -> NDArray[np.uint32]:
    records = np.array(_records(), dtype=np.int64)
    length = int(records[-1, 2]) + 60
    number = np.arange(ctas)
    begin = (number // _SMS) * (length + 400)
    used = _HEADER_WORDS + 2 * _SLOTS * _WARPS
    words = np.zeros((ctas, -(-used // 32) * 32), dtype="<u4")
    words[:, 0] = 0xDEADBEEF
    words[:, 1] = number
    words[:, 2] = number % _SMS
    words[:, 3] = _SLOTS * 8 * _WARPS
    times = np.stack((begin, begin + length, begin + length + 300), axis=1) / _CLOCK_GHZ
    words[:, 4:10] = (times.astype(np.uint64) // 32 * 32 + _BEGIN_NS).view("<u4")
    words[:, 10:_HEADER_WORDS] = 2 * len(records)
    high = (records[:, 1] << 31 | records[:, 0] << 23).astype("<u4")
    for warp in range(_WARPS):
        ring = words[:, _HEADER_WORDS + 2 * _SLOTS * warp :]
        clock = begin[:, None] + records[:, 2] + 7 * warp
        clock += (number % _SMS)[:, None] * 100_000
        ring[:, 0 : 2 * len(records) : 2] = high
        ring[:, 1 : 2 * len(records) : 2] = clock
    return words


def _kernel(stride_bytes: int) -> dict[str, object]:
    return {
        "name": "kernel",
        "layout": "timed",
        "scope_ids": {str(index): name for index, (name, _, _) in enumerate(_SCOPES)},
        "sm_clock_hz": 1.98e9,
        "mode": {"buffer": "shared", "buffer_bytes": _SLOTS * 8 * _WARPS, "clock_bits": 64},
        "metadata": {"num_warps": _WARPS, "profile_scratch_size": stride_bytes},
        "scope_table": {
            "kernel": "kernel",
            "scopes": [
                {
                    "record": name,
                    "name": name,
                    "kind": kind,
                    "source": {"file": "/src/kernel.py", "line": 10 + index, "column": 1},
                    "called_from": [],
                    "parent": parent,
                }
                for index, (name, kind, parent) in enumerate(_SCOPES)
            ],
        },
    }

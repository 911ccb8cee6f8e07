"""Traces as ``torch.profiler`` writes them on a machine with GPUs, made by hand, for kernels whose times are known.

The form is Kineto's (pytorch/kineto: ``libkineto/src/output_json.cpp`` and ``CuptiActivity.cpp``), with its blanks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BASE_NS = 1_763_900_000_000_000_000
"""What the times count from, before the tests' launches."""

GPU_POSITION = 5_000_000


@dataclass(frozen=True)
class Kernel:
    """A kernel that ran then, in Unix time. ``call_ns`` is when the host's call began and ended, None if the trace has
    none of it."""

    name: str
    start_ns: int
    end_ns: int
    correlation: int
    grid: tuple[int, int, int] = (1, 1, 1)
    threads: int = 32
    device: int = 0
    stream: int = 7
    call_ns: tuple[int, int] | None = None


def microseconds(ns: int) -> str:
    """As Kineto prints it: three decimals, always."""
    return f"{ns // 1000}.{ns % 1000:03}"


def kineto_text(
    kernels: Sequence[Kernel], *, pid: int = 7, rank: int | None = None, base_ns: int | None = BASE_NS, more: str = ""
) -> str:
    """The whole file; ``more`` is the text of more events, each with a comma behind it."""
    zero_ns = base_ns or 0
    distributed = f'"distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": 2}},'
    return "".join(
        [
            '\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [\n    ],',
            distributed if rank is not None else "",
            '\n  "displayTimeUnit": "ms",',
            "" if base_ns is None else f'\n  "baseTimeNanoseconds": {base_ns},',
            '\n  "traceEvents": [',
            _named(pid, "python", "CPU", pid),
            *(_named(gpu, "python", f"GPU {gpu}", GPU_POSITION + gpu) for gpu in sorted({k.device for k in kernels})),
            f'\n  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": {pid}, "tid": {pid},\n'
            f'    "ts": {microseconds(1_000)}, "dur": 5.000,\n    "args": {{\n      "External id": 1\n    }}\n  }},',
            more,
            *(_kernel(kernel, pid, zero_ns) for kernel in kernels),
            '\n  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n',
            '    "pid": "", "tid": "", "ts": 9000.123\n  }',
            '\n  ],\n  "traceName": "trace.json"\n}',
        ]
    )


def _named(pid: int, name: str, label: str, position: int) -> str:
    return "".join(
        f'\n  {{\n    "name": "{event}", "ph": "M", "ts": 1.000, "pid": {pid}, "tid": 0,\n    "args": {args}\n  }},'
        for event, args in (
            ("process_name", json.dumps({"name": name})),
            ("process_labels", json.dumps({"labels": label})),
            ("process_sort_index", json.dumps({"sort_index": position})),
        )
    )


def _kernel(kernel: Kernel, pid: int, zero_ns: int) -> str:
    at, length = microseconds(kernel.start_ns - zero_ns), microseconds(kernel.end_ns - kernel.start_ns)
    args: dict[str, Any] = {
        "External id": 1,
        "device": kernel.device,
        "stream": kernel.stream,
        "correlation": kernel.correlation,
        "grid": kernel.grid,
        "block": (kernel.threads, 1, 1),
    }
    arrow = f'"id": {kernel.correlation}, "cat": "ac2g", "name": "ac2g"'
    text = (
        f'\n  {{\n    "ph": "X", "cat": "kernel", "name": {json.dumps(kernel.name)}, "pid": {kernel.device}, '
        f'"tid": {kernel.stream},\n    "ts": {at}, "dur": {length},\n    "args": {json.dumps(args)}\n  }},'
        f'\n  {{\n    "ph": "f", {arrow}, "pid": {kernel.device}, "tid": {kernel.stream}, "ts": {at}, "bp": "e"\n  }},'
    )
    if kernel.call_ns is None:
        return text
    called, took = microseconds(kernel.call_ns[0] - zero_ns), microseconds(kernel.call_ns[1] - kernel.call_ns[0])
    args = {"cbid": 652, "correlation": kernel.correlation}
    return text + (
        f'\n  {{\n    "ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "pid": {pid}, "tid": {pid},\n'
        f'    "ts": {called}, "dur": {took},\n    "args": {json.dumps(args)}\n  }},'
        f'\n  {{\n    "ph": "s", {arrow}, "pid": {pid}, "tid": {pid}, "ts": {called}\n  }},'
    )

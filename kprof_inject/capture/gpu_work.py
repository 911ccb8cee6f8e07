"""File of all that the GPU did in a program, as ``torch.profiler`` saw it: kernels, also of libraries, copies, fills.

It is in the capture's folder. ``docs/file-formats.md`` describes it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from kprof_inject.capture.schema import Count, Name

OWN_PREFIX = "kprof_"
"""The names of our own kernels begin with it (``runtime/devices/cuda_kernels.py``): they are no work of the program."""

MAX_TRACE_BYTES = 2 << 30
"""Maximum size of a trace of ``torch.profiler``, uncompressed; a larger one is not read."""

BENCHMARK_SPAN = "kprof_benchmark"
"""Name of the spans in which an autotuner compares configurations: what the GPU does then is no work of the program."""

WorkKind = Literal["kernel", "copy", "fill"]


class GpuWork(Struct, frozen=True, kw_only=True):
    """Work of one name: how often the GPU did it, and the time that it took in total."""

    name: Name
    kind: WorkKind
    count: Count
    total_ns: Annotated[float, Meta(ge=0)]


class GpuWorkRecord(Struct, frozen=True, kw_only=True):
    """Content of ``gpu_work.json``: the work of ``processes`` processes, that with the largest time first.

    It begins with the first kernel with records of each process.
    """

    processes: Count
    work: tuple[GpuWork, ...]

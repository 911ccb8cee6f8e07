"""Files with other measurements: counters and stall samples, what the compiler moved, integers in memory, GPU work.

``docs/file-formats.md`` describes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from kprof_inject.capture.saved_launch import MAX_RANGES, Address
from kprof_inject.capture.schema import Argument, Bytes, Count, Grid, Name, Text
from kprof_inject.machine_code.lines import Moved

L2Contents = Literal["left", "emptied", "inputs"]
"""What the L2 holds when a launch begins. ``left``: what the launch before it left there. ``emptied``: nothing of its
memory. ``inputs``: as much of the memory that it only reads as fits.
"""

MetricValue = Annotated[float, Meta(ge=-1e20, le=1e20)]  # no counter of 64 bits, and no ratio of two of them, is larger


class CountersRecord(Struct, frozen=True, kw_only=True):
    """Values of metrics by NVIDIA's names, which took ``passes`` launches."""

    metrics: Mapping[Name, MetricValue]
    passes: Annotated[int, Meta(ge=1, lt=1 << 16)]


class SampledInstruction(Struct, frozen=True, array_like=True):
    """Samples of the instruction at an address in the function, by reason.

    The reasons are NVIDIA's names without ``smsp__pcsamp_warps_issue_stalled_``; ``*_not_issued`` are the samples in
    whose cycle the scheduler issued no instruction of any warp.
    """

    address: Bytes
    samples: Mapping[Name, Count]


class SamplesRecord(Struct, frozen=True, kw_only=True):
    """Samples of a kernel's warps every ``period_cycles``; ``dropped`` of ``total`` were lost, also other kernels'."""

    period_cycles: Annotated[int, Meta(ge=1, lt=1 << 32)]
    launches: Annotated[int, Meta(ge=1, lt=1 << 16)]
    total: Count
    dropped: Count
    instructions: tuple[SampledInstruction, ...]


class MeasurementsRecord(Struct, frozen=True, kw_only=True):
    """Content of ``measurements.json``; reasons are in words that follow *because*."""

    counters: CountersRecord | None = None
    not_counted: Text = ""
    samples: SamplesRecord | None = None
    not_sampled: Text = ""
    l2: L2Contents = "left"
    seconds: Annotated[float, Meta(ge=0, lt=1e9)] = 0.0


class MovesRecord(Struct, frozen=True, kw_only=True):
    """Content of ``moves.json``: instructions moved into and out of scopes, by record; None without a clock read."""

    scopes: Mapping[Name, tuple[Moved, ...] | None]


MAX_LOADED_BYTES = 16 << 20

MAX_COMPRESSED_BYTES = 2 << 20  # maximum size of ``data``: the file is JSON, with it in Base64

_RangeBytes = Annotated[int, Meta(ge=1, le=MAX_LOADED_BYTES)]


class LoadedIntegersRecord(Struct, frozen=True, kw_only=True):
    """Content of ``loaded_integers.json``: ascending ranges of a launch's memory, compressed by zlib in ``data``."""

    grid: Grid
    arguments: Annotated[tuple[Argument | None, ...], Meta(max_length=1 << 12)]
    starts: Annotated[tuple[Address, ...], Meta(max_length=MAX_RANGES)]
    sizes: Annotated[tuple[_RangeBytes, ...], Meta(max_length=MAX_RANGES)]
    data: Annotated[bytes, Meta(max_length=MAX_COMPRESSED_BYTES)]

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.sizes) or sum(self.sizes) > MAX_LOADED_BYTES:
            raise ValueError(f"expected a size for each range, and at most {MAX_LOADED_BYTES} bytes")
        end = 0
        for start, size in zip(self.starts, self.sizes, strict=True):
            if start < end:
                raise ValueError(f"expected the range at {start:#x} after the one before")
            end = start + size

    def is_of(self, grid: tuple[int, int, int], arguments: tuple[int | None, ...]) -> bool:
        """Return whether a launch has this grid and these arguments."""
        return self.grid == grid and self.arguments == arguments

    @property
    def memory(self) -> bytes:
        """The bytes of all ranges; fewer if the file is damaged."""
        try:
            return zlib.decompressobj().decompress(self.data, sum(self.sizes) + 1)
        except zlib.error:
            return b""


OWN_PREFIX = "kprof_"
"""The names of our own kernels begin with it (``runtime/devices/cuda_driver.py``): they are no work of the program."""

MAX_TRACE_BYTES = 2 << 30  # maximum size of a trace of ``torch.profiler``, uncompressed; a larger one is not read

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
    """Content of ``gpu_work.json``: the work since each process's first kernel with records, the longest first."""

    processes: Count
    work: tuple[GpuWork, ...]

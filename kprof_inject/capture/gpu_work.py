"""File of all that the GPU did in a program, as ``torch.profiler`` saw it: kernels, also of libraries, copies, fills.

It is in the capture's folder. ``docs/file-formats.md`` describes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from kprof_inject.capture.encoding import encode, read_of_run, sealed
from kprof_inject.capture.schema import Count, Name
from kprof_inject.files import write_bytes

GPU_WORK_FILE = "gpu_work.json"

OWN_PREFIX = "kprof_"
"""The names of our own kernels begin with it (``runtime/devices/cuda_kernels.py``): they are no work of the program."""

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


def read_gpu_work(capture_folder: Path, run: str = "") -> GpuWorkRecord | None:
    """Read what the GPU did in the program of a capture; None if that was not traced.

    Raises ``KprofError`` if the file is damaged, or if ``run`` (see ``ProcessRecord``) is not empty and the file is of
    another run.
    """
    return read_of_run(capture_folder / GPU_WORK_FILE, GpuWorkRecord, run)


def write_gpu_work(capture_folder: Path, record: GpuWorkRecord, run: str) -> None:
    """Write what the GPU did in the program that a capture is of; ``run`` is the run of the capture."""
    write_bytes(capture_folder / GPU_WORK_FILE, sealed(encode(record), run) + b"\n")

"""The step that adds up what the GPU did in a program, from the traces of ``torch.profiler`` in its capture."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from kprof_inject.capture.gpu_work import OWN_PREFIX, GpuWork, GpuWorkRecord, WorkKind, write_gpu_work
from kprof_inject.capture.reader import ProcessFiles
from kprof_inject.capture.schema import MAX_NAME_LENGTH
from kprof_inject.errors import printable

_KINDS: dict[str, WorkKind] = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}
"""Kinds of work by the category of an event (pytorch/kineto: ``libkineto/include/ActivityType.h``)."""


class _Event(Struct):
    cat: str = ""
    name: str = ""
    dur: float = 0.0
    """Microseconds."""


class _Trace(Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


def save_gpu_work(capture_folder: Path, traces: Sequence[Path], say: Callable[[str], None]) -> None:
    """Save in a capture what the GPU did, if there are traces of its processes."""
    sums: dict[tuple[str, WorkKind], list[float]] = {}
    read = 0
    for path in traces:
        try:
            for event in _events(path):
                sums.setdefault((event.name[:MAX_NAME_LENGTH], _KINDS[event.cat]), []).append(1e3 * event.dur)
        except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
            say(f"cannot add up the GPU's work in {path.name}: {printable(str(error))}")
        else:
            read += 1
    if not read:
        return
    work = [
        GpuWork(name=name, kind=kind, count=len(times_ns), total_ns=math.fsum(times_ns))
        for (name, kind), times_ns in sums.items()
    ]
    work.sort(key=lambda one: -one.total_ns)
    run = ProcessFiles.first_of(capture_folder).process.run
    write_gpu_work(capture_folder, GpuWorkRecord(processes=read, work=tuple(work)), run)


def _events(path: Path) -> Iterator[_Event]:
    with gzip.open(path) as file:
        trace = msgspec.json.decode(file.read(), type=_Trace)
    of_program = (event for event in trace.events if not event.name.startswith(OWN_PREFIX))
    return (event for event in of_program if event.cat in _KINDS and event.dur >= 0)

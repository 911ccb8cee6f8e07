"""The steps that read the traces of ``torch.profiler`` in a capture: add up the GPU's work, and merge launches in."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from kprof_inject.capture.capture_files import write
from kprof_inject.capture.measurements import (
    BENCHMARK_SPAN,
    MAX_TRACE_BYTES,
    OWN_PREFIX,
    GpuWork,
    GpuWorkRecord,
    WorkKind,
)
from kprof_inject.capture.schema import MAX_NAME_LENGTH
from kprof_inject.errors import KprofError, printable
from kprof_inject.export.formats import gzipped
from kprof_inject.export.torch_trace import match, merged_trace, read_torch_trace
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.files import read_gzip, write_chunks
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.captures import run_to_write
from kprof_inject.quantities import counted, size_text, time_text
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

_KINDS: dict[str, WorkKind] = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}
"""Kinds of work by the category of an event (pytorch/kineto: ``libkineto/include/ActivityType.h``)."""

_CALLS = ("cuda_runtime", "hip_runtime")
"""Categories of the host's calls of a runtime. Kineto keeps few calls of CUDA's driver, and none that copies."""


class _Arguments(Struct):
    correlation: int = -1  # number that a call of the host and the work that it made share


class _Event(Struct):
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0  # microseconds
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _Trace(Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


def save_gpu_work(capture_folder: Path, traces: Sequence[Path], say: Say) -> None:
    """Save in a capture what the GPU did, if there are traces of its processes."""
    sums: dict[tuple[str, WorkKind], list[float]] = {}
    read = 0
    for path in traces:
        try:
            for event in _events(path):
                sums.setdefault((event.name[:MAX_NAME_LENGTH], _KINDS[event.cat]), []).append(1e3 * event.dur)
        except (KprofError, msgspec.DecodeError) as error:
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
    write(capture_folder, GpuWorkRecord(processes=read, work=tuple(work)))


def _events(path: Path) -> Iterator[_Event]:
    trace = msgspec.json.decode(read_gzip(path, MAX_TRACE_BYTES), type=_Trace)
    calls = {event.args.correlation for event in trace.events if event.cat in _CALLS}
    benchmarks: list[tuple[float, float]] = []  # of those within others, only the outer ones
    spans = [event for event in trace.events if event.name == BENCHMARK_SPAN and event.cat == "user_annotation"]
    for begin, end in sorted((span.ts, span.ts + span.dur) for span in spans):
        if not benchmarks or begin >= benchmarks[-1][1]:
            benchmarks.append((begin, end))
    for event in trace.events:
        # Ours goes through the driver, as kernels of Triton do, but no copy or fill of torch.
        is_kernel = _KINDS.get(event.cat) == "kernel"
        is_ours = event.name.startswith(OWN_PREFIX) if is_kernel else calls and event.args.correlation not in calls
        if event.cat in _KINDS and event.dur >= 0 and not is_ours:
            before = bisect.bisect_right(benchmarks, event.ts, key=lambda span: span[0])
            # A benchmark waits for its launches.
            if not before or event.ts >= benchmarks[before - 1][1]:
                yield event


def merge(traces: Sequence[Path], timelines: Sequence[Timeline], folder: Path, layout: str | None) -> Iterator[str]:
    """Write ``torch_trace.kprof.json.gz`` to ``folder``, with the process in its name if there are several traces.

    Yield what was written, and what was left out with the reason. ``layout`` is one of ``LAYOUT_NAMES``. Raises
    ``KprofError`` if a trace cannot be read, or no launch matches.
    """
    for path in traces:
        pid = path.name.split(".")[1]
        own = [timeline for timeline in timelines if str(timeline.launch.process.pid) == pid]
        try:
            trace = read_torch_trace(read_gzip(path, MAX_TRACE_BYTES))
        except (ValueError, ArithmeticError, msgspec.MsgspecError) as error:
            raise KprofError(f"cannot read {path}: {printable(str(error))}", hint="profile again") from None
        launches, refused = match(trace, own)
        for name, reason in refused.items():
            if not launches:
                raise KprofError(f"no launch is in {path}: {name}: {reason}", hint="capture with --launches all")
            yield f"not in torch.profiler's trace: launches of {name}: {reason}"
        if not launches:
            raise KprofError(f"no launch is from the process of {path}", hint="profile a program that launches kernels")
        facts = {"version": __version__, "refused": refused}
        run = run_to_write([launch.timeline for launch in launches])
        chunks = merged_trace(trace, launches, facts, layout or LAYOUT_NAMES[0], run)
        target = folder / f"torch_trace.{f'{pid}.' if len(traces) > 1 else ''}kprof.json.gz"
        try:
            size = write_chunks(target, gzipped(chunks))
        except OSError as error:
            raise KprofError(f"cannot write {target}: {error.strerror}") from None
        error_ns = max(launch.error_ns for launch in launches)
        yield f"wrote {target}: {counted(len(launches), 'launch')}, within ± {time_text(error_ns)}, {size_text(size)}"

"""The traces that ``torch.profiler`` wrote of a program's processes: add up the GPU's work, and merge launches in.

The format is Chrome's, as Kineto writes it (pytorch/kineto: ``libkineto/src/output_json.cpp``, and
``CuptiActivity.cpp`` for the arguments of a kernel): a kernel is an ``X`` event of category ``kernel``, with
``device``, ``stream``, ``correlation`` and ``grid``. Correlations ascend with the host's calls. Times are microseconds
since ``baseTimeNanoseconds``.

The launches of a kernel match the trace's kernels of its name in the order of their calls, if there are as many as the
process launched. Nothing else is matched. A launch is a process next to its GPU. The launch and its scopes have the
``correlation`` of their kernel, and an arrow leads from the kernel's bar to the launch.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from kprof_inject.capture.capture_files import ClockRecord, write
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
from kprof_inject.export.chrome import events_in, json_text
from kprof_inject.export.drawing import DrawnLaunch, launch_facts, launch_processes
from kprof_inject.export.events import sections
from kprof_inject.export.formats import gzipped
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.files import read_gzip, write_chunks
from kprof_inject.forks import JobRunner
from kprof_inject.pipeline import Say
from kprof_inject.pipeline.captures import run_to_write
from kprof_inject.quantities import counted, size_text, time_text
from kprof_inject.timeline.axis import Axis, DeviceClock, HostClock, PlacedLaunch, fit_host_clock, span_of
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

_KINDS: dict[str, WorkKind] = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "fill"}
"""Kinds of work by the category of an event (pytorch/kineto: ``libkineto/include/ActivityType.h``)."""

_CALLS = ("cuda_runtime", "hip_runtime")
"""Categories of the host's calls of a runtime. Kineto keeps few calls of CUDA's driver, and none that copies."""


class _WorkArgs(Struct):
    correlation: int = -1  # number that a call of the host and the work that it made share


class _WorkEvent(Struct):
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0  # microseconds
    args: _WorkArgs = msgspec.field(default_factory=_WorkArgs)


class _WorkTrace(Struct):
    events: list[_WorkEvent] = msgspec.field(name="traceEvents", default_factory=list)


def save_gpu_work(capture_folder: Path, traces: Sequence[Path], say: Say) -> None:
    """Save in a capture what the GPU did, if there are traces of its processes."""
    sums: dict[tuple[str, WorkKind], list[float]] = {}
    read = 0
    for path in traces:
        try:
            for event in _work_events(path):
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


def _work_events(path: Path) -> Iterator[_WorkEvent]:
    trace = msgspec.json.decode(read_gzip(path, MAX_TRACE_BYTES), type=_WorkTrace)
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


_ALIGNMENT = "the trace that it was merged into"
# Above Linux's process IDs (``/proc/sys/kernel/pid_max`` is at most 2^22), so that ours equal none of them.
_FIRST_ID = 1 << 23
# How far CTAs may be outside their kernel: the trace's times of a kernel are converted from the device's clock, and not
# always linearly.
_MAX_OUTSIDE_NS = 5_000

_NOTHING = Raw(b"{}")
_ZERO = Raw(b"0")


class _Event(Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Raw = _ZERO
    dur: Raw = _ZERO
    args: Raw = _NOTHING


class Args(Struct, frozen=True):
    """The arguments of a kernel, or of the event with a process's position."""

    device: int = -1
    stream: int = -1
    correlation: int = -1
    grid: tuple[int, ...] = ()
    sort_index: int | None = None


class Bar(Struct, frozen=True):
    """A kernel in the trace, whose ``pid`` and ``tid`` place it in the picture; times include the trace's base."""

    name: str
    start_ns: int
    end_ns: int
    pid: int | str
    tid: int | str
    args: Args


class TorchTrace(Struct, frozen=True):
    """A trace: its members as text, its kernels in the order of their calls, and the positions of its processes."""

    members: dict[str, Raw]
    base_ns: int
    bars: tuple[Bar, ...]
    positions: dict[int | str, int]


def read_torch_trace(data: bytes) -> TorchTrace:
    """Read an unpacked trace, without an autotuner's benchmarks; raises ``msgspec.MsgspecError`` if it is none."""
    members = msgspec.json.decode(data, type=dict[str, Raw])
    base_ns = msgspec.json.decode(members.get("baseTimeNanoseconds", _ZERO), type=int)
    bars, benchmarks, positions = [], [], {}
    for event in msgspec.json.decode(members.get("traceEvents", Raw(b"[]")), type=list[_Event]):
        if event.cat == "kernel" and event.ph == "X":
            start_ns = base_ns + _nanoseconds(event.ts)
            args = msgspec.json.decode(event.args, type=Args)
            bars.append(Bar(event.name, start_ns, start_ns + _nanoseconds(event.dur), event.pid, event.tid, args))
        elif event.cat == "user_annotation" and event.name == BENCHMARK_SPAN:
            start_ns = base_ns + _nanoseconds(event.ts)
            benchmarks.append((start_ns, start_ns + _nanoseconds(event.dur)))
        elif event.name == "process_sort_index":
            position = msgspec.json.decode(event.args, type=Args).sort_index
            if position is not None:
                positions[event.pid] = position
    # A benchmark waits for its launches.
    starts, ends = np.array(sorted(benchmarks), dtype=np.int64).reshape(-1, 2).T
    ends = np.maximum.accumulate(ends)
    before = np.searchsorted(starts, [bar.start_ns for bar in bars], side="right").tolist()
    kept = [bar for bar, count in zip(bars, before, strict=True) if not count or bar.start_ns >= ends[count - 1]]
    return TorchTrace(members, base_ns, tuple(sorted(kept, key=lambda bar: bar.args.correlation)), positions)


def _nanoseconds(microseconds: Raw) -> int:
    # A float cannot represent microseconds of months to the nanosecond.
    return int((Decimal(bytes(microseconds).decode()) * 1000).to_integral_value())


class MatchedLaunch(Struct, frozen=True):
    """A launch and its kernel; ``clock`` converts its device's times to the trace's, correct to ``error_ns``."""

    timeline: Timeline
    bar: Bar
    clock: HostClock
    error_ns: int


def match(trace: TorchTrace, timelines: Sequence[Timeline]) -> tuple[list[MatchedLaunch], dict[str, str]]:
    """Match launches to kernels of their process's trace; return also why some are refused, by the kernel's name."""
    by_name: dict[str, list[Timeline]] = {}
    for timeline in timelines:
        by_name.setdefault(timeline.launch.kernel.name, []).append(timeline)
    pairs: list[tuple[Timeline, Bar]] = []
    refused: dict[str, str] = {}
    for name, launched in by_name.items():
        try:
            pairs += _pairs(trace, name, launched)
        except KprofError as error:
            refused[name] = error.what
    matched: list[MatchedLaunch] = []
    for device in sorted({timeline.launch.device for timeline, _ in pairs}):
        on_device = [pair for pair in pairs if pair[0].launch.device == device]
        spans = [span_of(timeline.ctas_that_ran) for timeline, _ in on_device]
        readings = []
        for (begin_ns, end_ns), (_, bar) in zip(spans, on_device, strict=True):
            # The CTAs ran somewhere within the bar.
            middle_ns, offset_ns = (begin_ns + end_ns) // 2, (bar.start_ns - begin_ns + bar.end_ns - end_ns) // 2
            room_ns = (bar.end_ns - bar.start_ns) - (end_ns - begin_ns)
            readings.append(ClockRecord(0, middle_ns + offset_ns, middle_ns, max(room_ns // 2, 0)))
        clock = fit_host_clock(sorted(readings, key=lambda reading: reading.device_ns))
        assert clock is not None
        outside = [0]
        for span, (_, bar) in zip(spans, on_device, strict=True):
            start_ns, end_ns = clock.to_host_ns(np.array(span, dtype=np.int64)).tolist()
            outside.append(max(bar.start_ns - start_ns, end_ns - bar.end_ns))
        if max(outside) > _MAX_OUTSIDE_NS:
            reason = f"by one clock for device {device}, a launch ran {time_text(max(outside))} outside its kernel"
            refused |= {timeline.launch.kernel.name: reason for timeline, _ in on_device}
        error_ns = max(clock.error_ns(min(span[0] for span in spans), max(span[1] for span in spans)), *outside)
        matched += [MatchedLaunch(timeline, bar, clock, error_ns) for timeline, bar in on_device]
    return [one for one in matched if one.timeline.launch.kernel.name not in refused], refused


def _pairs(trace: TorchTrace, name: str, launched: Sequence[Timeline]) -> Iterator[tuple[Timeline, Bar]]:
    """Yield the launches of a kernel with their bars; raise ``KprofError`` with the reason if they do not fit."""
    names = {name, *(str(one.launch.kernel.metadata.get("name", name)) for one in launched)}
    bars = [bar for bar in trace.bars if bar.name in names]
    kernels = [one.launch.kernel for one in launched]
    counts = {kernel.program_variant or kernel.variant: kernel.launches for kernel in kernels}
    if any(one.launch.graph for one in launched):
        raise KprofError("a CUDA graph replays its launches")
    count = sum(number or 0 for number in counts.values())
    if count != len(bars):
        raise KprofError(f"the process launched it {count} times, but the trace has it {len(bars)} times")
    if len(counts) > 1 and len(launched) < count:
        raise KprofError(f"it has {len(counts)} variants, whose order is known only if all launches are captured")
    launched = sorted(launched, key=lambda one: one.launch.host_ns)
    if len(launched) < count:
        bars = [bars[one.launch.index] for one in launched]
    streams = {(one.launch.stream, bar.args.stream) for one, bar in zip(launched, bars, strict=True)}
    if len(streams) > min(len(set(side)) for side in zip(*streams, strict=True)):
        raise KprofError("its launches and the trace's kernels are on different streams")
    for timeline, bar in zip(launched, bars, strict=True):
        clusters = timeline.launch.kernel.metadata.get("num_ctas")
        width, *others = timeline.launch.grid
        wide = width * clusters if isinstance(clusters, int) else width
        if bar.args.device != timeline.launch.device or bar.args.grid not in ((width, *others), (wide, *others)):
            raise KprofError(f"launch {timeline.launch.index} has another device or grid than the trace's kernel")
        if timeline.ctas_that_ran.size:
            yield timeline, bar


def merged_trace(
    trace: TorchTrace,
    launches: Sequence[MatchedLaunch],
    facts: Mapping[str, Any],
    layout: str,
    run: JobRunner,
) -> Iterator[bytes]:
    """Yield the trace with our launches after its own events, and with a summary that has ``facts``, in chunks."""
    drawn, arrows = [], []
    for number, launch in enumerate(launches, 1):
        clock = DeviceClock(Axis(0, 1, trace.base_ns, launch.error_ns), launch.clock, launch.error_ns, _ALIGNMENT)
        placed = PlacedLaunch(launch.timeline, "", clock, None)
        called_ns = launch.bar.start_ns - trace.base_ns
        one = DrawnLaunch(
            number,
            placed,
            launch_facts(placed),
            called_ns,
            (("correlation", launch.bar.args.correlation),),
            trace.positions.get(launch.bar.pid),
        )
        drawn.append(one)
        arrows.append(
            b',\n{"ph":"s","cat":"arrow","name":"launch","id":%d,"pid":%b,"tid":%b,"ts":%d.%03d}'
            % (number, json_text(launch.bar.pid), json_text(launch.bar.tid), *divmod(called_ns, 1000))
        )
    for number, (name, value) in enumerate(trace.members.items()):
        yield b"%b%b:" % (b",\n" if number else b"{\n", json_text(name))
        if name != "traceEvents":
            yield bytes(value)
            continue
        yield bytes(value).rstrip()[:-1].rstrip()
        yield from arrows
        groups = [list(launch_processes(one, layout)) for one in drawn]
        yield from run([partial(events_in, section) for section in sections(groups, _FIRST_ID)])
        yield b"\n]"
    own = [
        one.facts
        | {"device": launch.bar.args.device, "correlation": launch.bar.args.correlation, "error_ns": launch.error_ns}
        for one, launch in zip(drawn, launches, strict=True)
    ]
    yield b',\n"kprof_inject":%b\n}\n' % json_text({**facts, "launches": own})


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

"""The step that merges launches into traces of ``torch.profiler``; it finds each launch's trace and device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.model import Launch, Origin, place_names
from kprof_inject.errors import KprofError
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.drawing.tracks import LAYOUTS
from kprof_inject.export.formats import gzipped
from kprof_inject.export.hooks import Hook
from kprof_inject.export.launch_matching import Captured, LaunchMatching, Refusal, match
from kprof_inject.export.merged_trace import MatchedLaunch, TracePart, merged_trace
from kprof_inject.export.torch_trace import Bar, Span, TorchTrace, read_torch_trace
from kprof_inject.files import write_chunks
from kprof_inject.pipeline.captures import run_to_write
from kprof_inject.quantities import counted, listed, size_text, time_text
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.host_clock import HostClock, fit_host_clock
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

_MAX_REFUSALS = 10
_MAX_PIDS = 4
# Reason for a launch without a pid: its buffer was saved without a capture; see ``Origin``.
_NO_PROCESS = "was saved as a single buffer, which does not name its process"
_BY_TIME = "; by time alone, since no host calls are known"


class _OnDevice(Struct, frozen=True):
    """The launches of one trace and device, and how they match. ``numbers`` are their indices among all launches."""

    trace: TorchTrace
    device: int
    numbers: Sequence[int]
    timelines: Sequence[Timeline]
    bars: Sequence[Bar]
    matching: LaunchMatching

    def matched(self, names: Mapping[Any, str]) -> Iterator[MatchedLaunch]:
        clock, error_ns = self.matching.clock, self.matching.error_ns
        if clock is None:
            return
        for found in self.matching.matches:
            timeline = self.timelines[found.launch]
            name = names[timeline.launch.place]
            yield MatchedLaunch(timeline, name, self.bars[found.bar], found, clock, error_ns)

    def line(self) -> str:
        where, clock = f"{self.trace.who}, device {self.device}", self.matching.clock
        if clock is None:
            return f"{where}: no launch matched"
        drift = f", with a drift of {clock.drift * 1e6:.1f} ppm" if clock.drift else ""
        matched = f"{len(self.matching.matches)} of {counted(len(self.timelines), 'launch')} matched"
        basis = "" if any(found.by_call for found in self.matching.matches) else _BY_TIME
        return f"{where}: {matched}, within ± {time_text(self.matching.error_ns)}{drift}{basis}"

    def facts(self) -> dict[str, Any]:
        clock = self.matching.clock
        return {
            "trace": self.trace.path.name,
            "rank": self.trace.rank,
            "device": self.device,
            "matched": len(self.matching.matches),
            "not_matched": len(self.matching.refusals),
            "error_ns": self.matching.error_ns,
            "drift_ppm": round(clock.drift * 1e6, 3) if clock else 0.0,
        }


class Merged(Struct, frozen=True):
    """A merged trace that was written, and the launches that are not in it."""

    path: Path
    size_bytes: int
    traces: int
    launches: int
    refused: Sequence[tuple[Launch, str]]
    _devices: Sequence[_OnDevice]
    _without_launches: Sequence[TorchTrace]

    def lines(self) -> Iterator[str]:
        """Yield how well each device's launches match, what was left out, and what was written."""
        for device in self._devices:
            yield device.line()
        yield from self.refusal_lines()
        into = counted(self.traces, "trace")
        yield f"wrote {self.path}: {into} with {counted(self.launches, 'launch')}, {size_text(self.size_bytes)}"

    def refusal_lines(self) -> Iterator[str]:
        """Yield a line for each trace without launches and for the first launches that are in no trace."""
        for trace in self._without_launches:
            yield f"{trace.who}: no launch in the capture is from its process ({_pids([trace])})"
        for launch, reason in self.refused[:_MAX_REFUSALS]:
            yield f"not in the trace: launch {launch.index} of {launch.kernel.name}, which {reason}"
        if more := max(len(self.refused) - _MAX_REFUSALS, 0):
            yield f"not in the trace: {counted(more, 'more launch')}; the file says why for each"


def default_output(trace: Path) -> Path:
    """Return the path next to a trace, such as ``torch_trace.kprof.json.gz`` for ``torch_trace.json.gz``."""
    ending = _ending(trace)
    stem = trace.name[: len(trace.name) - len(ending)] if ending else trace.name
    return trace.with_name(f"{stem}.kprof{ending or '.json'}")


def merge_into(
    paths: Sequence[Path],
    timelines: Sequence[Timeline],
    output: Path | None = None,
    layout: str | None = None,
    hooks: Sequence[Hook] = (),
) -> Merged:
    """Write one trace that contains all of ``paths`` and the launches that match them.

    ``output`` is next to the first trace by default. ``layout`` is one of ``LAYOUT_NAMES``; None is the first of them.
    Raises ``KprofError`` if no launch matches, if there is no trace, or if ``output`` is one of them.
    """
    if not paths:
        raise KprofError("there is no trace to merge the launches into", hint="name one, or one of each rank")
    resolved = [path.resolve() for path in paths]
    for index, path in enumerate(paths):
        if resolved[index] in resolved[:index]:
            raise KprofError(f"{path} is named twice", hint="name each trace once", exit_code=2)
    target = output or default_output(paths[0])
    _require_writable(target, paths)
    traces = [read_torch_trace(path) for path in paths]
    _require_unix_time(traces)
    devices = list(_devices(traces, timelines))
    refused = _refused(devices, timelines, traces)
    if not any(device.matching.matches for device in devices):
        raise _nothing_matched(traces, refused)
    names = place_names(timeline.launch.place for timeline in timelines)
    parts = [
        TracePart(trace, [launch for device in devices if device.trace is trace for launch in device.matched(names)])
        for trace in traces
    ]
    facts = {
        "version": __version__,
        "devices": [device.facts() for device in devices],
        "not_matched": [_launch_facts(launch) | {"reason": reason} for launch, reason in refused],
    }
    drawn = [launch.timeline for part in parts for launch in part.launches]
    chunks = merged_trace(parts, facts, LAYOUTS[layout or LAYOUT_NAMES[0]], run_to_write(drawn), hooks)
    try:
        size = write_chunks(target, gzipped(chunks) if _ending(target) == ".json.gz" else chunks)
    except BrokenPipeError:
        raise  # the reader closed the pipe
    except OSError as error:
        raise KprofError(f"cannot write {target}: {error.strerror}") from None
    without = [trace for trace in traces if not any(device.trace is trace for device in devices)]
    return Merged(target, size, len(traces), len(drawn), refused, devices, without)


def _require_writable(target: Path, paths: Sequence[Path]) -> None:
    if _ending(target) is None:
        raise KprofError(
            f"a merged trace cannot be named {target}",
            hint="use .json or .json.gz: a merged trace has torch.profiler's format",
            exit_code=2,
        )
    if any(target.resolve() == path.resolve() for path in paths):
        raise KprofError(f"{target} is one of the input traces", hint="name another file", exit_code=2)


def _ending(path: Path) -> str | None:
    return next((ending for ending in (".json", ".json.gz") if path.name.lower().endswith(ending)), None)


def _require_unix_time(traces: Sequence[TorchTrace]) -> None:
    for trace in traces if len(traces) > 1 else ():
        if not trace.is_unix_time:
            raise KprofError(
                f"{trace.path} has its own time base: its offset from other traces is unknown", hint="merge it alone"
            )


def _devices(traces: Sequence[TorchTrace], timelines: Sequence[Timeline]) -> Iterator[_OnDevice]:
    """Yield each device of each trace that has launches, with their matches.

    A program may write several traces, so a launch that matches one trace is not matched with the next.
    """
    left = dict(enumerate(timelines))
    for trace in traces:
        candidates = {
            index: timeline
            for index, timeline in left.items()
            if _is_from(trace, timeline.launch.origin, traces, timelines)
        }
        for device in sorted({timeline.launch.device for timeline in candidates.values()}):
            on_device = {index: timeline for index, timeline in candidates.items() if timeline.launch.device == device}
            numbers, launched = list(on_device), list(on_device.values())
            bars = [bar for bar in trace.bars if bar.device in (None, device)]
            captured = [_captured(timeline, trace) for timeline in launched]
            matching = match(captured, bars, _prior(trace, launched))
            refusals = [
                _with_actual_devices(refusal, captured[refusal.launch], trace, device) for refusal in matching.refusals
            ]
            matching = replace(matching, refusals=tuple(refusals))
            yield _OnDevice(trace, device, numbers, launched, bars, matching)
            for found in matching.matches:
                del left[numbers[found.launch]]


def _with_actual_devices(refusal: Refusal, launch: Captured, trace: TorchTrace, device: int) -> Refusal:
    """Name the devices on which the trace has the launch's kernel, if ``device`` is none of them."""
    devices = {bar.device for bar in trace.bars if bar.name in launch.names}
    if not devices or devices & {None, device}:
        return refusal
    known = sorted(number for number in devices if number is not None)
    others = listed([f"device {number}" for number in known], _MAX_PIDS)
    return replace(refusal, reason=f"ran on device {device}, but the trace has kernels of its name only on {others}")


def _is_from(trace: TorchTrace, origin: Origin, traces: Sequence[TorchTrace], timelines: Sequence[Timeline]) -> bool:
    """Return whether a trace is from this process, by the pid and rank as far as the trace has them."""
    if trace.rank is not None and origin.rank is not None and trace.rank != origin.rank:
        return False
    if trace.host_pids:
        return origin.pid in trace.host_pids
    is_same_rank = trace.rank is not None and trace.rank == origin.rank
    is_only_process = len(traces) == 1 and len({timeline.launch.origin.name for timeline in timelines}) == 1
    return is_same_rank or is_only_process


def _captured(timeline: Timeline, trace: TorchTrace) -> Captured:
    launch, kernel = timeline.launch, timeline.launch.kernel
    width, *others = launch.grid
    clusters = kernel.metadata.get("num_ctas")
    wide = width * clusters if isinstance(clusters, int) else width
    warp_size = kernel.metadata.get("warp_size")
    return Captured(
        # Triton's name of the compiled function, which may be longer than the kernel's.
        frozenset({kernel.name, str(kernel.metadata.get("name", kernel.name))}),
        frozenset({launch.grid, (wide, *others)}),
        kernel.num_warps * warp_size if isinstance(warp_size, int) else None,
        launch.stream,
        _run_span(timeline),
        _call_span(launch) if trace.is_unix_time else None,
    )


def _run_span(timeline: Timeline) -> Span | None:
    """Return when the whole launch ran, whatever part of it is drawn.

    None if no CTA ran, or if the device's clock was not read.
    """
    ctas = timeline.ctas_that_ran
    if not ctas.size or timeline.clock.source == ClockSource.NOMINAL:
        return None
    begin_ns = int(ctas["init_ns"].min())
    # A CTA that was stopped has no end time.
    return Span(begin_ns, max(int(ctas["post_final_ns"].max()), begin_ns))


def _call_span(launch: Launch) -> Span | None:
    """Return when the host launched the kernel; None for a graph, whose call was captured long before it ran."""
    return None if launch.graph or launch.host_end_ns is None else Span(launch.host_ns, launch.host_end_ns)


def _prior(trace: TorchTrace, timelines: Sequence[Timeline]) -> HostClock | None:
    """Return the relation of the device's clock to Unix time that the capture's readings give; None if unknown."""
    if not trace.is_unix_time:
        return None
    readings = dict.fromkeys(
        reading
        for timeline in timelines
        for reading in timeline.launch.origin.host_readings
        if reading.device == timeline.launch.device
    )
    return fit_host_clock(list(readings))


def _refused(
    devices: Sequence[_OnDevice], timelines: Sequence[Timeline], traces: Sequence[TorchTrace]
) -> list[tuple[Launch, str]]:
    matched = {device.numbers[found.launch] for device in devices for found in device.matching.matches}
    reasons = {
        device.numbers[refusal.launch]: refusal.reason for device in devices for refusal in device.matching.refusals
    }
    other_process = f"is from another process than the traces ({_pids(traces)})"
    return [
        (launch, reasons.get(index, other_process if launch.origin.pid else _NO_PROCESS))
        for index, launch in enumerate(timeline.launch for timeline in timelines)
        if index not in matched
    ]


def _pids(traces: Sequence[TorchTrace]) -> str:
    return listed([str(pid) for trace in traces for pid in sorted(trace.host_pids)], _MAX_PIDS) or "unknown"


def _launch_facts(launch: Launch) -> dict[str, Any]:
    return {"kernel": launch.kernel.name, "launch": launch.index, "pid": launch.origin.pid, "device": launch.device}


def _nothing_matched(traces: Sequence[TorchTrace], refused: Sequence[tuple[Launch, str]]) -> KprofError:
    launch, reason = refused[0]
    others = f"; also not matched: {counted(len(refused) - 1, 'more launch')}" if len(refused) > 1 else ""
    return KprofError(
        f"no launch of the capture is in {listed([str(trace.path) for trace in traces], _MAX_PIDS)}: "
        f"launch {launch.index} of {launch.kernel.name} {reason}{others}",
        hint="use torch.profiler in the program that kprof-inject runs: both must see the same run; --launches all "
        "keeps every launch",
    )

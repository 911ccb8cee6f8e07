"""The step that puts launches into traces of ``torch.profiler``: of which process each is, and what it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kprof_inject.capture.model import Launch, Origin, place_names
from kprof_inject.errors import KprofError
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.drawing.tracks import LAYOUTS
from kprof_inject.export.formats import gzipped
from kprof_inject.export.hooks import Hook
from kprof_inject.export.merging.launch_matching import Captured, LaunchMatching, Refusal, match
from kprof_inject.export.merging.merged import MatchedLaunch, TracePart, merged_trace
from kprof_inject.export.merging.torch_trace import Bar, Span, TorchTrace, read_torch_trace
from kprof_inject.files import write_chunks
from kprof_inject.pipeline.captures import run_to_write
from kprof_inject.quantities import counted, listed, size_text, time_text
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.host_clock import HostClock, fit_host_clock
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

_MAX_SAID = 10
_MAX_PIDS = 4
# Of a buffer that was saved by itself; see ``Origin``.
_NO_PROCESS = "was saved by itself, and a buffer does not say which process it is from"
_BY_TIME = "; by time alone, since no host calls are known"


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """The launches of one trace and device, and what was found of them. ``numbers`` are their places among all."""

    trace: TorchTrace
    device: int
    numbers: Sequence[int]
    timelines: Sequence[Timeline]
    bars: Sequence[Bar]
    matching: LaunchMatching

    def matched(self, names: Mapping[Any, str]) -> Iterator[MatchedLaunch]:
        found = self.matching
        for each in found.matches:
            timeline = self.timelines[each.launch]
            if found.clock is not None:
                name = names[timeline.launch.place]
                yield MatchedLaunch(timeline, name, self.bars[each.bar], each, found.clock, found.error_ns)

    def line(self) -> str:
        where, clock = f"{self.trace.who}, device {self.device}", self.matching.clock
        if clock is None:
            return f"{where}: no launch matched"
        drift = f", with a drift of {clock.drift * 1e6:.1f} ppm" if clock.drift else ""
        found = f"{len(self.matching.matches)} of {counted(len(self.timelines), 'launch')} matched"
        alone = "" if any(each.by_call for each in self.matching.matches) else _BY_TIME
        return f"{where}: {found}, within ± {time_text(self.matching.error_ns)}{drift}{alone}"

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


@dataclass(frozen=True, slots=True)
class Merged:
    """What was written."""

    path: Path
    size_bytes: int
    traces: int
    launches: int
    refused: Sequence[tuple[Launch, str]]
    _devices: Sequence[_OnDevice]
    _without_launches: Sequence[TorchTrace]

    def lines(self) -> Iterator[str]:
        """How well each device's launches were placed, what was left out, and what was written."""
        for device in self._devices:
            yield device.line()
        yield from self.refusal_lines()
        into = counted(self.traces, "trace")
        yield f"wrote {self.path}: {into} with {counted(self.launches, 'launch')}, {size_text(self.size_bytes)}"

    def refusal_lines(self) -> Iterator[str]:
        for trace in self._without_launches:
            yield f"{trace.who}: the capture has no launch of its process, {_pids([trace])}"
        for launch, reason in self.refused[:_MAX_SAID]:
            yield f"not in the trace: {launch.kernel.name}, launch {launch.index}: it {reason}"
        if more := max(len(self.refused) - _MAX_SAID, 0):
            yield f"not in the trace: {counted(more, 'more launch')}; the file says why for each"


def default_output(trace: Path) -> Path:
    """``torch_trace.kprof.json.gz`` for ``torch_trace.json.gz``."""
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
    """Write the first trace, with the other ones and all launches of theirs in it. Raises ``KprofError`` if nothing can
    be matched, if there is no trace, or if ``output`` is one of them. ``layout`` is one of ``LAYOUT_NAMES``, None the
    usual one.
    """
    if not paths:
        raise KprofError("there is no trace to merge the launches into", hint="name one, or one of each rank")
    if twice := [path for at, path in enumerate(paths) if path.resolve() in {one.resolve() for one in paths[:at]}]:
        raise KprofError(f"{twice[0]} is named twice", hint="name each trace once", exit_code=2)
    target = output or default_output(paths[0])
    _require_another(target, paths)
    traces = [read_torch_trace(path) for path in paths]
    _require_unix_time(traces)
    devices = list(_devices(traces, timelines))
    refused = _refused(devices, timelines, traces)
    if not any(device.matching.matches for device in devices):
        raise _nothing_matched(traces, refused)
    names = place_names(timeline.launch.place for timeline in timelines)
    parts = [
        TracePart(trace, [one for device in devices if device.trace is trace for one in device.matched(names)])
        for trace in traces
    ]
    facts = {
        "version": __version__,
        "devices": [device.facts() for device in devices],
        "not_matched": [_named(launch) | {"reason": reason} for launch, reason in refused],
    }
    drawn = [launch.timeline for part in parts for launch in part.launches]
    chunks = merged_trace(parts, facts, LAYOUTS[layout or LAYOUT_NAMES[0]], run_to_write(drawn), hooks)
    try:
        size = write_chunks(target, gzipped(chunks) if _ending(target) == ".json.gz" else chunks)
    except BrokenPipeError:
        raise  # whoever read it has enough
    except OSError as error:
        raise KprofError(f"cannot write {target}: {error.strerror}") from None
    without = [trace for trace in traces if not any(device.trace is trace for device in devices)]
    return Merged(target, size, len(traces), len(drawn), refused, devices, without)


def _require_another(target: Path, paths: Sequence[Path]) -> None:
    """Raises ``KprofError`` if the file cannot be a trace, or is one of those to be read."""
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
                f"{trace.path} has its own time base: its offset from other traces is unknown",
                hint="merge it alone",
            )


def _devices(traces: Sequence[TorchTrace], timelines: Sequence[Timeline]) -> Iterator[_OnDevice]:
    """Each device of each trace on which there are launches. A launch that is in one trace is not looked for in the
    next: a program may write several.
    """
    left = dict(enumerate(timelines))
    for trace in traces:
        mine = {at: each for at, each in left.items() if _is_of(trace, each.launch.origin, traces, timelines)}
        for device in sorted({each.launch.device for each in mine.values()}):
            of_device = {at: each for at, each in mine.items() if each.launch.device == device}
            numbers, launched = list(of_device), list(of_device.values())
            bars = [bar for bar in trace.bars if bar.device in (None, device)]
            captured = [_captured(each, trace) for each in launched]
            matching = match(captured, bars, _prior(trace, launched))
            refused = [_of_another_device(each, captured[each.launch], trace, device) for each in matching.refusals]
            matching = replace(matching, refusals=tuple(refused))
            yield _OnDevice(trace, device, numbers, launched, bars, matching)
            for each in matching.matches:
                del left[numbers[each.launch]]


def _of_another_device(refusal: Refusal, launch: Captured, trace: TorchTrace, device: int) -> Refusal:
    """With the devices that the trace has its kernel on, if that is none of its own."""
    devices = {bar.device for bar in trace.bars if bar.name in launch.names}
    if not devices or devices & {None, device}:
        return refusal
    others = listed([f"device {each}" for each in sorted(each for each in devices if each is not None)], _MAX_PIDS)
    return replace(refusal, reason=f"ran on device {device}, but the trace has kernels of its name only on {others}")


def _is_of(trace: TorchTrace, origin: Origin, traces: Sequence[TorchTrace], timelines: Sequence[Timeline]) -> bool:
    """Whether a trace is of this process, by its number and its rank, as far as it tells them."""
    if trace.rank is not None and origin.rank is not None and trace.rank != origin.rank:
        return False
    if trace.host_pids:
        return origin.pid in trace.host_pids
    of_rank = trace.rank is not None and trace.rank == origin.rank
    alone = len(traces) == 1 and len({timeline.launch.origin.name for timeline in timelines}) == 1
    return of_rank or alone


def _captured(timeline: Timeline, trace: TorchTrace) -> Captured:
    launch, kernel = timeline.launch, timeline.launch.kernel
    width, *others = launch.grid
    clusters = kernel.metadata.get("num_ctas")
    wide = width * clusters if isinstance(clusters, int) else width
    warp_size = kernel.metadata.get("warp_size")
    return Captured(
        # Triton's name of the compiled function, which may have more to it.
        frozenset({kernel.name, str(kernel.metadata.get("name", kernel.name))}),
        frozenset({launch.grid, (wide, *others)}),
        kernel.num_warps * warp_size if isinstance(warp_size, int) else None,
        launch.stream,
        _ran(timeline),
        _call(launch) if trace.is_unix_time else None,
    )


def _ran(timeline: Timeline) -> Span | None:
    """When the whole launch did, whatever part of it is drawn. None where nobody read the device's clock, too."""
    ctas = timeline.ctas_that_ran
    if not ctas.size or timeline.clock.source == ClockSource.NOMINAL:
        return None
    begin_ns = int(ctas["init_ns"].min())
    # A CTA that was stopped wrote no end.
    return Span(begin_ns, max(int(ctas["post_final_ns"].max()), begin_ns))


def _call(launch: Launch) -> Span | None:
    """The call of a launch in a graph is the one that was captured, long before."""
    return None if launch.graph or launch.host_end_ns is None else Span(launch.host_ns, launch.host_end_ns)


def _prior(trace: TorchTrace, timelines: Sequence[Timeline]) -> HostClock | None:
    """What the capture knows of how the device's clock stands to Unix time."""
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
    """The launches that are in no trace, and why."""
    found = {device.numbers[each.launch] for device in devices for each in device.matching.matches}
    reasons = {device.numbers[each.launch]: each.reason for device in devices for each in device.matching.refusals}
    other = f"is from another process than the traces, which are from {_pids(traces)}"
    return [
        (launch, reasons.get(at, other if launch.origin.pid else _NO_PROCESS))
        for at, launch in enumerate(timeline.launch for timeline in timelines)
        if at not in found
    ]


def _pids(traces: Sequence[TorchTrace]) -> str:
    return listed([str(pid) for trace in traces for pid in sorted(trace.host_pids)], _MAX_PIDS) or "an unknown one"


def _named(launch: Launch) -> dict[str, Any]:
    return {"kernel": launch.kernel.name, "launch": launch.index, "pid": launch.origin.pid, "device": launch.device}


def _nothing_matched(traces: Sequence[TorchTrace], refused: Sequence[tuple[Launch, str]]) -> KprofError:
    launch, reason = refused[0]
    others = f", and {counted(len(refused) - 1, 'more launch')}" if len(refused) > 1 else ""
    return KprofError(
        f"no launch of the capture is in {listed([str(trace.path) for trace in traces], _MAX_PIDS)}: "
        f"{launch.kernel.name}, launch {launch.index} {reason}{others}",
        hint="use torch.profiler in the program that kprof-inject runs: both must see the same run; --launches all "
        "keeps every launch",
    )

"""The step that puts launches into traces of ``torch.profiler``: of which process each is, and what it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kprof_inject.capture.model import Launch, Origin, place_names
from kprof_inject.errors import KprofError
from kprof_inject.export.drawing import LAYOUT_NAMES
from kprof_inject.export.drawing.tracks import LAYOUTS
from kprof_inject.export.merging.matching import Captured, Matching, match
from kprof_inject.export.merging.merged import MatchedLaunch, TracePart, merged_trace
from kprof_inject.export.merging.torch_trace import Bar, Span, TorchTrace, read_torch_trace
from kprof_inject.export.registry import gzipped
from kprof_inject.files import write_chunks
from kprof_inject.pipeline.captures import run_to_write
from kprof_inject.quantities import counted, listed, size_text, time_text
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.host_clock import HostClock, fit_host_clock
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

_MOST_SAID = 10
_MOST_PIDS = 4


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """The launches of one trace and device, and what was found of them."""

    trace: TorchTrace
    device: int
    timelines: Sequence[Timeline]
    bars: Sequence[Bar]
    matching: Matching

    def matched(self, names: Mapping[Any, str]) -> Iterator[MatchedLaunch]:
        found = self.matching
        for each in found.matches:
            timeline = self.timelines[each.launch]
            if found.clock is not None:
                name = names[timeline.launch.place]
                yield MatchedLaunch(timeline, name, self.bars[each.bar], each, found.clock, found.error_ns)

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


def default_output(trace: Path) -> Path:
    """``torch_trace.kprof.json.gz`` for ``torch_trace.json.gz``."""
    ending = _ending(trace) or ".json"
    stem = trace.name[: len(trace.name) - len(ending)] if trace.name.lower().endswith(ending) else trace.name
    return trace.with_name(f"{stem}.kprof{ending}")


def merge_into(
    paths: Sequence[Path],
    timelines: Sequence[Timeline],
    output: Path | None,
    say: Callable[[str], None],
    layout: str | None = None,
) -> Path:
    """Write the first trace, with the other ones and all launches of theirs in it, and return where. Raises
    ``KprofError`` if nothing can be matched, or ``output`` is one of the traces. ``layout`` is one of
    ``LAYOUT_NAMES``, None the usual one."""
    target = output or default_output(paths[0])
    ending = _ending(target)
    if ending is None:
        raise KprofError(
            f"the name {target.name} is not that of a trace",
            hint="let it end in .json or .json.gz: what a trace is merged into keeps its format",
            exit_code=2,
        )
    if any(target == path or (target.exists() and path.exists() and target.samefile(path)) for path in paths):
        raise KprofError(f"{target} is one of the traces to be read", hint="name another file with -o", exit_code=2)
    traces = [read_torch_trace(path) for path in paths]
    _require_unix_time(traces)
    devices = list(_devices(traces, timelines))
    refused = _refused(devices, timelines, traces)
    if not any(device.matching.matches for device in devices):
        raise _nothing_matched(traces, refused)
    for line in _lines(devices, refused):
        say(line)
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
    chunks = merged_trace(parts, facts, LAYOUTS[layout or LAYOUT_NAMES[0]], run_to_write(drawn))
    try:
        size = write_chunks(target, gzipped(chunks) if ending.endswith(".gz") else chunks)
    except BrokenPipeError:
        raise  # whoever read it has enough
    except OSError as error:
        raise KprofError(f"cannot write {target}: {error.strerror}") from None
    say(f"wrote {target}: {counted(len(drawn), 'launch')} in {counted(len(traces), 'trace')}, {size_text(size)}")
    return target


def _ending(path: Path) -> str | None:
    return next((ending for ending in (".json", ".json.gz") if path.name.lower().endswith(ending)), None)


def _require_unix_time(traces: Sequence[TorchTrace]) -> None:
    for trace in traces if len(traces) > 1 else ():
        if not trace.is_unix_time:
            raise KprofError(
                f"{trace.path} counts from a time of its own: where it stands beside others is not known",
                hint="merge it alone",
            )


def _devices(traces: Sequence[TorchTrace], timelines: Sequence[Timeline]) -> Iterator[_OnDevice]:
    """Each device of each trace on which there are launches. A launch that is in one trace is not looked for in the
    next: a program may write several."""
    left = list(timelines)
    for trace in traces:
        mine = [timeline for timeline in left if _is_of(trace, timeline.launch.origin, traces, timelines)]
        for number in sorted({timeline.launch.device for timeline in mine}):
            of_device = [timeline for timeline in mine if timeline.launch.device == number]
            bars = [bar for bar in trace.bars if bar.device in (None, number)]
            matching = match([_captured(timeline) for timeline in of_device], bars, _prior(trace, of_device))
            yield _OnDevice(trace, number, of_device, bars, matching)
            found = {id(of_device[each.launch]) for each in matching.matches}
            left = [timeline for timeline in left if id(timeline) not in found]


def _is_of(trace: TorchTrace, origin: Origin, traces: Sequence[TorchTrace], timelines: Sequence[Timeline]) -> bool:
    """Whether a trace is of this process, by its number and its rank, as far as it tells them."""
    if trace.rank is not None and origin.rank is not None and trace.rank != origin.rank:
        return False
    if trace.host_pids:
        return origin.pid in trace.host_pids
    of_rank = trace.rank is not None and trace.rank == origin.rank
    alone = len(traces) == 1 and len({timeline.launch.origin.name for timeline in timelines}) == 1
    return of_rank or alone


def _captured(timeline: Timeline) -> Captured:
    launch, kernel = timeline.launch, timeline.launch.kernel
    width, *others = launch.grid
    clusters = kernel.metadata.get("num_ctas")
    wide = width * clusters if isinstance(clusters, int) else width
    timed = timeline.ctas.size and timeline.clock.source != ClockSource.NOMINAL
    warp_size = kernel.metadata.get("warp_size")
    return Captured(
        # Triton's name of the compiled function, which may have more to it.
        frozenset({kernel.name, str(kernel.metadata.get("name", kernel.name))}),
        frozenset({launch.grid, (wide, *others)}),
        kernel.num_warps * warp_size if isinstance(warp_size, int) else None,
        launch.stream,
        Span(int(timeline.ctas["init_ns"].min()), int(timeline.ctas["post_final_ns"].max())) if timed else None,
        _call(launch),
    )


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
    found = {id(device.timelines[each.launch]) for device in devices for each in device.matching.matches}
    reasons = {
        id(device.timelines[each.launch]): each.reason for device in devices for each in device.matching.refusals
    }
    pids = listed([str(pid) for trace in traces for pid in sorted(trace.host_pids)], _MOST_PIDS) or "nobody knows which"
    other = f"is of another process than the traces, which are of {pids}"
    return [(timeline.launch, reasons.get(id(timeline), other)) for timeline in timelines if id(timeline) not in found]


def _named(launch: Launch) -> dict[str, Any]:
    return {"kernel": launch.kernel.name, "launch": launch.index, "pid": launch.origin.pid, "device": launch.device}


def _nothing_matched(traces: Sequence[TorchTrace], refused: Sequence[tuple[Launch, str]]) -> KprofError:
    launch, reason = refused[0]
    others = f", and {counted(len(refused) - 1, 'more launch')}" if len(refused) > 1 else ""
    return KprofError(
        f"no launch of the capture is in {listed([str(trace.path) for trace in traces], _MOST_PIDS)}: "
        f"{launch.kernel.name}, launch {launch.index} {reason}{others}",
        hint="have torch.profiler on in the program that kprof-inject runs: both have to see the same run; --launches "
        "all keeps every launch",
    )


def _lines(devices: Sequence[_OnDevice], refused: Sequence[tuple[Launch, str]]) -> Iterator[str]:
    for device in devices:
        matching = device.matching
        where = f"{device.trace.who}, device {device.device}"
        if matching.clock is None:
            yield f"{where}: no launch matched"
            continue
        drift = f", with a drift of {matching.clock.drift * 1e6:.1f} ppm" if matching.clock.drift else ""
        found = f"{len(matching.matches)} of {counted(len(device.timelines), 'launch')} matched"
        yield f"{where}: {found}, within ± {time_text(matching.error_ns)}{drift}"
    for launch, reason in refused[:_MOST_SAID]:
        yield f"not in the trace: {launch.kernel.name}, launch {launch.index}: it {reason}"
    if len(refused) > _MOST_SAID:
        yield f"not in the trace: {counted(len(refused) - _MOST_SAID, 'more launch')}; the file says why of each"

"""Chrome's Trace Event Format, for ui.perfetto.dev and chrome://tracing.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Times are microseconds there; ours are printed from whole nanoseconds with exactly three decimals, and an event's end is
rounded once, so that a child never outlasts its parent. One process for each launch, one thread for each warp.
Launches of several processes and devices stand where ``timeline.axis`` puts them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.axis import DeviceClock, PlacedLaunch, place_launches
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import judge

_CHUNK_EVENTS = 1 << 14
_LOST = "lost records"
_INSTANT = "mark"


def chrome_trace(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """The file's bytes, in chunks. The zero of an axis is where its first CTA or scope begins: Perfetto drops what is
    before zero."""
    placed = place_launches(timelines)
    known = _other_data([launch.timeline for launch in placed])
    other_data = [{**data, **_place_data(launch)} for data, launch in zip(known, placed, strict=True)]
    yield b'{"displayTimeUnit":"ns","otherData":' + _json(other_data).encode()
    yield b',"traceEvents":[\n'
    # Process ids come first, so that no thread's id equals one: some viewers take such a thread for the main one.
    first_tid = len(timelines) + 1
    separator = b""
    for number, launch in enumerate(placed):
        threads = _Threads(launch.timeline, first_tid)
        first_tid += threads.count
        for events in _events_of(launch, number + 1, threads):
            if events:
                yield separator + ",\n".join(events).encode()
                separator = b",\n"
    yield b"\n]}\n"


class _Threads:
    """The threads of one launch, in order of SM, CTA and warp, with ids from ``first_tid`` on."""

    def __init__(self, timeline: Timeline, first_tid: int) -> None:
        sm, cta, warp = (
            np.concatenate((timeline.scopes[name], timeline.incomplete[name])).astype(np.int64)
            for name in ("sm", "cta", "warp")
        )
        # One number that sorts like all three: a CTA's id has 32 bits, a warp's 8.
        _, first, inverse = np.unique(sm << 40 | cta << 8 | warp, return_index=True, return_inverse=True)
        self.places = [column[first].tolist() for column in (sm, cta, warp)]
        self.count = len(first)
        self.first_tid = first_tid
        tids = first_tid + inverse
        self.scope_tids: NDArray[np.int64] = tids[: len(timeline.scopes)]
        self.lost_tids: NDArray[np.int64] = tids[len(timeline.scopes) :]


def _events_of(launch: PlacedLaunch, pid: int, threads: _Threads) -> Iterator[list[str]]:
    timeline, clock = launch.timeline, launch.clock
    yield list(_names(launch, pid, threads))
    yield _lost_windows(timeline, pid, threads, clock)
    marks = np.array([scope.kind == _INSTANT for scope in timeline.table.scopes], dtype=bool)
    for start in range(0, len(timeline.scopes), _CHUNK_EVENTS):
        part = slice(start, start + _CHUNK_EVENTS)
        scopes, tids = timeline.scopes[part], threads.scope_tids[part]
        is_mark = marks[scopes["scope"]]
        yield _slices(timeline, pid, tids[~is_mark], scopes[~is_mark], clock)
        yield _instants(timeline, pid, tids[is_mark], scopes[is_mark], clock)


def _names(placed: PlacedLaunch, pid: int, threads: _Threads) -> Iterator[str]:
    launch = placed.timeline.launch
    replay = " (last replay of a CUDA graph)" if launch.graph else ""
    name = f"{launch.kernel.name} launch {launch.index}{replay}, grid {'x'.join(map(str, launch.grid))}"
    name = f"{placed.place_name}: {name}" if placed.place_name else f"{name}, device {launch.device}"
    yield f'{{"ph":"M","name":"process_name","pid":{pid},"args":{{"name":{_json(name)}}}}}'
    yield f'{{"ph":"M","name":"process_sort_index","pid":{pid},"args":{{"sort_index":{pid}}}}}'
    for position, (sm, cta, warp) in enumerate(zip(*threads.places, strict=True)):
        thread = f'"pid":{pid},"tid":{threads.first_tid + position}'
        yield f'{{"ph":"M","name":"thread_name",{thread},"args":{{"name":"SM {sm} CTA {cta} warp {warp}"}}}}'
        yield f'{{"ph":"M","name":"thread_sort_index",{thread},"args":{{"sort_index":{position}}}}}'


def _slices(
    timeline: Timeline, pid: int, tids: NDArray[np.int64], scopes: NDArray[np.void], clock: DeviceClock
) -> list[str]:
    heads, tails = _same_for_all('"ph":"X"', timeline, pid)
    return [
        f'{heads[scope]}{tid},{times}{iteration}{start_cycles},"cycles":{cycles}{tails[scope]}'
        for scope, tid, times, iteration, start_cycles, cycles in zip(
            scopes["scope"].tolist(),
            tids.tolist(),
            _times(clock.on_axis(scopes["start_ns"]), clock.on_axis(scopes["end_ns"])),
            _iteration_args(scopes["iteration"]),
            scopes["start_cycles"].tolist(),
            (scopes["end_cycles"] - scopes["start_cycles"]).tolist(),
            strict=True,
        )
    ]


def _instants(
    timeline: Timeline, pid: int, tids: NDArray[np.int64], marks: NDArray[np.void], clock: DeviceClock
) -> list[str]:
    """A mark is a start and an end with nothing between: the time from one to the other is the record's own."""
    if not len(marks):
        return []
    heads, tails = _same_for_all('"ph":"i","s":"t"', timeline, pid)
    ts = np.divmod(clock.on_axis(marks["start_ns"]), 1000)
    return [
        f'{heads[scope]}{tid},"ts":{us}.{part:03d},"args":{{"start_cycles":{start_cycles}{tails[scope]}'
        for scope, tid, us, part, start_cycles in zip(
            marks["scope"].tolist(),
            tids.tolist(),
            ts[0].tolist(),
            ts[1].tolist(),
            marks["start_cycles"].tolist(),
            strict=True,
        )
    ]


def _same_for_all(event: str, timeline: Timeline, pid: int) -> tuple[list[str], list[str]]:
    """What all events of a scope begin and end with, by scope: it is made into text once."""
    scopes = timeline.table.scopes
    heads = [f'{{{event},"cat":"{scope.kind}","name":{_json(scope.name)},"pid":{pid},"tid":' for scope in scopes]
    return heads, [_source_args(scope.source, scope.called_from) + "}}" for scope in scopes]


def _times(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> list[str]:
    start = np.divmod(start_ns, 1000)
    duration = np.divmod(end_ns - start_ns, 1000)
    return [
        f'"ts":{ts}.{ts_part:03d},"dur":{dur}.{dur_part:03d}'
        for ts, ts_part, dur, dur_part in zip(
            start[0].tolist(), start[1].tolist(), duration[0].tolist(), duration[1].tolist(), strict=True
        )
    ]


def _iteration_args(iterations: NDArray[np.int64]) -> list[str]:
    return [
        ',"args":{"start_cycles":' if i < 0 else f',"args":{{"iteration":{i},"start_cycles":'
        for i in iterations.tolist()
    ]


def _source_args(source: str, called_from: Sequence[str]) -> str:
    args = ""
    if source:
        args += f',"source":{_json(source)}'
    if called_from:
        args += f',"called_from":{_json(" < ".join(called_from))}'
    return args


def _lost_windows(timeline: Timeline, pid: int, threads: _Threads, clock: DeviceClock) -> list[str]:
    lost = timeline.incomplete
    return [
        f'{{"ph":"X","cat":"lost","name":"{_LOST}","pid":{pid},"tid":{tid},{times},"args":{{"records":{records}}}}}'
        for tid, times, records in zip(
            threads.lost_tids.tolist(),
            _times(clock.on_axis(lost["lost_start_ns"]), clock.on_axis(lost["lost_end_ns"])),
            lost["records_lost"].tolist(),
            strict=True,
        )
    ]


def _other_data(timelines: Sequence[Timeline]) -> list[dict[str, Any]]:
    return [
        {
            "kernel": t.launch.kernel.name,
            "variant": t.launch.kernel.variant,
            "launch": t.launch.index,
            "clock_mhz": round(t.clock.clock_hz / 1e6, 3),
            "clock_residual_ns": round(t.clock.residual_ns, 1),
            "clock_source": t.clock.source,
            "records_written": t.records_written,
            "records_lost": t.records_lost,
            "ctas_never_ran": t.ctas_never_ran,
            "trust": judge(t.launch.kernel).to_json(),
        }
        for t in timelines
    ]


def _place_data(placed: PlacedLaunch) -> dict[str, Any]:
    """Of which process and device a launch is, and what the times of that device's launches are worth against those
    of others. Launches with the same ``axis`` can be compared, within their two errors. Where there is a drift, the
    offset is that of the first reading."""
    if not placed.place_name:
        return {}
    launch, clock, relation = placed.timeline.launch, placed.clock, placed.clock.relation
    return {
        "host": launch.origin.host,
        "rank": launch.origin.rank,
        "pid": launch.origin.pid,
        "device": launch.device,
        "axis": clock.axis.number,
        "aligned_by": clock.alignment,
        "globaltimer_to_axis_ns": (relation.offset_ns if relation else 0) - clock.axis.zero_ns,
        "globaltimer_drift_ppm": round(relation.drift * 1e6, 3) if relation else 0.0,
        "alignment_error_ns": clock.error_ns,
    }


def _json(value: Any) -> str:
    """JSON that Perfetto's own tokenizer reads back: it decodes escapes only in strings that hold a quote, and a
    string that ends in a backslash fails the whole load. So no escape but the quote's is left in."""
    return json.dumps(_printable(value), separators=(",", ":"), ensure_ascii=False)


def _printable(value: Any) -> Any:
    match value:
        case str():
            return "".join("/" if c == "\\" else c if c.isprintable() else " " for c in value)
        case dict():
            return {key: _printable(item) for key, item in value.items()}
        case list():
            return [_printable(item) for item in value]
    return value

"""Chrome's Trace Event Format, for ui.perfetto.dev and chrome://tracing.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Times are microseconds there, of which a double holds three decimals for months. Ours are computed from integer
nanoseconds, and the end of an event is rounded only once, so that a child never outlasts its parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType

from kprof_inject.errors import printable
from kprof_inject.export.events import Arg, Arrows, Counters, EventKind, Events, Picked, Process, Scene, Section, Tracks
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.columns import Numbers, Reals

_SEPARATOR = b",\n"  # it precedes each event; it is removed from the first event of a file
_CHUNK_ROWS = 1 << 10  # rows that are in memory as objects at once

_ENCODER = msgspec.json.Encoder()


class _Event(Struct, gc=False, kw_only=True):
    ph: str
    bp: str | UnsetType = UNSET
    cat: str | UnsetType = UNSET
    name: str
    id: int | UnsetType = UNSET
    pid: int
    tid: int | UnsetType = UNSET
    ts: float | UnsetType = UNSET
    args: Any = UNSET


def json_text(value: Any) -> bytes:
    """Return a value as JSON, in which only quotes are escaped.

    Perfetto's tokenizer decodes no other escapes, and fails on a string that ends in a backslash.
    """
    return _ENCODER.encode(_readable(value))


def _readable(value: Any) -> Any:
    match value:
        case str():
            return printable(value).replace("\\", "/")
        case dict():
            return {key: _readable(item) for key, item in value.items()}
        case list():
            return [_readable(item) for item in value]
    return value


def encode(scene: Scene, run: JobRunner = in_turn) -> Iterator[bytes]:
    """Yield a scene as a trace, in chunks. Its sections are ``run``'s jobs."""
    yield b'{"displayTimeUnit":"ns","otherData":' + json_text(scene.launches)
    yield b',"traceEvents":[\n'
    chunks = run([partial(events_in, section) for section in scene.sections])
    yield next(chunks, b"").removeprefix(_SEPARATOR)
    yield from chunks
    yield b"\n]}\n"


def events_in(section: Section) -> Iterator[bytes]:
    """Return the section's events as JSON, in chunks; a comma precedes each event."""
    for part in section():
        match part:
            case Process(pid=pid):
                yield _lines(_named("process", part.name, pid if part.position is None else part.position, pid))
                if part.own:
                    yield _lines(_named("thread", part.own, 0, pid, part.track))
            case Tracks():
                if part.names:
                    yield from _threads(part)
            case Events():
                yield from _slices_and_instants(part)
            case Counters():
                yield from _samples(part)


def _lines(events: Sequence[Any]) -> bytes:
    # No string has a line feed in JSON.
    return _SEPARATOR + _ENCODER.encode_lines(events)[:-1].replace(b"\n", _SEPARATOR) if events else b""


def _chunks(count: int) -> Iterator[slice]:
    return (slice(first, first + _CHUNK_ROWS) for first in range(0, count, _CHUNK_ROWS))


def _microseconds(ns: Numbers) -> list[float]:
    microseconds: list[float] = (ns / 1000).tolist()
    return microseconds


def _named(what: str, name: str, position: int, pid: int, tid: int | UnsetType = UNSET) -> tuple[_Event, _Event]:
    return (
        _Event(ph="M", name=f"{what}_name", pid=pid, tid=tid, args={"name": _readable(name)}),
        _Event(ph="M", name=f"{what}_sort_index", pid=pid, tid=tid, args={"sort_index": position}),
    )


def _threads(threads: Tracks) -> Iterator[bytes]:
    for part in _chunks(len(threads.ids)):
        texts = (repeat(text) if isinstance(text, str) else map(str, _values(text, part)) for text in threads.names)
        names = map("".join, zip(*texts, strict=False))
        rows = zip(names, threads.positions[part].tolist(), threads.ids[part].tolist(), strict=False)
        yield _lines([event for name, at, tid in rows for event in _named("thread", name, at, threads.pid, tid)])


def _values(values: Numbers | Reals | Picked, part: slice) -> list[Any]:
    if isinstance(values, Picked):
        texts = [_readable(text) for text in values.texts]
        return [texts[index] for index in values.index[part].tolist()]
    items: list[Any] = values[part].tolist()
    return items


def _slices_and_instants(events: Events) -> Iterator[bytes]:
    types = [_event_type(kind, events.pid) for kind in events.kinds]
    args = [_args_type(events.args, kind) for kind in events.kinds]
    is_instant = [kind.is_instant for kind in events.kinds]
    for part in _chunks(len(events)):
        kinds = events.kind[part].tolist()
        own = []
        for arg in events.args:
            values = _values(arg.values, part)
            if arg.shown is not None:
                shown = arg.shown[part].tolist()
                values = [value if is_shown else UNSET for value, is_shown in zip(values, shown, strict=True)]
            own.append(values)
        rows = zip(*own, strict=True) if own else repeat(())
        made = [args[kind] and args[kind](*row) for kind, row in zip(kinds, rows, strict=False)]
        dur: list[Any] = _microseconds(events.end_ns[part] - events.start_ns[part])
        if any(is_instant):
            dur = [UNSET if is_instant[kind] else length for kind, length in zip(kinds, dur, strict=True)]
        times = events.tids[part].tolist(), _microseconds(events.start_ns[part]), dur
        columns = zip(kinds, *times, made, strict=True)
        yield _lines([types[kind](tid, at, length, values) for kind, tid, at, length, values in columns])
    for arrows in events.arrows:
        yield from _arrow_ends(events, arrows)


def _event_type(kind: EventKind, pid: int) -> Any:
    common = {"ph": "X", "cat": _readable(kind.category), "name": _readable(kind.name), "pid": pid}
    if kind.is_instant:
        common |= {"ph": "i", "s": "t"}
    if kind.colour:
        common["cname"] = kind.colour.cname
    own = ["tid", "ts", "dur", "args"]
    return msgspec.defstruct("Event", [*own, *((name, Any, value) for name, value in common.items())], gc=False)


def _args_type(own: Sequence[Arg], kind: EventKind) -> Any:
    # Each event has its ``own`` arguments, all have those of the kind. msgspec escapes no quote in a name.
    names = [_readable(name).replace('"', "'") for name in (*(arg.name for arg in own), *dict(kind.args))]
    fields = [f"f{number}" for number in range(len(names))]
    values = [(field, Any, _readable(value)) for field, (_, value) in zip(fields[len(own) :], kind.args, strict=True)]
    if not names:
        return UNSET
    renamed = dict(zip(fields, names, strict=True))
    return msgspec.defstruct("Args", [*fields[: len(own)], *values], rename=renamed, gc=False)


def _arrow_ends(events: Events, arrows: Arrows) -> Iterator[bytes]:
    present = np.flatnonzero(arrows.ids)
    ph, binding = ("f", "e") if arrows.arrive else ("s", UNSET)  # e: an end belongs to the slice around it
    name = _readable(arrows.name)
    for part in _chunks(len(present)):
        rows = present[part]
        columns = arrows.ids[rows].tolist(), events.tids[rows].tolist(), _microseconds(arrows.at_ns[rows])
        yield _lines(
            [
                _Event(ph=ph, bp=binding, cat="arrow", name=name, id=number, pid=events.pid, tid=tid, ts=ts)
                for number, tid, ts in zip(*columns, strict=True)
            ]
        )


def _samples(counters: Counters) -> Iterator[bytes]:
    names, unit, pid = [_readable(name) for name in counters.names], _readable(counters.unit), counters.pid
    for part in _chunks(len(counters.at_ns)):
        rows = zip(
            [names[which] for which in counters.counter[part].tolist()],
            _microseconds(counters.at_ns[part]),
            counters.values[part].tolist(),
            strict=True,
        )
        yield _lines([_Event(ph="C", name=name, pid=pid, ts=ts, args={unit: value}) for name, ts, value in rows])

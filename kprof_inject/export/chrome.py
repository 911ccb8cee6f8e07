"""Chrome's Trace Event Format, for ui.perfetto.dev and chrome://tracing.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Times are microseconds there; ours are printed from integer nanoseconds with exactly three decimals, and the end of an
event is rounded only once, so that a child never outlasts its parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from kprof_inject.export.drawing.draw import draw
from kprof_inject.export.drawing.scene import (
    Arrows,
    Counters,
    EventKind,
    Events,
    Mask,
    Numbers,
    Part,
    Picked,
    Reals,
    Scene,
    Section,
    Threads,
    TraceProcess,
    TrackGroups,
)
from kprof_inject.export.drawing.tracks import TrackLayout, by_sm
from kprof_inject.export.hooks import Hook
from kprof_inject.export.text_rows import (
    THOUSANDTHS,
    Field,
    NumberField,
    PickedField,
    TextField,
    json_inside,
    json_text,
    text_rows,
)
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.timeline import Timeline

# It precedes each event; it is removed from the first event of a file.
_SEPARATOR = b",\n"


def chrome_trace(
    timelines: Sequence[Timeline], layout: TrackLayout = by_sm, run: JobRunner = in_turn, hooks: Sequence[Hook] = ()
) -> Iterator[bytes]:
    """Yield the trace's bytes in chunks."""
    yield from encode(draw(timelines, layout, hooks), run)


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
    return (chunk for part in section() for chunk in _events_of(part))


def _events_of(part: Part) -> Iterator[bytes]:
    match part:
        case TraceProcess():
            return _process(part)
        case TrackGroups():
            return iter(())
        case Threads():
            return _threads(part)
        case Events():
            return _slices_and_instants(part)
        case Counters():
            return _samples(part)


def _process(process: TraceProcess) -> Iterator[bytes]:
    position = process.pid if process.position is None else process.position
    for name, args in (("process_name", {"name": process.name}), ("process_sort_index", {"sort_index": position})):
        yield _SEPARATOR + json_text({"ph": "M", "name": name, "pid": process.pid, "args": args})
    if own := process.own:
        yield from _threads(Threads(process.pid, np.array([own.tid]), np.array([0]), (own.name,)))


def _threads(threads: Threads) -> Iterator[bytes]:
    """Yield two events for each thread: its name and its position."""
    event = b',\n{"ph":"M","name":"%b","pid":%d,"tid":'
    picks = [part.index for part in threads.names if isinstance(part, Picked)]
    yield from text_rows(
        [
            NumberField(event % (b"thread_name", threads.pid), threads.tids),
            TextField([b',"args":{"name":"']),
            *(_part_of_name(part) for part in threads.names),
            TextField([b'"}}']),
            NumberField(event % (b"thread_sort_index", threads.pid), threads.tids),
            NumberField(b',"args":{"sort_index":', threads.positions),
            TextField([b"}}"]),
        ],
        picks[0] if picks else np.zeros_like(threads.tids),
    )


def _part_of_name(part: str | Numbers | Picked) -> Field:
    match part:
        case str():
            return TextField([json_inside(part)])
        case Picked():
            return TextField([json_inside(text) for text in part.texts])
    return NumberField(b"", part)


def _slices_and_instants(events: Events) -> Iterator[bytes]:
    is_slice = np.array([not kind.is_instant for kind in events.kinds], dtype=bool)
    shown = None if is_slice.all() else is_slice[events.kind]
    yield from text_rows(
        [
            TextField([_head(kind) + b',"pid":%d,"tid":' % events.pid for kind in events.kinds]),
            NumberField(b"", events.tids),
            NumberField(b',"ts":', events.start_ns, THOUSANDTHS),
            NumberField(b',"dur":', events.end_ns - events.start_ns, THOUSANDTHS, shown),
            *_args(events),
            TextField([b"}"]),
        ],
        events.kind,
    )
    for arrows in events.arrows:
        yield from _arrow_ends(events, arrows)


def _head(kind: EventKind) -> bytes:
    event = b'"ph":"i","s":"t"' if kind.is_instant else b'"ph":"X"'
    colour = b',"cname":%b' % json_text(kind.colour.cname) if kind.colour else b""
    return b',\n{%b,"cat":%b,"name":%b%b' % (event, json_text(kind.category), json_text(kind.name), colour)


def _arrow_ends(events: Events, arrows: Arrows) -> Iterator[bytes]:
    """Yield an event for each end of an arrow; it belongs to the slice around it."""
    present = np.flatnonzero(arrows.ids)
    event = b'"ph":"f","bp":"e"' if arrows.arrive else b'"ph":"s"'
    yield from text_rows(
        [
            NumberField(b',\n{%b,"cat":"arrow","name":%b,"id":' % (event, json_text(arrows.name)), arrows.ids[present]),
            NumberField(b',"pid":%d,"tid":' % events.pid, events.tids[present]),
            NumberField(b',"ts":', arrows.at_ns[present], THOUSANDTHS),
            TextField([b"}"]),
        ],
        np.zeros_like(present),
    )


def _args(events: Events) -> Iterator[Field]:
    """Yield the fields of an object with the arguments.

    Any row may lack any argument, so the comma before one is only written in rows that already have a member.
    """
    if not events.args and not any(kind.args for kind in events.kinds):
        return
    yield TextField([b',"args":{'])
    has_member = np.zeros(len(events), dtype=bool)
    for arg in events.args:
        shown = np.ones(len(events), dtype=bool) if arg.shown is None else arg.shown
        name = b'"%b":' % json_inside(arg.name)
        if has_member.all():
            name = b"," + name
        else:
            yield TextField([b","], has_member & shown)
        yield _value(name, arg.values, arg.shown)
        has_member = has_member | shown
    fixed = [json_text(dict(kind.args))[1:-1] for kind in events.kinds]
    yield TextField([b"," if args else b"" for args in fixed], has_member)
    yield TextField(fixed)
    yield TextField([b"}"])


def _value(label: bytes, values: Numbers | Reals | Picked, shown: Mask | None = None) -> Field:
    if isinstance(values, Picked):
        return PickedField(label, [json_text(text) for text in values.texts], values.index, shown)
    if values.dtype.kind != "f":
        return NumberField(label, values.astype(np.int64), shown=shown)
    different, index = np.unique(values, return_inverse=True)
    return PickedField(label, [json_text(value) for value in different.tolist()], index, shown)


def _samples(counters: Counters) -> Iterator[bytes]:
    names = [json_text(name) for name in counters.names]
    yield from text_rows(
        [
            TextField([b',\n{"ph":"C","name":%b,"pid":%d,"ts":' % (name, counters.pid) for name in names]),
            NumberField(b"", counters.at_ns, THOUSANDTHS),
            _value(b',"args":{"%b":' % json_inside(counters.unit), counters.values),
            TextField([b"}}"]),
        ],
        counters.counter,
    )

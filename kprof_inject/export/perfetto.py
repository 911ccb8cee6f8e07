"""Perfetto's own format of traces: packets of protobuf, written with numpy.

Format: https://perfetto.dev/docs/reference/synthetic-track-event. Every start and every end of a slice is a packet;
names, categories and texts are written once, and a number stands for each from then on. Times are whole nanoseconds
from the axis's zero.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from kprof_inject.export.drawing.draw import draw
from kprof_inject.export.drawing.scene import Counters, Events, Part, Process, Scene, Section, Threads
from kprof_inject.export.drawing.tracks import BY_SM, TrackLayout
from kprof_inject.export.packets import (
    CHROME_EVENTS,
    INTERNED_DATA,
    Interned,
    clearing_packet,
    counter_tracks,
    first_counter_uuid,
    first_packet,
    packet,
    process_track,
    root_track,
    samples,
    slices_and_instants,
    thread_tracks,
)
from kprof_inject.export.protobuf import field
from kprof_inject.forks import Run, in_turn
from kprof_inject.timeline.timeline import Timeline

_CHUNK_SAMPLES = 1 << 15

# Fields of ``ChromeEventBundle`` and of its ``ChromeMetadata``.
_METADATA, _METADATA_NAME, _METADATA_TEXT = 2, 1, 2


def perfetto_trace(timelines: Sequence[Timeline], layout: TrackLayout = BY_SM, run: Run = in_turn) -> Iterator[bytes]:
    """The file's bytes, in chunks."""
    return encode(draw(timelines, layout), run)


def encode(scene: Scene, run: Run = in_turn) -> Iterator[bytes]:
    """A scene as packets; its sections are ``run``'s jobs. What is known of each launch is among the trace's metadata,
    as JSON."""
    yield first_packet() + _launch_facts(scene.launches) + root_track()
    yield from run([partial(_packets_in, section) for section in scene.sections])


def _packets_in(section: Section) -> Iterator[bytes]:
    """Strings have their numbers for one section."""
    yield clearing_packet()
    writer = _Writer()
    for part in section():
        yield from writer.packets(part)


class _Writer:
    """Writes the parts of one section; remembers what was numbered in those before."""

    def __init__(self) -> None:
        self._interned = Interned()
        self._counters_before = 0

    def packets(self, part: Part) -> Iterator[bytes]:
        match part:
            case Process():
                yield process_track(part)
            case Threads():
                yield thread_tracks(part)
            case Events():
                yield from self._events(part)
            case Counters():
                yield from self._counters(part)

    def _events(self, events: Events) -> Iterator[bytes]:
        chunks = slices_and_instants(events, self._interned)
        if strings := self._interned.take_unwritten():
            yield packet(INTERNED_DATA, strings)
        yield from chunks

    def _counters(self, counters: Counters) -> Iterator[bytes]:
        yield counter_tracks(counters, self._counters_before)
        first_uuid = first_counter_uuid(counters.pid) + self._counters_before
        self._counters_before += len(counters.names)
        for begin in range(0, len(counters.values), _CHUNK_SAMPLES):
            rows = np.s_[begin : begin + _CHUNK_SAMPLES]
            yield samples(first_uuid + counters.counter[rows], counters.at_ns[rows], counters.values[rows])


def _launch_facts(launches: list[dict[str, Any]]) -> bytes:
    """Perfetto's UI shows these names with "cr-" before them, under "Info and stats"."""
    entries = [
        field(_METADATA_NAME, f"launch[{number}]") + field(_METADATA_TEXT, json.dumps(facts, separators=(",", ":")))
        for number, facts in enumerate(launches)
    ]
    return packet(CHROME_EVENTS, b"".join(field(_METADATA, entry) for entry in entries)) if entries else b""

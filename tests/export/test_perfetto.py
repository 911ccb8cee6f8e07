"""Perfetto traces, judged by Perfetto's own protobufs and by its trace processor."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import load
from generated_scenes import DRAWN, MUCH_DRAWN, Drawn, at_any_speed, process, threads
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (  # type: ignore[import-untyped]
    Trace,
    TrackDescriptor,
    TrackEvent,
)

from kprof_inject.export import perfetto
from kprof_inject.export.events import Arg, Counters, EventKind, Events, Part, Picked, Scene, Tracks
from kprof_inject.export.perfetto import encode
from kprof_inject.timeline.columns import Numbers

SHOWN = (
    "SELECT track.name AS track, ts, dur, slice.name AS name, depth, around,"
    " EXTRACT_ARG(slice.arg_set_id, 'debug.number') AS number"
    " FROM slice JOIN track ON track.id = track_id"
    " LEFT JOIN (SELECT id AS around_id, name AS around FROM slice) ON around_id = slice.parent_id"
    " ORDER BY number"
)


def parse(data: bytes) -> Any:
    """The trace as Perfetto's protobufs read it. There is nothing in it that they do not know, nor a field that is
    written twice or longer than need be."""
    trace = Trace.FromString(data)
    assert len(trace.SerializeToString()) == len(data)
    trace.DiscardUnknownFields()
    assert len(trace.SerializeToString()) == len(data)
    return trace


def scene_bytes(*parts: Part, launches: Sequence[dict[str, Any]] = ()) -> bytes:
    return b"".join(encode(Scene(list(launches), [lambda: iter(parts)])))


def column(*values: int) -> Numbers:
    return np.array(values, dtype=np.int64)


def events(kinds: Sequence[EventKind], *spans: tuple[int, int], args: tuple[Arg, ...] = ()) -> list[Part]:
    """One event of each kind, on a thread of its own."""
    rows = np.arange(len(kinds))
    return [
        process(1, "process"),
        threads(1, 10 + rows, ("thread ", rows)),
        Events(
            1,
            10 + rows,
            kinds,
            rows,
            column(*(begin for begin, _ in spans)),
            column(*(end for _, end in spans)),
            rows,
            0 * rows,
            0 * rows + 1,
            args,
        ),
    ]


@at_any_speed
@given(DRAWN)
def test_starts_and_ends_stand_in_the_order_in_which_they_were(drawn: Drawn) -> None:
    trace = parse(b"".join(encode(drawn.scene())))
    assert replayed(trace) == [row.shown() for row in drawn.rows]


def replayed(trace: Any) -> list[tuple[Any, ...]]:
    """What a reader that keeps to the letter shows: packets in order of time, those of one time in that of the file,
    and each end ends the innermost slice of its track."""
    names: dict[int, str] = {}
    tracks: dict[int, str] = {}
    shown: dict[int, list[Any]] = {}
    open_slices: dict[int, list[list[Any]]] = {}
    for packet in sorted(trace.packet, key=lambda packet: packet.timestamp):
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        stack = open_slices.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_END:
            row = stack.pop()
            row[2] = packet.timestamp - row[1]
            continue
        number = next(arg.int_value for arg in event.debug_annotations if arg.name_iid == NUMBER_IID)
        around = stack[-1][3] if stack else None
        row = [tracks[event.track_uuid], packet.timestamp, 0, names[event.name_iid], len(stack), around, number]
        shown[number] = row
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(row)
    assert not any(open_slices.values())
    return [tuple(row) for _, row in sorted(shown.items())]


# After the names of the arguments that are the same for all events of a kind.
NUMBER_IID = 5


@at_any_speed
@given(DRAWN, st.integers(1, 40))
def test_where_chunks_are_cut_does_not_show(drawn: Drawn, orders: int) -> None:
    whole = list(encode(drawn.scene()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perfetto, "_CHUNK_ORDERS", orders)
        cut = list(encode(drawn.scene()))
    assert b"".join(cut) == b"".join(whole)
    if orders == 1:
        # All events of the scene are in one chunk, or each group's are in one.
        groups = len({row.group for row in drawn.rows})
        assert len(cut) - len(whole) == max(groups - 1, 0)


@settings(at_any_speed, max_examples=4)
@given(drawn=MUCH_DRAWN)
def test_the_trace_processor_shows_every_slice_where_it_was(
    drawn: Drawn, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (rows,) = load(tmp_path_factory.mktemp("trace") / "t.pftrace", list(encode(drawn.scene())), SHOWN)
    assert [tuple(row.values()) for row in rows] == [row.shown() for row in drawn.rows]


def test_a_slice_of_no_length_stands_beside_those_that_it_touches(tmp_path: Path) -> None:
    orders = [(0, 3), (1, 2), (4, 5), (6, 9), (7, 8)]
    times_ns = [(10, 20), (20, 20), (20, 20), (20, 30), (20, 20)]
    rows = np.arange(5)
    one_thread = Events(
        1,
        0 * rows + 10,
        [EventKind(name, "k") for name in ("in the first", "outer", "between", "in the second")],
        column(1, 0, 2, 1, 3),
        column(*(begin for begin, _ in times_ns)),
        column(*(end for _, end in times_ns)),
        0 * rows,
        column(*(first for first, _ in orders)),
        column(*(last for _, last in orders)),
        (Arg("number", rows),),
    )
    data = scene_bytes(process(1, "p"), threads(1, column(10), ("t",)), one_thread)
    (shown,) = load(tmp_path / "t.pftrace", [data], SHOWN)
    assert [(row["name"], row["ts"], row["dur"], row["around"]) for row in shown] == [
        ("outer", 10, 10, None),
        ("in the first", 20, 0, "outer"),
        ("between", 20, 0, None),
        ("outer", 20, 10, None),
        ("in the second", 20, 0, "outer"),
    ]


def test_arguments_are_numbers_and_texts(tmp_path: Path) -> None:
    kinds = [
        EventKind("all", "k", (("text", "größe → 🚀"), ("half", 0.5), ("many", 1 << 40), ("fewer", -3))),
        EventKind("none", "k"),
    ]
    shown = np.array([True, False])
    parts = events(kinds, (0, 9), (0, 9), args=(Arg("each", column(5, -(1 << 62))), Arg("one", column(7, 8), shown)))
    (args,) = load(
        tmp_path / "t.pftrace",
        [scene_bytes(*parts)],
        "SELECT slice.name AS slice, key, display_value AS value, value_type AS type"
        " FROM slice JOIN args USING (arg_set_id) ORDER BY slice, key",
    )
    assert [tuple(row.values()) for row in args] == [
        ("all", "debug.each", "5", "int"),
        ("all", "debug.fewer", "-3", "int"),
        ("all", "debug.half", "0.5", "real"),
        ("all", "debug.many", str(1 << 40), "int"),
        ("all", "debug.one", "7", "int"),
        ("all", "debug.text", "größe → 🚀", "string"),
        ("none", "debug.each", str(-(1 << 62)), "int"),
    ]


# A name, and what is shown: protobuf has no texts that are none.
NAMES = {
    'say "hi"': 'say "hi"',
    "C:\\dir\\": "C:\\dir\\",
    "größe → 𝛼 🚀": "größe → 𝛼 🚀",
    "tab\tline\n": "tab\tline\n",
    "lone \ud800": "lone ?",
    "x" * 300: "x" * 300,
}


def test_any_name_is_shown(tmp_path: Path) -> None:
    rows = np.arange(len(NAMES))
    data = scene_bytes(
        process(1, "lone \ud800"),
        threads(1, 10 + rows, (Picked(list(NAMES), rows), " of ", rows)),
        *events([EventKind(name, name, ((name, name),)) for name in NAMES], *[(0, 1)] * len(NAMES))[2:],
    )
    (shown,) = load(
        tmp_path / "t.pftrace",
        [data],
        "SELECT process.name AS process, track.name AS track, category, slice.name AS name, key, string_value AS text"
        " FROM slice JOIN track ON track.id = track_id JOIN track process ON process.id = track.parent_id"
        " JOIN args ON args.arg_set_id = slice.arg_set_id ORDER BY slice.id",
    )
    assert [tuple(row.values()) for row in shown] == [
        ("lone ?", f"{name} of {at}", name, name, f"debug.{name}", name) for at, name in enumerate(NAMES.values())
    ]


def test_a_string_is_written_once() -> None:
    """Also if a later part has the same kinds, and others."""
    *tracks, first = events([EventKind("name", "category", (("key", "text"),))], (0, 1))
    (*_, second) = events(
        [EventKind("name", "category", (("key", "text"),)), EventKind("other", "category")], (2, 3), (4, 5)
    )
    data = scene_bytes(*tracks, first, second)
    for string in (b"name", b"category", b"key", b"text", b"other"):
        assert data.count(string) == 1
    trace = parse(data)
    names = [event.name_iid for event in events_of(trace) if event.name_iid]
    assert names == [1, 1, 2]
    interned = [packet.interned_data for packet in trace.packet if packet.HasField("interned_data")]
    assert [[entry.name for entry in each.event_names] for each in interned] == [["name"], ["other"]]


def events_of(trace: Any) -> list[Any]:
    return [packet.track_event for packet in trace.packet if packet.HasField("track_event")]


def test_the_first_packet_says_that_nothing_came_before() -> None:
    first, *others = parse(scene_bytes(*events([EventKind("a", "b")], (0, 1)))).packet
    assert first.first_packet_on_sequence and first.sequence_flags == first.SEQ_INCREMENTAL_STATE_CLEARED
    assert {packet.trusted_packet_sequence_id for packet in (first, *others)} == {1}
    cleared = [packet.sequence_flags == first.SEQ_INCREMENTAL_STATE_CLEARED for packet in others]
    assert sum(cleared) == 1
    assert {packet.sequence_flags for packet, clears in zip(others, cleared, strict=True) if not clears} == {
        first.SEQ_NEEDS_INCREMENTAL_STATE
    }


def test_each_section_has_its_own_strings() -> None:
    """So that one can be written without the others."""
    section, other = events([EventKind("a", "b")], (0, 1)), events([EventKind("c", "b")], (0, 1))
    packets = parse(b"".join(encode(Scene([], [lambda: iter(section), lambda: iter(other)])))).packet
    names = [name.name for packet in packets for name in packet.interned_data.event_names]
    assert names == ["a", "c"]
    assert {name.iid for packet in packets for name in packet.interned_data.event_names} == {1}
    clearing = [at for at, packet in enumerate(packets) if packet.sequence_flags == 1]
    written = [at for at, packet in enumerate(packets) if packet.interned_data.event_names]
    assert len(clearing) == 3
    assert clearing[1] < written[0] < clearing[2] < written[1]


def test_tracks_are_told_where_to_stand() -> None:
    tids, groups = column(10, 11, 300), column(20, 21)
    one = process(1, "one", own="own", first_id=9)
    data = scene_bytes(
        one,
        process(2, "two: in one", within=one, label="in one"),
        Tracks(2, groups, column(7, 3), column(2, 20), ("g", groups)),
        Tracks(2, tids, column(2, 0, 1), column(20, 21, 21), ("thread ", tids), ("t", tids)),
        Tracks(1, column(12), column(1), column(9), ("in one",), ("in one",)),
    )
    tracks = [packet.track_descriptor for packet in parse(data).packet if packet.HasField("track_descriptor")]
    assert [(track.uuid, track.parent_uuid, track.name) for track in tracks] == [
        (9, 0, "one"),
        (2, 9, "in one"),
        (20, 2, "g20"),
        (21, 20, "g21"),
        (10, 20, "thread 10"),
        (11, 21, "thread 11"),
        (300, 21, "thread 300"),
        (12, 9, "in one"),
    ]
    assert {track.child_ordering for track in tracks[:4]} == {TrackDescriptor.EXPLICIT}
    assert {track.sibling_merge_behavior for track in tracks} == {TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE}
    ranks = {track.uuid: track.sibling_order_rank for track in tracks}
    assert ranks[11] < ranks[300] < ranks[10]
    # A process's threads come first, then what stands in it as processes, then its groups.
    assert ranks[12] < ranks[9] < ranks[2] < ranks[21] < ranks[20]
    # To Perfetto none of them is a process or a thread: its UI would show their ids.
    assert not any(track.HasField("process") or track.HasField("thread") for track in tracks)


COUNTED = (
    "SELECT process.name AS process, track.name AS counter, unit, ts, value"
    " FROM counter JOIN counter_track ON counter_track.id = track_id JOIN track ON track.id = track_id"
    " JOIN track process ON process.id = track.parent_id"
    " ORDER BY track_id, ts"
)


@pytest.mark.parametrize("samples", [1, 1 << 15])
def test_counters_have_their_samples(tmp_path: Path, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "_CHUNK_SAMPLES", samples)
    data = scene_bytes(
        process(1, "one"),
        Counters(1, ["all", "SM 3"], "CTAs", column(0, 0, 1), column(0, 700, 5), column(1, 0, 200)),
        process(2, "two"),
        Counters(2, ["all"], "CTAs", column(0), column(1 << 40), column(-1)),
    )
    (rows,) = load(tmp_path / "t.pftrace", [data], COUNTED)
    assert [tuple(row.values()) for row in rows] == [
        ("one", "all", "CTAs", 0, 1.0),
        ("one", "all", "CTAs", 700, 0.0),
        ("one", "SM 3", "CTAs", 5, 200.0),
        ("two", "all", "CTAs", 1 << 40, -1.0),
    ]
    tracks = [p.track_descriptor for p in parse(data).packet if p.track_descriptor.HasField("counter")]
    assert [track.sibling_order_rank for track in tracks] == [0, 1, 2]


def test_the_trace_says_what_is_known_of_each_launch(tmp_path: Path) -> None:
    launches: list[dict[str, Any]] = [{"kernel": 'say "größe"', "clock_mhz": 1980.0}, {"trust": {"level": None}}]
    (rows,) = load(
        tmp_path / "t.pftrace",
        [scene_bytes(launches=launches)],
        "SELECT name, str_value AS facts FROM metadata WHERE name GLOB 'cr-*' ORDER BY name",
    )
    assert [row["name"] for row in rows] == ["cr-launch[0]", "cr-launch[1]"]
    assert [json.loads(str(row["facts"])) for row in rows] == launches


def test_an_empty_scene_is_a_trace_without_slices(tmp_path: Path) -> None:
    empty = events([], *[])
    for data in (scene_bytes(), scene_bytes(*empty)):
        parse(data)
        assert load(tmp_path / "t.pftrace", [data], "SELECT id FROM slice", "SELECT id FROM counter") == [[], []]


def test_writing_a_trace_needs_no_protobuf() -> None:
    program = (
        "import sys; from kprof_inject.export.drawing import draw; from kprof_inject.export.perfetto import encode;"
        " b''.join(encode(draw([], 'sm')));"
        " print(sorted({name.partition('.')[0] for name in sys.modules} & {'google', 'perfetto', 'torch', 'triton'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

"""A Chrome and a Perfetto trace of the same timelines show the same, by the trace processor's tables."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, Entry
from drawn import FAULTS, SCOPES, called, crossing, decode, loops, marked, partitioned, unpaired
from generated_scenes import MUCH_DRAWN, Drawn, at_any_speed
from hypothesis import given, settings
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace  # type: ignore[import-untyped]
from ranks import BEGIN_NS
from trace_processor import processor
from trace_processor.processor import query_many
from traces import chrome_trace, perfetto_trace

from kprof_inject.export import chrome, perfetto
from kprof_inject.export.tracks import LAYOUT_NAMES
from kprof_inject.timeline.timeline import Timeline

# Chrome's threads are Perfetto's tracks, by one id.
SLICES = (
    "SELECT slice.id AS id, {track} AS track, ts, dur, depth, slice.name AS name, category, around"
    " FROM slice JOIN {tracks} track ON track.id = track_id"
    " LEFT JOIN (SELECT id AS around_id, name AS around FROM slice) ON around_id = slice.parent_id"
)
OF_CHROME = SLICES.format(track="tid", tracks="(SELECT * FROM thread_track JOIN thread USING (utid))")
OF_PERFETTO = SLICES.format(track="EXTRACT_ARG(source_arg_set_id, 'trace_id')", tracks="track")
# The formats keep an event's arguments under names of their own: debug.x and args.x.
ARGS = (
    "SELECT slice.id AS id, substr(key, instr(key, '.') + 1) AS key, display_value AS value, value_type AS type"
    " FROM slice JOIN args USING (arg_set_id) WHERE key GLOB 'debug.*' OR key GLOB 'args.*'"
)
# Chrome's counters have the unit in their name, and its processes what these stand in.
CHROME_COUNTERS = (
    "SELECT process.name AS process, track.name AS counter, ts, value FROM counter"
    " JOIN process_counter_track track ON track.id = track_id JOIN process USING (upid)"
)
PERFETTO_COUNTERS = (
    "SELECT launch.name || ': ' || process.name AS process, track.name || ' ' || unit AS counter, ts, value"
    " FROM counter JOIN counter_track ON counter_track.id = track_id JOIN track ON track.id = track_id"
    " JOIN track process ON process.id = track.parent_id JOIN track launch ON launch.id = process.parent_id"
)
FLOWS = (
    "SELECT a.name AS out_name, a.category AS out_category, a.ts AS out_ts,"
    " b.name AS in_name, b.category AS in_category, b.ts AS in_ts"
    " FROM flow JOIN slice a ON a.id = slice_out JOIN slice b ON b.id = slice_in"
)


@dataclass(frozen=True)
class Shown:
    """What the trace processor shows of a trace; each table in an order that does not depend on the file's."""

    slices: list[tuple[Any, ...]]
    counters: list[tuple[Any, ...]]
    flows: list[tuple[Any, ...]]


def load(path: Path, data: bytes) -> Shown:
    path.write_bytes(data)
    own = [OF_CHROME, CHROME_COUNTERS] if path.suffix == ".json" else [OF_PERFETTO, PERFETTO_COUNTERS]
    slices, counters, args, flows, faults = query_many(path, [*own, ARGS, FLOWS, FAULTS])
    assert faults == []
    return Shown(in_order(with_args(slices, args)), in_order(counters), in_order(flows))


def with_args(slices: list[processor.Row], args: list[processor.Row]) -> list[processor.Row]:
    """The slices without their ids, which say in which order they were read.

    What has no length and begins where another slice begins or ends stands in it or beside it: Chrome's format cannot
    tell which, and the trace processor guesses. So nothing is said of where it stands.
    """
    found: dict[Any, list[str]] = {}
    for arg in args:
        found.setdefault(arg["id"], []).append(f"{arg['key']}={arg['value']} ({arg['type']})")
    nowhere = {"depth": None, "around": None}
    return [
        {**row, **({} if row["dur"] else nowhere), "args": " ".join(sorted(found.get(row["id"], []))), "id": None}
        for row in slices
    ]


def in_order(rows: list[processor.Row]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=repr)


def disorder(seed: int, begin: int) -> list[Entry]:
    """Starts and ends of any scopes, often at one time: some cross others, some have no partner."""
    chosen = random.Random(seed)
    at = begin
    entries = []
    for _ in range(60):
        at += chosen.choice([0, 0, 1, 40])
        entries.append(Entry(chosen.randrange(len(SCOPES)), chosen.random() < 0.5, at))
    return entries


def all_timelines(folder: Path) -> Iterator[Timeline]:
    for scene in (loops, crossing, marked, unpaired, partitioned, called):
        yield from scene(folder / scene.__name__)
    disorderly = [[disorder(2 * n, 40_030), disorder(2 * n + 1, 40_030), []] for n in range(12)]
    times_ns = [BEGIN_NS + at_ns for at_ns in (40_000, 42_000, 42_500)]
    yield from decode(folder / "disorder", [[Cta(warps, 3, *times_ns) for warps in disorderly]], slots=128)
    yield from decode(folder / "never", [[None]], slots=4)


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return list(all_timelines(tmp_path_factory.mktemp("captures")))


@pytest.fixture(scope="module", params=LAYOUT_NAMES)
def both(
    request: pytest.FixtureRequest, timelines: list[Timeline], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Shown, Shown]:
    layout = request.param
    folder = tmp_path_factory.mktemp(request.param)
    return (
        load(folder / "trace.json", b"".join(chrome_trace(timelines, layout))),
        load(folder / "trace.pftrace", b"".join(perfetto_trace(timelines, layout))),
    )


def test_both_show_the_same_slices_and_instants(both: tuple[Shown, Shown], timelines: list[Timeline]) -> None:
    one, other = both
    assert one.slices == other.slices
    # They show something: all scopes, and what the fixture was made to have.
    categories = Counter(row[6] for row in one.slices)
    assert sum(categories[kind] for kind in ("func", "loop", "iter", "op", "mark")) == sum(
        timeline.scope_count for timeline in timelines
    )
    assert categories["lost"] and categories["host"] == 3 and categories["mark"]
    assert any("crosses" in row[-1] for row in one.slices)
    parts = ("partition=default partition", "partition=partition 0")
    assert {(row[5], part) for row in one.slices for part in parts if part in row[-1]} == {
        ("func", parts[0]),
        ("loop", parts[1]),
    }


def test_both_show_the_same_counters(both: tuple[Shown, Shown]) -> None:
    one, other = both
    assert one.counters == other.counters
    assert {row[1] for row in one.counters} >= {"all SMs CTAs", "SM 17 CTAs"}


def test_both_show_the_same_arrows(both: tuple[Shown, Shown]) -> None:
    one, other = both
    assert one.flows == other.flows
    assert len(one.flows) == 3


@dataclass(frozen=True)
class Row:
    """What stands in one row of a viewer: its id, and its name with those of what is around it."""

    track: int
    names: tuple[str, ...]


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_both_have_the_same_threads_in_one_order(timelines: list[Timeline], layout: str) -> None:
    of_chrome = chrome_rows(json.loads(b"".join(chrome_trace(timelines, layout))))
    of_perfetto = perfetto_rows(Trace.FromString(b"".join(perfetto_trace(timelines, layout))))

    assert [row.track for row in of_chrome] == [row.track for row in of_perfetto]
    for flat, nested in zip(of_chrome, of_perfetto, strict=True):
        process, thread = flat.names
        assert process in nested.names
        inside = nested.names[nested.names.index(process) + 1 :]
        assert thread == flat_name(layout, inside) if inside else thread in ("kernel launch", "launches")
    assert len({row.names[-2:] for row in of_perfetto}) > 20


def flat_name(layout: str, nested: tuple[str, ...]) -> str:
    """What a thread is called, by the names of its tracks in the launch."""
    match layout:
        case "sm":
            return " ".join(nested)
        case "cta":
            (cta, sm), warp = nested[0].split(", "), nested[1]
            return re.sub(r"(?<=warp \d)", f", {sm}", f"{cta} {warp}")
        case _:
            return ": ".join(nested)


def chrome_rows(trace: dict[str, Any]) -> list[Row]:
    """The threads as they stand."""
    told: dict[str, dict[Any, Any]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            of_process = event["name"].startswith("process")
            of = event["pid"] if of_process else (event["pid"], event["tid"])
            told.setdefault(event["name"], {})[of] = next(iter(event["args"].values()))
    threads = sorted(
        told["thread_name"], key=lambda of: (told["process_sort_index"][of[0]], told["thread_sort_index"][of])
    )
    return [Row(of[1], (told["process_name"][of[0]], told["thread_name"][of])) for of in threads]


def perfetto_rows(trace: Any) -> list[Row]:
    """The tracks with something on them as they stand, but for counters."""
    tracks = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    with_events = {packet.track_event.track_uuid for packet in trace.packet if packet.HasField("track_event")}
    children: dict[int, list[Any]] = {}
    for track in sorted(tracks, key=lambda track: track.sibling_order_rank):
        children.setdefault(track.parent_uuid, []).append(track)

    def rows(parent: int, around: tuple[str, ...]) -> Iterator[Row]:
        for track in children.get(parent, []):
            names = (*around, track.name)
            if track.uuid in with_events and not track.HasField("counter"):
                yield Row(track.uuid, names)
            yield from rows(track.uuid, names)

    return list(rows(0, ()))


def test_both_tell_the_same_of_each_launch(timelines: list[Timeline]) -> None:
    one = json.loads(b"".join(chrome_trace(timelines)))
    other = Trace.FromString(b"".join(perfetto_trace(timelines)))
    facts = [entry.string_value for packet in other.packet for entry in packet.chrome_events.metadata]
    assert [json.loads(text) for text in facts] == one["otherData"]
    assert len(facts) == len(timelines)


@settings(at_any_speed, max_examples=3)
@given(drawn=MUCH_DRAWN)
def test_both_show_any_scene_alike(drawn: Drawn, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("trace")
    one = load(folder / "trace.json", b"".join(chrome.encode(drawn.scene())))
    other = load(folder / "trace.pftrace", b"".join(perfetto.encode(drawn.scene())))
    assert one == other
    assert len(one.slices) == len(drawn.rows)

"""Chrome traces, judged by their JSON and by the trace processor that Perfetto's UI loads them with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Cta, Entry, Scope, buffer_words, kernel_json, save_launch, save_launches
from trace_processor.processor import Row, query_many

from kprof_inject.export import chrome
from kprof_inject.export.chrome import chrome_trace
from kprof_inject.export.registry import write_trace
from kprof_inject.timeline.timeline import Timeline, decode_launch

SCOPES = [
    Scope("matmul", "func", -1, ("/src/matmul.py", 12)),
    Scope("loop[0]", "loop", 0, ("/src/matmul.py", 20)),
    Scope("iter[0]", "iter", 1, ("/src/matmul.py", 20)),
    Scope("load", "op", 2, ("/src/tools.py", 7), (("/src/matmul.py", 21), ("/src/main.py", 5))),
    Scope("nowhere", "op", 0),
]
FUNC, LOOP, ITER, LOAD, NOWHERE = range(len(SCOPES))
BEGIN_NS = 1_764_000_000_000_000_000

SLICES = (
    "SELECT ts, dur, depth, slice.name AS name, slice.category AS kind, thread.name AS thread, process.name AS process,"
    " EXTRACT_ARG(slice.arg_set_id, 'args.iteration') AS iteration,"
    " EXTRACT_ARG(slice.arg_set_id, 'args.start_cycles') AS start_cycles,"
    " EXTRACT_ARG(slice.arg_set_id, 'args.cycles') AS cycles,"
    " EXTRACT_ARG(slice.arg_set_id, 'args.source') AS source,"
    " EXTRACT_ARG(slice.arg_set_id, 'args.called_from') AS called_from,"
    " EXTRACT_ARG(slice.arg_set_id, 'args.records') AS records"
    " FROM slice JOIN thread_track ON thread_track.id = track_id JOIN thread USING (utid) JOIN process USING (upid)"
)
PARENTS = (
    "SELECT child.name AS child, parent.name AS parent"
    " FROM slice child LEFT JOIN slice parent ON parent.id = child.parent_id"
)
THREADS = (
    "SELECT tid, pid, thread.name AS thread, process.name AS process FROM thread JOIN process USING (upid)"
    " WHERE thread.name IS NOT NULL ORDER BY tid"
)
FAULTS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"


def looping(begin_ns: int, iterations: int) -> list[Entry]:
    """A warp that loops, on a clock of 1 GHz."""
    begin = begin_ns + 30
    entries = [Entry(FUNC, False, begin), Entry(LOOP, False, begin + 101)]
    for number in range(iterations):
        at = begin + 150 + 400 * number
        entries += [Entry(ITER, False, at), Entry(LOAD, False, at + 33), Entry(LOAD, True, at + 187)]
        entries += [Entry(ITER, True, at + 351)]
    at = begin + 150 + 400 * iterations
    entries += [Entry(LOOP, True, at), Entry(NOWHERE, False, at + 40), Entry(NOWHERE, True, at + 81)]
    return [*entries, Entry(FUNC, True, at + 200)]


def cta(sm: int, begin_ns: int, iterations: int) -> Cta:
    end_ns = begin_ns + 30 + 150 + 400 * iterations + 200 + 28
    return Cta(
        [looping(begin_ns, iterations), looping(begin_ns + 9, iterations - 1), []],
        sm,
        BEGIN_NS + begin_ns,
        BEGIN_NS + end_ns,
        BEGIN_NS + end_ns + 600,
    )


def decode(folder: Path, launches: Sequence[Sequence[Cta | None]], slots: int) -> list[Timeline]:
    """Decode launches of one kernel, made with a ring of this size."""
    buffers = [buffer_words(ctas, slots) for ctas in launches]
    kernel = kernel_json(SCOPES, buffers[0], 3, name="matmul")
    return [decode_launch(launch) for launch in save_launches(folder, kernel, buffers)]


@dataclass(frozen=True)
class Loaded:
    """Timelines, the trace that was written of them, and what the trace processor saw in it."""

    timelines: list[Timeline]
    trace: dict[str, Any]
    slices: list[Row]
    parents: Counter[tuple[str, str | None]]
    threads: list[Row]
    faults: list[Row]


def load(path: Path, timelines: list[Timeline]) -> Loaded:
    write_trace(path, timelines)
    slices, parents, threads, faults = query_many(path, [SLICES, PARENTS, THREADS, FAULTS])
    trace = json.loads(b"".join(chrome_trace(timelines)))
    return Loaded(timelines, trace, slices, Counter((r["child"], r["parent"]) for r in parents), threads, faults)


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    """Two launches that lose nothing, the second with CTAs that never ran; and one that loses most."""
    # SMs and CTAs are not in the same order.
    first = [cta(17, 500, 3), cta(4, 0, 4), cta(17, 3000, 2)]
    second = [None, cta(4, 10_000, 2), None]
    third = [cta(9, 20_000, 9), cta(8, 20_100, 3)]
    whole = decode(tmp_path_factory.mktemp("whole"), [first, second], slots=64)
    return whole + decode(tmp_path_factory.mktemp("lossy"), [third], slots=8)


@pytest.fixture(scope="module")
def loaded(timelines: list[Timeline], tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(tmp_path_factory.mktemp("trace") / "trace.json", timelines)


def order(row: Row) -> tuple[Any, ...]:
    return (row["process"], row["thread"], row["ts"], row["depth"])


def process_of(timeline: Timeline) -> str:
    ctas = len(timeline.launch.words())
    return f"matmul launch {timeline.launch.index}, grid {ctas}x1x1, device 0"


def expected_slices(timelines: Sequence[Timeline]) -> list[Row]:
    """What a trace must show, from the columns alone."""
    zero_ns = min(timeline.ctas["init_ns"].min() for timeline in timelines)
    return [
        {
            "ts": int(row["start_ns"] - zero_ns),
            "dur": int(row["end_ns"] - row["start_ns"]),
            "depth": int(row["depth"]),
            "name": scope.name,
            "kind": scope.kind,
            "thread": f"SM {row['sm']} CTA {row['cta']} warp {row['warp']}",
            "process": process_of(timeline),
            "iteration": int(row["iteration"]) if row["iteration"] >= 0 else None,
            "start_cycles": int(row["start_cycles"]),
            "cycles": int(row["end_cycles"] - row["start_cycles"]),
            "source": scope.source or None,
            "called_from": " < ".join(scope.called_from) or None,
            "records": None,
        }
        for timeline in timelines
        for row in timeline.scopes
        for scope in [timeline.table.scopes[row["scope"]]]
    ]


def test_every_scope_is_a_slice_with_its_times_and_arguments(loaded: Loaded) -> None:
    shown = [row for row in loaded.slices if row["kind"] != "lost"]
    # By hand: a warp of n iterations has a function, a loop and a tail, and an iteration and a load for each n.
    assert Counter(row["process"] for row in shown)["matmul launch 0, grid 3x1x1, device 0"] == (
        sum(2 * 3 + 2 * n + 2 * (n - 1) for n in (3, 4, 2))
    )
    assert sorted(shown, key=order) == sorted(expected_slices(loaded.timelines), key=order)


def test_a_load_names_its_source_and_the_calls_to_it(loaded: Loaded) -> None:
    (places,) = {(row["source"], row["called_from"]) for row in loaded.slices if row["name"] == "load"}
    assert places == ("/src/tools.py:7", "/src/matmul.py:21 < /src/main.py:5")


def test_slices_stand_in_each_other_as_the_scopes_do(loaded: Loaded) -> None:
    assert set(loaded.parents) == {
        ("matmul", None),
        ("loop[0]", "matmul"),
        ("iter[0]", "loop[0]"),
        ("load", "iter[0]"),
        ("nowhere", "matmul"),
        # Where the ring lost what was around them.
        ("iter[0]", None),
        ("nowhere", None),
        ("lost records", None),
    }
    assert loaded.parents["load", "iter[0]"] >= sum(n + n - 1 for n in (3, 4, 2, 2))


def test_the_trace_processor_finds_no_fault(loaded: Loaded) -> None:
    assert loaded.faults == []


def test_lost_records_are_windows_from_the_begin_of_the_cta(loaded: Loaded) -> None:
    lossy = loaded.timelines[2]
    zero_ns = BEGIN_NS
    windows = sorted((row for row in loaded.slices if row["kind"] == "lost"), key=order)
    assert [(row["name"], row["thread"], row["records"]) for row in windows] == [
        ("lost records", "SM 8 CTA 1 warp 0", 6 + 4 * 3 - 8),
        ("lost records", "SM 8 CTA 1 warp 1", 6 + 4 * 2 - 8),
        ("lost records", "SM 9 CTA 0 warp 0", 6 + 4 * 9 - 8),
        ("lost records", "SM 9 CTA 0 warp 1", 6 + 4 * 8 - 8),
    ]
    assert [row["ts"] for row in windows] == [20_100, 20_100, 20_000, 20_000]
    ends = {(row["sm"], row["warp"]): int(row["end_ns"]) - zero_ns for row in lossy.lost}
    assert [row["ts"] + row["dur"] for row in windows] == [ends[8, 0], ends[8, 1], ends[9, 0], ends[9, 1]]


def test_one_process_for_each_launch_and_one_thread_for_each_warp(loaded: Loaded) -> None:
    names = [
        (1, "SM 4 CTA 1 warp 0"),
        (1, "SM 4 CTA 1 warp 1"),
        (1, "SM 17 CTA 0 warp 0"),
        (1, "SM 17 CTA 0 warp 1"),
        (1, "SM 17 CTA 2 warp 0"),
        (1, "SM 17 CTA 2 warp 1"),
        (2, "SM 4 CTA 1 warp 0"),
        (2, "SM 4 CTA 1 warp 1"),
        (3, "SM 8 CTA 1 warp 0"),
        (3, "SM 8 CTA 1 warp 1"),
        (3, "SM 9 CTA 0 warp 0"),
        (3, "SM 9 CTA 0 warp 1"),
    ]
    assert [(row["pid"], row["thread"]) for row in loaded.threads] == names
    # No thread's id is a process's, and none is used twice.
    assert [row["tid"] for row in loaded.threads] == list(range(4, 16))
    assert {row["pid"]: row["process"] for row in loaded.threads} == {
        1: "matmul launch 0, grid 3x1x1, device 0",
        2: "matmul launch 1, grid 3x1x1, device 0",
        3: "matmul launch 0, grid 2x1x1, device 0",
    }


def test_threads_and_processes_are_told_to_stand_in_that_order(loaded: Loaded) -> None:
    events = loaded.trace["traceEvents"]
    positions = [(e["pid"], e["tid"], e["args"]["sort_index"]) for e in events if e["name"] == "thread_sort_index"]
    assert positions == (
        [(1, 4 + n, n) for n in range(6)] + [(2, 10 + n, n) for n in range(2)] + [(3, 12 + n, n) for n in range(4)]
    )
    named = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"]
    assert named == [(pid, tid) for pid, tid, _ in positions]
    assert [(e["pid"], e["args"]["sort_index"]) for e in events if e["name"] == "process_sort_index"] == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_times_are_printed_from_whole_nanoseconds(timelines: list[Timeline]) -> None:
    random = np.random.default_rng(0)
    begin_ns = random.integers(10_000, 100_000_000_000, 2000)
    scopes = np.repeat(timelines[1].scopes[:1], len(begin_ns))
    scopes["start_ns"] = BEGIN_NS + begin_ns
    scopes["end_ns"] = scopes["start_ns"] + random.integers(0, 5000, len(scopes))
    text = b"".join(chrome_trace([replace(timelines[1], scopes=scopes)]))

    events = [event for event in json.loads(text, parse_float=str)["traceEvents"] if event["ph"] == "X"]
    assert {len(time.partition(".")[2]) for event in events for time in (event["ts"], event["dur"])} == {3}
    printed = [(int(event["ts"].replace(".", "")), int(event["dur"].replace(".", ""))) for event in events]
    # The CTA began at 10 µs, which is the trace's zero.
    durations_ns = scopes["end_ns"] - scopes["start_ns"]
    assert printed == list(zip((begin_ns - 10_000).tolist(), durations_ns.tolist(), strict=True))


def test_the_file_says_what_is_known_of_each_launch(loaded: Loaded) -> None:
    lossy = loaded.timelines[2]
    data = loaded.trace["otherData"]
    assert [launch["kernel"] for launch in data] == ["matmul"] * 3
    assert [launch["launch"] for launch in data] == [0, 1, 0]
    assert [launch["ctas_never_ran"] for launch in data] == [0, 2, 0]
    assert data[2]["records_written"] == 2 * 6 + 4 * 17 + 2 * 6 + 4 * 5
    assert data[2]["records_lost"] == data[2]["records_written"] - 4 * 8
    assert data[2]["clock_mhz"] == round(lossy.clock.clock_hz / 1e6, 3)
    assert data[2]["trust"]["text"] == "unknown: the capture has no times without records"


def test_a_gzipped_trace_shows_the_same(loaded: Loaded, tmp_path: Path) -> None:
    packed = load(tmp_path / "trace.json.gz", loaded.timelines)
    assert packed.slices == loaded.slices
    assert packed.threads == loaded.threads
    assert packed.faults == []


@pytest.mark.parametrize("events", [1, 3, 7])
def test_where_chunks_are_cut_does_not_show(
    timelines: list[Timeline], events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(chrome_trace(timelines))
    monkeypatch.setattr(chrome, "_CHUNK_EVENTS", events)
    cut = list(chrome_trace(timelines))
    assert len(cut) > len(whole)
    assert b"".join(cut) == b"".join(whole)


# A name, and what a viewer is to show: the trace processor cannot read a backslash, nor what is not printable.
NAMES = {
    'say "hi"': 'say "hi"',
    "C:\\dir\\": "C:/dir/",
    '\\"': '/"',
    "größe → 𝛼 🚀": "größe → 𝛼 🚀",
    "tab\tline\nnul\0": "tab line nul ",
    "lone \ud800": "lone  ",
    "{x} %s </script> ${y}": "{x} %s </script> ${y}",
    "'; --": "'; --",
}


def test_any_name_is_shown(tmp_path: Path) -> None:
    scopes = [Scope(name, source=(name, 1), called_from=((name, 2),), record=str(n)) for n, name in enumerate(NAMES)]
    entries = [Entry(n, is_end, 30 + 100 * n + 50 * is_end) for n in range(len(scopes)) for is_end in (False, True)]
    launch = save_launch(tmp_path, scopes, [Cta([entries])], slots=64)
    named = replace(launch, kernel=replace(launch.kernel, name='"k\\'))
    loaded = load(tmp_path / "trace.json", [decode_launch(named)])

    by_time = sorted(loaded.slices, key=lambda row: row["start_cycles"])
    assert [row["name"] for row in by_time] == list(NAMES.values())
    assert [row["source"] for row in by_time] == [f"{shown}:1" for shown in NAMES.values()]
    assert [row["called_from"] for row in by_time] == [f"{shown}:2" for shown in NAMES.values()]
    assert {row["process"] for row in loaded.slices} == {'"k/ launch 0, grid 1x1x1, device 0'}
    assert loaded.faults == []


def test_no_launches_make_an_empty_trace(tmp_path: Path) -> None:
    loaded = load(tmp_path / "trace.json", [])
    assert loaded.trace == {"displayTimeUnit": "ns", "otherData": [], "traceEvents": []}
    assert loaded.slices == loaded.threads == loaded.faults == []


def test_launches_without_scopes_stand_beside_others(timelines: list[Timeline], tmp_path: Path) -> None:
    (never_ran,) = decode(tmp_path / "1", [[None]], slots=4)
    (recorded_nothing,) = decode(tmp_path / "2", [[Cta([[], [], []], 0, BEGIN_NS, BEGIN_NS + 5)]], slots=4)
    loaded = load(tmp_path / "trace.json", [never_ran, timelines[1], recorded_nothing])
    assert len(loaded.slices) == len(timelines[1].scopes)
    assert {row["pid"] for row in loaded.threads} == {2}
    assert min(row["tid"] for row in loaded.threads) == 4
    assert loaded.faults == []
    assert min(row["ts"] for row in loaded.slices) >= 10_000


def test_a_scope_before_the_first_cta_began_is_shown(timelines: list[Timeline], tmp_path: Path) -> None:
    # The clock's fit may place a record some nanoseconds before the timer's reading that came before it.
    early = replace(timelines[1], scopes=timelines[1].scopes.copy())
    early.scopes["start_ns"][0] = early.ctas["init_ns"].min() - 500
    loaded = load(tmp_path / "trace.json", [early])
    assert len(loaded.slices) == len(early.scopes)
    assert sorted(row["dur"] for row in loaded.slices) == sorted(
        (early.scopes["end_ns"] - early.scopes["start_ns"]).tolist()
    )
    assert loaded.faults == []


@pytest.mark.xfail(strict=True, reason="of two scopes that cross, the trace processor drops the second")
def test_scopes_that_cross_are_both_shown(tmp_path: Path) -> None:
    entries = [Entry(FUNC, False, 100), Entry(LOOP, False, 300), Entry(FUNC, True, 500), Entry(LOOP, True, 700)]
    loaded = load(tmp_path / "trace.json", [decode_launch(save_launch(tmp_path, SCOPES, [Cta([entries])], slots=8))])
    assert sorted(row["name"] for row in loaded.slices) == ["loop[0]", "matmul"]
    assert loaded.faults == []


def test_a_mark_is_an_instant_in_the_scope_that_it_stands_in(tmp_path: Path) -> None:
    scopes = [Scope("kernel", "func"), Scope("before store", "mark", 0, ("/src/matmul.py", 47))]
    warp = [Entry(0, False, 1_030), Entry(1, False, 1_400), Entry(1, True, 1_434), Entry(0, True, 1_900)]
    timeline = decode_launch(save_launch(tmp_path, scopes, [Cta([warp], 3, 1_000, 1_928, 2_000)], 16))

    loaded = load(tmp_path / "trace.json", [timeline])

    mark = timeline.scopes[timeline.scopes["scope"] == 1][0]
    (shown,) = (row for row in loaded.slices if row["name"] == "before store")
    assert (shown["ts"], shown["dur"], shown["depth"]) == (mark["start_ns"] - timeline.ctas["init_ns"][0], 0, 1)
    assert (shown["kind"], shown["source"], shown["start_cycles"]) == ("mark", "/src/matmul.py:47", 1_400)
    assert loaded.parents == {("kernel", None): 1, ("before store", "kernel"): 1}
    (event,) = (event for event in loaded.trace["traceEvents"] if event["name"] == "before store")
    assert event["ph"] == "i" and event["s"] == "t" and "dur" not in event

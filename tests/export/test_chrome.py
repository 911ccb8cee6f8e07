"""Chrome traces, judged by their JSON and by the trace processor that Perfetto's UI loads them with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import drawn
import numpy as np
import pytest
from buffers import Cta, Entry, Scope, save_launch
from drawn import PARENTS, THREADS, launch_name, number, slices_sql
from ranks import BEGIN_NS
from replacing import replace
from snapshots import check
from trace_processor.processor import Cell, Row
from traces import chrome_trace

from kprof_inject.export import chrome
from kprof_inject.export.chrome import encode
from kprof_inject.export.events import Arg, EventKind, Events, Part, Scene
from kprof_inject.timeline.columns import Numbers
from kprof_inject.timeline.timeline import Timeline, decode_launch

SLICES = slices_sql("args")
# Who looks for scopes alone: what else stands in a trace are launches, their calls, and what was lost.
NO_SCOPES = ("launch", "host", "lost")


@dataclass(frozen=True)
class Loaded:
    """Timelines, the trace that was written of them, and what the trace processor saw in it: it found no fault."""

    timelines: list[Timeline]
    trace: dict[str, Any]
    slices: list[Row]
    parents: Counter[tuple[Cell, Cell]]
    threads: list[Row]

    @property
    def scopes(self) -> list[Row]:
        return [row for row in self.slices if row["kind"] not in NO_SCOPES]


def load(path: Path, timelines: list[Timeline]) -> Loaded:
    chunks = list(chrome_trace(timelines))
    slices, parents, threads = drawn.load(path, chunks, SLICES, PARENTS, THREADS)
    tree = Counter((row["child"], row["parent"]) for row in parents)
    return Loaded(timelines, json.loads(b"".join(chunks)), slices, tree, threads)


@pytest.fixture(scope="module")
def timelines(tmp_path_factory: pytest.TempPathFactory) -> list[Timeline]:
    return drawn.loops(tmp_path_factory.mktemp("captures"))


@pytest.fixture(scope="module")
def loaded(timelines: list[Timeline], tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(tmp_path_factory.mktemp("trace") / "trace.json", timelines)


def order(row: Row) -> tuple[Any, ...]:
    return (row["process"], row["thread"], row["ts"], row["depth"])


def end_of(row: Row) -> int:
    return number(row, "ts") + number(row, "dur")


def process_of(timeline: Timeline) -> str:
    return launch_name(timeline.launch.index, len(timeline.launch.ends_and_words()[1]))


def expected_scopes(timelines: Sequence[Timeline]) -> list[Row]:
    """What a trace must show of scopes, from the columns alone."""
    zero_ns = min(timeline.ctas["init_ns"].min() for timeline in timelines)
    return [
        {
            "ts": int(row["start_ns"] - zero_ns),
            "dur": int(row["end_ns"] - row["start_ns"]),
            "depth": int(row["depth"]),
            "name": scope.name,
            "kind": scope.kind,
            "start_cycles": int(row["start_cycles"]),
            "recorded_cycles": int(row["end_cycles"] - row["start_cycles"]),
            "recorded_ns": int(row["end_ns"] - row["start_ns"]),
            "duration_ns": int(row["duration_ns"]),
            "self_ns": int(row["self_ns"]) if row["self_ns"] != row["duration_ns"] else None,
            "iteration": int(row["iteration"]) if row["iteration"] >= 0 else None,
            "crosses": None,
            "cut": None,
            "source": scope.source or None,
            "called_from": " < ".join(scope.called_from) or None,
            "records": None,
            "records_written": None,
            "open_starts": None,
            "stray_ends": None,
            "records_damaged": None,
            "thread": f"SM {row['sm']} CTA {row['cta']} warp {row['warp']}",
            "process": process_of(timeline),
        }
        for timeline in timelines
        for row in timeline.scopes
        for scope in [timeline.table.scopes[row["scope"]]]
    ]


def test_every_scope_is_a_slice_with_its_times_and_arguments(loaded: Loaded) -> None:
    # By hand: a warp of n iterations has a function, a loop and a tail, and an iteration and a load for each n.
    assert Counter(row["process"] for row in loaded.scopes)[launch_name(0, 3)] == (
        sum(2 * 3 + 2 * n + 2 * (n - 1) for n in (3, 4, 2))
    )
    assert sorted(loaded.scopes, key=order) == sorted(expected_scopes(loaded.timelines), key=order)


@pytest.mark.parametrize(
    ("layout", "thread"),
    [("cta", "CTA {CTA} warp {warp}, SM {SM}"), ("scope", "{name}: SM {SM} CTA {CTA} warp {warp}")],
)
def test_every_scope_is_on_its_warps_thread_in_other_layouts(
    timelines: list[Timeline], tmp_path: Path, layout: str, thread: str
) -> None:
    (slices,) = drawn.load(tmp_path / "trace.json", list(chrome_trace(timelines, layout)), SLICES)
    expected = Counter(
        (row["process"], thread.format(name=row["name"], **dict(zip(words[::2], words[1::2], strict=True))), row["ts"])
        for row in expected_scopes(timelines)
        for words in [str(row["thread"]).split()]
    )
    scopes = [row for row in slices if row["kind"] not in NO_SCOPES]
    assert Counter((row["process"], row["thread"], row["ts"]) for row in scopes) == expected


def test_a_launch_as_a_whole_lasts_until_its_records_are_copied(loaded: Loaded) -> None:
    launches = [row for row in loaded.slices if row["kind"] == "launch"]
    assert [(row["process"], row["thread"], row["name"], row["ts"], row["dur"]) for row in launches] == [
        (launch_name(0, 2), "kernel launch", "matmul", 20_000, 30 + 150 + 3600 + 228 + 600),
        (launch_name(0, 3), "kernel launch", "matmul", 0, 3000 + 30 + 150 + 800 + 228 + 600),
        (launch_name(1, 3), "kernel launch", "matmul", 10_000, 30 + 150 + 800 + 228 + 600),
    ]
    events = [event for event in loaded.trace["traceEvents"] if event.get("cat") == "launch"]
    assert events[1]["args"] == {
        "grid": "3x1x1",
        "ctas": 1,
        "warps_per_cta": 3,
        "records_written": 24,
        "records_lost": 0,
        "records_damaged": 0,
        "open_starts": 0,
        "stray_ends": 0,
        "ctas_never_ran": 2,
        "ctas_damaged": 0,
        "clock_mhz": round(loaded.timelines[1].clock.clock_hz / 1e6, 3),
        "clock_source": loaded.timelines[1].clock.source,
        "clock_residual_ns": round(loaded.timelines[1].clock.residual_ns, 1),
        "trust": f"unknown: {loaded.trace['otherData'][1]['trust']['text']}",
        "variant": "v0",
        "launch": 1,
    }


def test_lost_records_are_windows_from_the_begin_of_the_cta(loaded: Loaded) -> None:
    windows = [row for row in loaded.slices if row["kind"] == "lost"]
    assert [(row["name"], row["thread"], row["records"], row["records_written"]) for row in windows] == [
        ("lost records", "SM 8 CTA 1 warp 0", 6 + 4 * 3 - 8, 6 + 4 * 3),
        ("lost records", "SM 8 CTA 1 warp 1", 6 + 4 * 2 - 8, 6 + 4 * 2),
        ("lost records", "SM 9 CTA 0 warp 0", 6 + 4 * 9 - 8, 6 + 4 * 9),
        ("lost records", "SM 9 CTA 0 warp 1", 6 + 4 * 8 - 8, 6 + 4 * 8),
    ]
    assert [row["ts"] for row in windows] == [20_100, 20_100, 20_000, 20_000]
    lossy = loaded.timelines[2]
    ends = {(row["sm"], row["warp"]): int(row["lost_end_ns"]) - BEGIN_NS for row in lossy.incomplete}
    assert [end_of(row) for row in windows] == [ends[8, 0], ends[8, 1], ends[9, 0], ends[9, 1]]
    # Each lost the starts of what its last records end.
    assert [row["stray_ends"] for row in windows] == [2, 2, 2, 2]


def test_one_process_for_each_launch_and_one_thread_for_each_warp(loaded: Loaded) -> None:
    assert [(row["pid"], row["thread"]) for row in loaded.threads] == [
        (1, "kernel launch"),
        (1, "SM 4 CTA 1 warp 0"),
        (1, "SM 4 CTA 1 warp 1"),
        (1, "SM 17 CTA 0 warp 0"),
        (1, "SM 17 CTA 0 warp 1"),
        (1, "SM 17 CTA 2 warp 0"),
        (1, "SM 17 CTA 2 warp 1"),
        (3, "kernel launch"),
        (3, "SM 4 CTA 1 warp 0"),
        (3, "SM 4 CTA 1 warp 1"),
        (5, "kernel launch"),
        (5, "SM 8 CTA 1 warp 0"),
        (5, "SM 8 CTA 1 warp 1"),
        (5, "SM 9 CTA 0 warp 0"),
        (5, "SM 9 CTA 0 warp 1"),
    ]
    assert {row["pid"]: row["process"] for row in loaded.threads} == {
        1: launch_name(0, 3),
        3: launch_name(1, 3),
        5: launch_name(0, 2),
    }


def test_the_file_says_what_is_known_of_each_launch(loaded: Loaded) -> None:
    lossy = loaded.timelines[2]
    data = loaded.trace["otherData"]
    assert [launch["kernel"] for launch in data] == ["matmul"] * 3
    assert [launch["launch"] for launch in data] == [0, 1, 0]
    assert [launch["ctas_never_ran"] for launch in data] == [0, 2, 0]
    assert data[2]["records_written"] == 2 * 6 + 4 * 17 + 2 * 6 + 4 * 5
    assert data[2]["records_lost"] == data[2]["records_written"] - 4 * 8
    assert data[2]["clock_mhz"] == round(lossy.clock.clock_hz / 1e6, 3)
    check("export/chrome", data[2]["trust"]["text"], "no trust")


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_where_chunks_are_cut_does_not_show(
    timelines: list[Timeline], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(chrome_trace(timelines))
    monkeypatch.setattr(chrome, "_CHUNK_ROWS", rows)
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
    "lone \ud800": "lone ?",
    "{x} %s </script> ${y}": "{x} %s </script> ${y}",
    "'; --": "'; --",
}


def test_any_name_is_shown(tmp_path: Path) -> None:
    scopes = [Scope(name, source=(name, 1), called_from=((name, 2),), record=str(n)) for n, name in enumerate(NAMES)]
    entries = [Entry(n, is_end, 30 + 100 * n + 50 * is_end) for n in range(len(scopes)) for is_end in (False, True)]
    launch = save_launch(tmp_path, scopes, [Cta([entries])], slots=64)
    named = replace(launch, kernel=replace(launch.kernel, name='"k\\'))
    loaded = load(tmp_path / "trace.json", [decode_launch(named)])

    by_time = sorted(loaded.scopes, key=lambda row: number(row, "start_cycles"))
    assert [row["name"] for row in by_time] == list(NAMES.values())
    assert [row["source"] for row in by_time] == [f"{shown}:1" for shown in NAMES.values()]
    assert [row["called_from"] for row in by_time] == [f"{shown}:2" for shown in NAMES.values()]
    assert {row["process"] for row in loaded.slices} == {launch_name(0, 1, kernel='"k/')}
    assert [row["name"] for row in loaded.slices if row["kind"] == "launch"] == ['"k/']


def test_no_launches_make_an_empty_trace(tmp_path: Path) -> None:
    loaded = load(tmp_path / "trace.json", [])
    assert loaded.trace == {"displayTimeUnit": "ns", "otherData": [], "traceEvents": []}
    assert loaded.slices == loaded.threads == []


def test_scopes_that_cross_are_both_shown(tmp_path: Path) -> None:
    loaded = load(tmp_path / "trace.json", drawn.crossing(tmp_path))
    assert [(row["thread"], row["name"], row["depth"], row["crosses"]) for row in loaded.scopes] == [
        ("SM 0 CTA 0 warp 0", "matmul", 0, 1),
        ("SM 0 CTA 0 warp 0 (crossing 1)", "loop[0]", 0, 1),
        ("SM 0 CTA 0 warp 1", "matmul", 0, None),
        ("SM 0 CTA 0 warp 1 (crossing 1)", "loop[0]", 0, None),
    ]
    assert [row["recorded_cycles"] for row in loaded.scopes] == [400, 400, 600, 200]


def test_a_mark_is_an_instant_in_the_scope_that_it_stands_in(tmp_path: Path) -> None:
    (timeline,) = drawn.marked(tmp_path)
    loaded = load(tmp_path / "trace.json", [timeline])

    mark = timeline.scopes[timeline.scopes["scope"] == 1][0]
    (shown,) = (row for row in loaded.slices if row["name"] == "before store")
    assert (shown["ts"], shown["dur"], shown["depth"]) == (mark["start_ns"] - timeline.ctas["init_ns"][0], 0, 1)
    assert (shown["kind"], shown["source"], shown["start_cycles"]) == ("mark", "/src/matmul.py:47", 1_400)
    assert loaded.parents["before store", "kernel"] == 1
    (event,) = (event for event in loaded.trace["traceEvents"] if event["name"] == "before store")
    assert event["ph"] == "i" and event["s"] == "t" and "dur" not in event
    # From its start to its end, there is nothing but the record itself.
    assert event["args"] == {"start_cycles": 1_400, "source": "/src/matmul.py:47"}


def test_records_without_a_partner_are_told_at_the_begin_of_the_cta(tmp_path: Path) -> None:
    loaded = load(tmp_path / "trace.json", drawn.unpaired(tmp_path))
    (event,) = (event for event in loaded.trace["traceEvents"] if event.get("cat") == "lost")
    assert (event["name"], event["ph"], event["ts"]) == ("incomplete", "i", 0)
    assert event["args"] == {"records_written": 5, "open_starts": 2, "stray_ends": 1}
    assert {row["thread"] for row in loaded.slices if row["kind"] in ("lost", "func")} == {"SM 0 CTA 0 warp 0"}


def scene_trace(*parts: Part) -> list[Any]:
    """The events of a trace of these parts, numbers with a point as they are printed."""
    text = b"".join(encode(Scene([], [lambda: iter(parts)])))
    events: list[Any] = json.loads(text, parse_float=str)["traceEvents"]
    return events


def column(*values: int) -> Numbers:
    return np.array(values, dtype=np.int64)


def events(start_ns: Numbers, end_ns: Numbers, kinds: Sequence[EventKind], kind: Numbers, *args: Arg) -> Events:
    rows = np.arange(len(start_ns))
    return Events(1, rows + 2, kinds, kind, start_ns, end_ns, rows, 0 * rows, 0 * rows + 1, args)


def test_times_are_whole_nanoseconds_for_100_days() -> None:
    random = np.random.default_rng(0)
    start_ns = random.integers(0, 100 * 86_400 * 10**9 >> random.integers(0, 50, 20_000))
    duration_ns = random.integers(0, 1 << random.integers(1, 40, len(start_ns)))
    shown = scene_trace(events(start_ns, start_ns + duration_ns, [EventKind("k", "op")], np.zeros_like(start_ns)))
    assert [1000 * Decimal(event["ts"]) for event in shown] == start_ns.tolist()
    assert [1000 * Decimal(event["dur"]) for event in shown] == duration_ns.tolist()


def test_arguments_are_where_they_are_shown() -> None:
    kinds = [EventKind("a", "op", (("text", 'x"y'), ("share", 0.5), ("count", 3))), EventKind("b", "op")]
    shown = scene_trace(
        events(
            column(0, 1, 2),
            column(1, 2, 3),
            kinds,
            column(0, 1, 1),
            Arg("all", column(-5, 0, 123_456)),
            Arg("some", column(7, 8, 9), np.array([True, False, True])),
        )
    )
    assert [event["args"] for event in shown] == [
        {"all": -5, "some": 7, "text": 'x"y', "share": "0.5", "count": 3},
        {"all": 0},
        {"all": 123_456, "some": 9},
    ]

"""Arrows from the starts of Proton's events to their ends, judged by the trace processor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import drawn
import pytest
from buffers import Cta, Entry, buffer_words, end, end_event, start, start_event
from proton_files import save_file

from kprof_inject.capture.proton_buffer import read_proton_buffer
from kprof_inject.export.chrome import chrome_trace
from kprof_inject.export.drawing.tracks import LAYOUTS
from kprof_inject.export.perfetto import perfetto_trace
from kprof_inject.timeline.choice import Choice, NumberSet
from kprof_inject.timeline.timeline import Timeline, decode_launch

WORK, COPY, DONE = range(3)
NAMES = {WORK: "work", COPY: "copy", DONE: "done"}
CTAS, TURNS = 3, 4
BEGIN_NS = 1_000_000

ARROWS = (
    "SELECT leaves.name AS leaves, leaves.ts AS from_ns, leaves.dur AS dur, arrives.name AS arrives,"
    " arrives.ts AS to_ns, outer.name AS scope, leaves.category AS kind,"
    " EXTRACT_ARG(leaves.arg_set_id, {prefix}.to_warp') AS to_warp,"
    " EXTRACT_ARG(arrives.arg_set_id, {prefix}.from_warp') AS from_warp,"
    " EXTRACT_ARG(leaves.arg_set_id, {prefix}.duration_ns') AS ns,"
    " EXTRACT_ARG(arrives.arg_set_id, {prefix}.duration_cycles') AS cycles"
    " FROM flow JOIN slice AS leaves ON leaves.id = slice_out JOIN slice AS arrives ON arrives.id = slice_in"
    " LEFT JOIN slice AS outer ON outer.id = leaves.parent_id ORDER BY from_ns, to_ns"
)
SLICES = "SELECT name, COUNT(*) AS count, SUM(dur) AS dur, MAX(depth) AS depth FROM slice GROUP BY name"
Write = Callable[..., Iterator[bytes]]
FORMATS = [
    pytest.param(chrome_trace, "trace.json", "'args", id="chrome"),
    pytest.param(perfetto_trace, "trace.pftrace", "'debug", id="perfetto"),
]


def producer(at: int) -> list[Entry]:
    """Starts a copy each 100 cycles, within a scope."""
    return [start(WORK, at), *(start_event(COPY, at + 50 + 100 * turn) for turn in range(TURNS)), end(WORK, at + 600)]


def consumer(at: int) -> list[Entry]:
    """Ends each copy 170 cycles later, and outside of scopes what it started itself."""
    ends = [end_event(COPY, at + 220 + 100 * turn) for turn in range(TURNS)]
    return [start_event(DONE, at + 10), start(WORK, at + 100), *ends, end(WORK, at + 600), end_event(DONE, at + 700)]


def idle(at: int) -> list[Entry]:
    return [end_event(COPY, at + 225 + 100 * turn) for turn in range(TURNS)]


def timeline_of(tmp_path: Path, *warps: Callable[[int], list[Entry]], slots: int = 16) -> Timeline:
    ctas = [
        Cta(
            [warp(BEGIN_NS + 10 * cta) for warp in warps],
            sm=cta,
            init_ns=BEGIN_NS,
            pre_final_ns=BEGIN_NS + 1000,
            post_final_ns=BEGIN_NS + 1100,
        )
        for cta in range(CTAS)
    ]
    path = save_file(tmp_path, buffer_words(ctas, slots), len(warps))
    return decode_launch(read_proton_buffer(path, NAMES).launches[0])


def arrows_of(
    tmp_path: Path, write: Write, name: str, prefix: str, timelines: Sequence[Timeline], **options: Any
) -> list[dict[str, Any]]:
    (rows,) = drawn.load(tmp_path / name, list(write(timelines, **options)), ARROWS.format(prefix=prefix))
    return [dict(row) for row in rows]


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_an_arrow_leads_from_the_warp_that_starts_to_the_one_that_ends(
    tmp_path: Path, write: Write, name: str, prefix: str
) -> None:
    timeline = timeline_of(tmp_path, producer, consumer)
    rows = arrows_of(tmp_path, write, name, prefix, [timeline])
    copies = [row for row in rows if row["leaves"] == "copy"]
    assert len(copies) == CTAS * TURNS
    assert Counter((row["arrives"], row["kind"], row["scope"]) for row in copies) == {
        ("copy ends", "event", "work"): CTAS * TURNS
    }
    assert {(row["from_warp"], row["to_warp"], row["dur"], row["cycles"]) for row in copies} == {(0, 1, 0, 170)}
    assert all(row["ns"] == row["to_ns"] - row["from_ns"] > 0 for row in copies)
    own = [row for row in rows if row["leaves"] == "done"]
    assert {(row["scope"], row["from_warp"], row["to_warp"], row["cycles"]) for row in own} == {(None, 1, 1, 690)}
    assert len(rows) == CTAS * (TURNS + 1)


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_the_scopes_are_drawn_as_without_events(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    timeline = timeline_of(tmp_path, producer, consumer)
    (rows,) = drawn.load(tmp_path / name, list(write([timeline])), SLICES)
    found = {row["name"]: row for row in rows}
    assert (found["work"]["count"], found["work"]["depth"]) == (2 * CTAS, 0)
    assert found["work"]["dur"] == (timeline.scopes["end_ns"] - timeline.scopes["start_ns"]).sum()
    assert (found["copy"]["count"], found["copy ends"]["count"]) == (CTAS * TURNS, CTAS * TURNS)
    assert "incomplete" not in found


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_a_start_has_an_arrow_to_each_warp_that_ends_it(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    """The third warp has no scope."""
    rows = arrows_of(tmp_path, write, name, prefix, [timeline_of(tmp_path, producer, consumer, idle)])
    copies = [row for row in rows if row["leaves"] == "copy"]
    assert len(copies) == 2 * CTAS * TURNS
    assert len({(row["from_ns"], row["to_warp"]) for row in copies}) == TURNS
    # The start has the longest.
    assert {row["to_warp"] for row in copies} == {2}
    assert {row["cycles"] for row in copies} == {170, 175}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_every_layout_and_every_launch_has_its_arrows(
    tmp_path: Path, write: Write, name: str, prefix: str, layout: str
) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    timelines = [timeline_of(folder, producer, consumer) for folder in folders]
    rows = arrows_of(tmp_path, write, name, prefix, timelines, layout=LAYOUTS[layout])
    assert len(rows) == 2 * CTAS * (TURNS + 1)
    assert all(row["ns"] == row["to_ns"] - row["from_ns"] for row in rows)


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_a_warp_with_nothing_but_events_is_drawn(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    def only_starts(at: int) -> list[Entry]:
        return [start_event(COPY, at + 50 + 100 * turn) for turn in range(TURNS)]

    rows = arrows_of(tmp_path, write, name, prefix, [timeline_of(tmp_path, only_starts, idle)])
    assert len(rows) == CTAS * TURNS
    assert {(row["from_warp"], row["to_warp"], row["scope"]) for row in rows} == {(0, 1, None)}


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_what_has_no_partner_is_shown_as_incomplete(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    timeline = timeline_of(tmp_path, producer, idle, slots=4)
    incomplete = "SELECT SUM(EXTRACT_ARG(arg_set_id, {prefix}.stray_ends')) AS ends FROM slice WHERE category = 'lost'"
    queries = (ARROWS.format(prefix=prefix), incomplete.format(prefix=prefix))
    arrows, ((ends),) = drawn.load(tmp_path / name, list(write([timeline])), *queries)
    assert arrows == []
    # The ring of the producer lost two records, so that its CTA's events are unknown.
    assert ends["ends"] == CTAS * (TURNS + 1)


@pytest.mark.parametrize(("write", "name", "prefix"), FORMATS)
def test_arrows_of_the_chosen_ctas_alone_are_drawn(tmp_path: Path, write: Write, name: str, prefix: str) -> None:
    chosen = timeline_of(tmp_path, producer, consumer).chosen(Choice(ctas=NumberSet.parse("1", "--cta")))
    assert len(arrows_of(tmp_path, write, name, prefix, [chosen])) == TURNS + 1
